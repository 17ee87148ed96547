package libvirt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// pair is a certificate and its key in PEM.
type pair struct{ certificate, key []byte }

// certificates contains the certificate authority, the server certificate and the client certificate of a hypervisor.
// The certificate stranger is signed by another authority, which libvirtd does not trust.
type certificates struct {
	ca                       []byte
	server, client, stranger pair
}

func newCertificates() (certificates, error) {
	ca, err := newAuthority()
	if err != nil {
		return certificates{}, err
	}
	foreign, err := newAuthority()
	if err != nil {
		return certificates{}, err
	}
	all := certificates{ca: ca.pem}
	for _, c := range []struct {
		result    *pair
		authority *authority
		name      string
	}{{&all.server, ca, "libvirtd"}, {&all.client, ca, "machinist"}, {&all.stranger, foreign, "machinist"}} {
		if *c.result, err = c.authority.sign(c.name); err != nil {
			return certificates{}, err
		}
	}
	return all, nil
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// validity sets a validity period that is long enough for tests.
func validity(template *x509.Certificate) *x509.Certificate {
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(7 * 24 * time.Hour)
	return template
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := validity(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "machinist tests"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: template, key: key, pem: pemOf("CERTIFICATE", der)}, nil
}

// sign returns a certificate for clients and for servers on the loopback address.
func (a *authority) sign(name string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return pair{}, err
	}
	template := validity(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{certificate: pemOf("CERTIFICATE", der), key: pemOf("PRIVATE KEY", secret)}, nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
