package roots

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Go reads the system's certificates only once. Therefore the test starts its own binary again, in an environment
// without certificates.
func TestAProgramHasRootCertificatesIfTheSystemHasNone(t *testing.T) {
	if os.Getenv("TEST_WITHOUT_SYSTEM_ROOTS") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "TEST_WITHOUT_SYSTEM_ROOTS=yes", "SSL_CERT_FILE="+t.TempDir()+"/none",
			"SSL_CERT_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(pool.Subjects()); n < 100 {
		t.Errorf("the pool has %d certificates, want those of the public authorities", n)
	}
}
