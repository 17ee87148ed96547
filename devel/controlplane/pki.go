package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Lifetimes of certificates. Certificates are not renewed, because a control plane for tests or demos never runs that
// long.
const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour

	// clockSkew is how far the clock may be set back without making a new certificate invalid.
	clockSkew = time.Hour
)

// frontProxyUser is the client that aggregated API servers trust. Requests of this client may name another user.
const frontProxyUser = "front-proxy-client"

type authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

type keyPair struct {
	cert, key []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate authority %q: %w", name, err)
	}
	return &authority{cert: cert, key: key, certPEM: encodeCert(der)}, nil
}

func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

var apiServerNames = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// server issues a serving certificate that is valid for localhost, for the given DNS names and for the given addresses.
func (a *authority) server(name string, names []string, addresses ...net.IP) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    append([]string{"localhost"}, names...),
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, addresses...),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return keyPair{}, err
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	template.NotAfter = time.Now().Add(leafLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("create certificate for %q: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: encodeCert(der), key: keyPEM}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	return serial, nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// pki contains the certificate and key files of the processes of a control plane. As in most clusters, one authority
// signs the certificates of servers, users and kubelets. A second authority signs the certificate of the proxy in front
// of aggregated API servers. etcd listens on a socket in the control plane's folder, so it needs no certificate.
type pki struct {
	authority *authority

	caCert, caKey     string // paths of the authority's files
	frontProxyCACert  string // path of the authority's certificate
	serviceAccountKey string // path of the file with the key that signs service account tokens
	server            string // pair that all servers use
	kubeletClient     string // pair that the API server shows to kubelets
	frontProxyClient  string // pair that the API server shows to aggregated API servers
}

// newPKI creates the keys and certificates in dir. A pair consists of two files with the extensions .crt and .key. The
// certificate of the servers is also valid for the addresses.
func newPKI(dir string, addresses ...net.IP) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder for certificates: %w", err)
	}
	ca, err := newAuthority("kubernetes")
	if err != nil {
		return nil, err
	}
	p := &pki{
		authority:         ca,
		caCert:            filepath.Join(dir, "ca.crt"),
		caKey:             filepath.Join(dir, "ca.key"),
		frontProxyCACert:  filepath.Join(dir, "front-proxy-ca.crt"),
		serviceAccountKey: filepath.Join(dir, "service-account.key"),
		server:            filepath.Join(dir, "server"),
		kubeletClient:     filepath.Join(dir, "kubelet-client"),
		frontProxyClient:  filepath.Join(dir, "front-proxy-client"),
	}
	caKey, err := encodeKey(ca.key)
	if err != nil {
		return nil, err
	}
	serviceAccount, err := newKey()
	if err != nil {
		return nil, err
	}
	serviceAccountKey, err := encodeKey(serviceAccount)
	if err != nil {
		return nil, err
	}
	// If the server had the same name as the authority, OpenSSL would treat its certificate as self-signed.
	server, err := ca.server("kube-apiserver", apiServerNames, addresses...)
	if err != nil {
		return nil, err
	}
	kubeletClient, err := ca.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	frontProxyCA, err := newAuthority("front-proxy")
	if err != nil {
		return nil, err
	}
	frontProxyClient, err := frontProxyCA.client(frontProxyUser)
	if err != nil {
		return nil, err
	}
	for path, content := range map[string][]byte{
		p.caCert:                    ca.certPEM,
		p.caKey:                     caKey,
		p.frontProxyCACert:          frontProxyCA.certPEM,
		p.serviceAccountKey:         serviceAccountKey,
		p.server + ".crt":           server.cert,
		p.server + ".key":           server.key,
		p.kubeletClient + ".crt":    kubeletClient.cert,
		p.kubeletClient + ".key":    kubeletClient.key,
		p.frontProxyClient + ".crt": frontProxyClient.cert,
		p.frontProxyClient + ".key": frontProxyClient.key,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("write certificate or key: %w", err)
		}
	}
	return p, nil
}
