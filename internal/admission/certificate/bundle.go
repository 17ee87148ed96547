package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// maxAuthorities is the size limit of a bundle: the current authority, and the previous or the next authority.
const maxAuthorities = 2

func bundlesWith(required []*x509.Certificate, former [][]byte, now time.Time) (out [][]byte, changed bool) {
	for _, bundle := range former {
		wanted := bundleWith(required, bundle, now)
		changed = changed || !bytes.Equal(wanted, bundle)
		out = append(out, wanted)
	}
	return out, changed
}

// bundleWith returns a bundle with the required authorities. bundleWith keeps authorities of the former bundle that
// have not expired, up to the limit. Data that cannot be parsed is dropped.
func bundleWith(required []*x509.Certificate, former []byte, now time.Time) []byte {
	wanted := slices.Clone(required)
	for _, cert := range authorities(former) {
		known := slices.ContainsFunc(wanted, cert.Equal)
		if !known && len(wanted) < maxAuthorities && now.Before(cert.NotAfter) {
			wanted = append(wanted, cert)
		}
	}
	var out bytes.Buffer
	for _, cert := range wanted {
		// Writes to a buffer do not fail.
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return out.Bytes()
}

func authorities(bundle []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}
