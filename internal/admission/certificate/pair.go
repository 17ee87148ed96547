package certificate

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

const authorityName = "machinist-webhooks"

var serverAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

// signServing returns the Secret data of a new serving certificate for the hosts. signServing fails if the
// certificate would be invalid for the hosts, because each step would replace it again.
func signServing(hosts []string, authority *rotator.KeyPairArtifacts, begin, end time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: serverAuth,
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Cert, key.Public(), authority.Key)
	if err != nil {
		return nil, fmt.Errorf("create a serving certificate: %w", err)
	}
	data := map[string][]byte{
		certKey:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		privateKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		caCert:     authority.CertPEM, caKey: authority.KeyPEM,
	}
	if _, err := servingLeft(data, hosts, begin); err != nil {
		return nil, fmt.Errorf("verify the new serving certificate: %w", err)
	}
	return data, nil
}

// servingLeft returns how long the serving certificate remains valid for all hosts, counted from at.
func servingLeft(data map[string][]byte, hosts []string, at time.Time) (time.Duration, error) {
	for _, host := range hosts {
		if ok, err := rotator.ValidCert(data[caCert], data[certKey], data[privateKey], host, &serverAuth, at); !ok {
			return 0, fmt.Errorf("check the serving certificate for %s: %w", host, err)
		}
	}
	leaf, err := parse(data[certKey])
	if err != nil {
		return 0, err
	}
	left := leaf.NotAfter.Sub(at)
	if left <= 0 {
		return 0, fmt.Errorf("the serving certificate expires at %s", leaf.NotAfter)
	}
	return left, nil
}

// authorityOf parses an authority and its key. authorityOf fails if the authority cannot sign at the given time.
func authorityOf(cert, key []byte, at time.Time) (*rotator.KeyPairArtifacts, error) {
	if ok, err := rotator.ValidCert(cert, cert, key, authorityName, nil, at); !ok {
		return nil, fmt.Errorf("check the certificate authority: %w", err)
	}
	parsed, err := parse(cert)
	if err != nil {
		return nil, fmt.Errorf("check the certificate authority: %w", err)
	}
	block, _ := pem.Decode(key)
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the key of the certificate authority: %w", err)
	}
	return &rotator.KeyPairArtifacts{Cert: parsed, Key: private, CertPEM: cert, KeyPEM: key}, nil
}

func parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate in PEM format")
	}
	return x509.ParseCertificate(block.Bytes)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
