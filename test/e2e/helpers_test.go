//go:build e2e

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"machinist.dev/machinist/test/env"
)

func commonName(request []byte) string {
	block, _ := pem.Decode(request)
	if block == nil {
		return ""
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return csr.Subject.CommonName
}

// eventually calls the function check until it returns true. Use eventually only for states that cannot be watched.
// check also returns a description of the current state.
func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	deadline := time.After(env.Patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var state string
	for {
		ok := false
		if ok, state = check(); ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s until %s; last seen: %s", env.Patience, what, state)
		}
	}
}
