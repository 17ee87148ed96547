package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// mostAuthorities is how many authorities a bundle names: the one now, and the one before or the next.
const mostAuthorities = 2

// bundlesWith returns bundles that name the required authorities, and whether that changes any.
func bundlesWith(required []*x509.Certificate, former [][]byte, now time.Time) (out [][]byte, changed bool) {
	for _, bundle := range former {
		wanted := bundleWith(required, bundle, now)
		changed = changed || !bytes.Equal(wanted, bundle)
		out = append(out, wanted)
	}
	return out, changed
}

// bundleWith returns a bundle that names the required authorities, and as many of those it named before as have not
// ended and have room. What cannot be read of it is dropped.
func bundleWith(required []*x509.Certificate, former []byte, now time.Time) []byte {
	wanted := slices.Clone(required)
	for _, cert := range authorities(former) {
		known := slices.ContainsFunc(wanted, cert.Equal)
		if !known && len(wanted) < mostAuthorities && now.Before(cert.NotAfter) {
			wanted = append(wanted, cert)
		}
	}
	var out bytes.Buffer
	for _, cert := range wanted {
		// A buffer takes all that is written.
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
