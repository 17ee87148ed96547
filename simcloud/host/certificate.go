package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
)

const (
	pemKey         = "EC PRIVATE KEY"
	pemRequest     = "CERTIFICATE REQUEST"
	watchSeconds   = 300
	watchPauseTime = time.Second
)

// certificatePatience is how long a kubelet waits for a certificate before it creates another request.
const certificatePatience = 15 * time.Minute

// authenticate connects with the node certificate on the disk, or requests a new certificate.
func (m *machine) authenticate(ctx context.Context) error {
	certificate, err := m.disk.certificate(m.clock.Now())
	if err != nil {
		if len(m.disk.CertificatePEM) > 0 {
			m.printf("kubelet: cannot use the saved node certificate: %v", err)
			if err := m.save(Disk{}); err != nil {
				return err
			}
		}
		if err := m.requestCertificate(ctx); err != nil {
			return err
		}
		if certificate, err = m.disk.certificate(m.clock.Now()); err != nil {
			return fmt.Errorf("use the issued certificate: %w", err)
		}
	}
	m.conn, err = connect(m.boot, m.roots.pool(m.boot.caPEM), certificate)
	return err
}

// certificate returns the node certificate, or an error if the disk has no valid certificate.
func (d Disk) certificate(now time.Time) (*tls.Certificate, error) {
	if len(d.CertificatePEM) == 0 {
		return nil, errors.New("there is no certificate")
	}
	certificate, err := tls.X509KeyPair(d.CertificatePEM, d.KeyPEM)
	if err != nil {
		return nil, err
	}
	if now.After(certificate.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate expired at %s", certificate.Leaf.NotAfter)
	}
	return &certificate, nil
}

// save saves the disk. Without a kubelet version, it keeps the version that an agent installed.
func (m *machine) save(d Disk) error {
	if d.KubeletVersion == "" {
		d.KubeletVersion = m.disk.KubeletVersion
	}
	if err := m.reporter.Save(d); err != nil {
		return fmt.Errorf("save to disk: %w", err)
	}
	m.disk = d
	return nil
}

// requestCertificate requests the node certificate with the bootstrap token and waits for the approval.
func (m *machine) requestCertificate(ctx context.Context) error {
	// A kubelet saves its key only when it receives the certificate. If the kubelet is interrupted earlier, its next
	// request has a new key.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate a private key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the private key: %w", err)
	}
	conn, err := connect(m.boot, m.roots.pool(m.boot.caPEM), nil)
	if err != nil {
		return err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()

	ctx, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	csr, err := m.postRequest(ctx, conn, key)
	if err != nil {
		return fmt.Errorf("request the node certificate: %w", err)
	}
	m.printf("kubelet: waiting for approval of CertificateSigningRequest %s", csr.Name)
	certificate, err := m.awaitCertificate(ctx, conn, csr)
	if err != nil {
		return fmt.Errorf("wait for the node certificate of %s: %w", csr.Name, err)
	}
	m.printf("kubelet: received its node certificate")
	return m.save(Disk{KeyPEM: pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), CertificatePEM: certificate})
}

// postRequest creates a certificate request. The API server generates the name of the request, as for the requests of
// real kubelets.
func (m *machine) postRequest(ctx context.Context, conn *connection,
	key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: "system:node:" + m.spec.Hostname, Organization: []string{"system:nodes"},
	}}, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return conn.certificates.CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: request}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
}

// awaitCertificate watches a request until it has a certificate.
func (m *machine) awaitCertificate(ctx context.Context, conn *connection,
	csr *certificatesv1.CertificateSigningRequest) ([]byte,
	error) {
	requests := conn.certificates.CertificateSigningRequests()
	for {
		if certificate, err := issuedCertificate(csr); certificate != nil || err != nil {
			return certificate, err
		}
		watch, err := requests.Watch(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, csr.Name).String(),
			ResourceVersion: csr.ResourceVersion,
			TimeoutSeconds:  ptr.To(int64(watchSeconds)),
		})
		if err != nil {
			return nil, err
		}
		for event := range watch.ResultChan() {
			if seen, ok := event.Object.(*certificatesv1.CertificateSigningRequest); ok {
				if certificate, err := issuedCertificate(seen); certificate != nil || err != nil {
					watch.Stop()
					return certificate, err
				}
			}
		}
		watch.Stop()
		m.pause(ctx, watchPauseTime) // A watch that ends at once must not cause a busy loop.
		name := csr.Name
		call, cancel := context.WithTimeout(ctx, callTimeout)
		csr, err = requests.Get(call, name, metav1.GetOptions{})
		cancel()
		if err != nil {
			return nil, err
		}
	}
}

// issuedCertificate returns the certificate of an approved request, or nil if the certificate is not issued yet.
func issuedCertificate(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range csr.Status.Conditions {
		if (c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed) &&
			c.Status != corev1.ConditionFalse {
			return nil, fmt.Errorf("refused: %s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	if len(csr.Status.Certificate) == 0 {
		return nil, nil
	}
	return csr.Status.Certificate, nil
}
