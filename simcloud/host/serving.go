package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepServingCertificate requests a serving certificate and renews it before it expires. Only the
// CertificateSigningRequest is visible from outside, because the machine does not listen on any port.
func (m *machine) keepServingCertificate(ctx context.Context) {
	backoff := certificateBackoff()
	for ctx.Err() == nil {
		ends, err := m.requestServingCertificate(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			delay := backoff.Step()
			m.printf("kubelet: get the serving certificate: %s; next attempt in %s", explain(err), delay.Round(time.Millisecond))
			m.pause(ctx, delay)
			continue
		}
		m.printf("kubelet: received its serving certificate")
		backoff = certificateBackoff()
		m.pause(ctx, max(ends.Sub(m.clock.Now())*4/5, time.Minute))
	}
}

// requestServingCertificate waits for a certificate with a new key, and returns its expiration time.
func (m *machine) requestServingCertificate(ctx context.Context) (ends time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	csr, err := m.postServingRequest(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("request the certificate: %w", err)
	}
	m.printf("kubelet: waiting for approval of CertificateSigningRequest %s", csr.Name)
	encoded, err := m.awaitCertificate(ctx, m.conn, csr)
	if err != nil {
		return time.Time{}, fmt.Errorf("wait for %s: %w", csr.Name, err)
	}
	block, _ := pem.Decode(encoded)
	if block == nil {
		return time.Time{}, errors.New("the issued certificate is not in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse the issued certificate: %w", err)
	}
	return certificate.NotAfter, nil
}

func (m *machine) postServingRequest(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a private key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + m.spec.Hostname, Organization: []string{"system:nodes"}},
		DNSNames:    []string{m.spec.Hostname},
		IPAddresses: []net.IP{m.spec.Address.AsSlice()},
	}, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.conn.certificates.CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: request}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
}
