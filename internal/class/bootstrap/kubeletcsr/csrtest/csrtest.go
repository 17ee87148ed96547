// Package csrtest builds valid and invalid certificate requests of kubelets for tests.
package csrtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Draft is an unsigned certificate request, by default as a kubelet sends it.
type Draft struct {
	x509.CertificateRequest
	Signer    string
	KeyUsages []certificatesv1.KeyUsage
}

// ForClient returns a kubelet's request for a client certificate, to join or to renew.
func ForClient(node string, changes ...func(*Draft)) *Draft {
	d := &Draft{Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		KeyUsages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
	d.Subject = pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	return d.change(changes)
}

// ForServing returns a kubelet's request for a serving certificate with the DNS names and IP addresses.
func ForServing(node string, dns []string, ips []string, changes ...func(*Draft)) *Draft {
	d := ForClient(node)
	d.Signer, d.KeyUsages[1] = certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth
	d.DNSNames = dns
	for _, ip := range ips {
		d.IPAddresses = append(d.IPAddresses, net.ParseIP(ip))
	}
	return d.change(changes)
}

func (d *Draft) change(changes []func(*Draft)) *Draft {
	for _, c := range changes {
		c(d)
	}
	return d
}

// PEM returns the signed request.
func (d *Draft) PEM(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &d.CertificateRequest, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// Object returns a CertificateSigningRequest without a requester, which the API server adds when a client creates it.
func (d *Draft) Object(t testing.TB) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: d.PEM(t), SignerName: d.Signer, Usages: d.KeyUsages,
	}}
}

// ByUser returns the CertificateSigningRequest with the user and groups that the API server records as its creator.
func (d *Draft) ByUser(t testing.TB, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := d.Object(t)
	csr.Spec.Username, csr.Spec.Groups = user, append(groups, "system:authenticated")
	return csr
}

// ByToken returns the request of a bootstrap token's user.
func (d *Draft) ByToken(t testing.TB) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return d.ByUser(t, "system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:machinist")
}

// ByNode returns the request of a node.
func (d *Draft) ByNode(t testing.TB, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return d.ByUser(t, "system:node:"+node, "system:nodes")
}

// Each function below returns a change that no kubelet would make.

// Organizations replaces the organization system:nodes in the subject of the request.
func Organizations(names ...string) func(*Draft) {
	return func(d *Draft) { d.Subject.Organization = names }
}

// Attribute adds an attribute to the subject.
func Attribute(id asn1.ObjectIdentifier, value string) func(*Draft) {
	return func(d *Draft) {
		d.Subject.ExtraNames = append(d.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: id, Value: value})
	}
}

// CommonName replaces the node's name.
func CommonName(name string) func(*Draft) { return func(d *Draft) { d.Subject.CommonName = name } }

// DNSNames replaces the DNS names in the certificate request.
func DNSNames(names ...string) func(*Draft) { return func(d *Draft) { d.DNSNames = names } }

// Usages replaces the key usages in the CertificateSigningRequest.
func Usages(u ...certificatesv1.KeyUsage) func(*Draft) { return func(d *Draft) { d.KeyUsages = u } }

// Email adds an e-mail address to the alternative names.
func Email(d *Draft) { d.EmailAddresses = []string{"root@example.com"} }

// URI adds a URI to the alternative names.
func URI(d *Draft) { d.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/admin"}} }

// CertificateAuthority requests a certificate that may sign other certificates.
func CertificateAuthority(t testing.TB) func(*Draft) {
	value, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return func(d *Draft) {
		d.ExtraExtensions = append(d.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
			Value: value})
	}
}

// OtherName adds an alternative name that Go's parser ignores: a Windows user principal name.
func OtherName(t testing.TB, dns string) func(*Draft) {
	upn := slices.Concat([]byte{0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x14, 0x02, 0x03},
		[]byte{0xa0, 0x07, 0x0c, 0x05}, []byte("admin"))
	value, err := asn1.Marshal([]asn1.RawValue{
		{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(dns)},
		{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: upn},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(d *Draft) {
		d.DNSNames, d.IPAddresses = nil, nil
		d.ExtraExtensions = append(d.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value})
	}
}
