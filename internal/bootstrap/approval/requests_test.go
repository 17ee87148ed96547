package approval

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

// draft is a certificate request before it is signed: as a kubelet would make it, until a test changes it.
type draft struct {
	x509.CertificateRequest
	signer string
	usages []certificatesv1.KeyUsage
}

// forClient is what the kubelet of a node asks for to join and to renew.
func forClient(node string, changes ...func(*draft)) *draft {
	d := &draft{signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
	d.Subject = pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	return d.change(changes)
}

// forServing is what the kubelet of a node asks for to serve under names and addresses.
func forServing(node string, dns []string, ips []string, changes ...func(*draft)) *draft {
	d := forClient(node)
	d.signer, d.usages[1] = certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth
	d.DNSNames = dns
	for _, ip := range ips {
		d.IPAddresses = append(d.IPAddresses, net.ParseIP(ip))
	}
	return d.change(changes)
}

func (d *draft) change(changes []func(*draft)) *draft {
	for _, c := range changes {
		c(d)
	}
	return d
}

func (d *draft) pem(t testing.TB) []byte {
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

// object returns the request as the API server stores it; the API server fills in who it is from.
func (d *draft) object(t testing.TB) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: d.pem(t), SignerName: d.signer, Usages: d.usages,
	}}
}

// by returns the request as if somebody had posted it.
func (d *draft) by(t testing.TB, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := d.object(t)
	csr.Spec.Username, csr.Spec.Groups = user, append(groups, "system:authenticated")
	return csr
}

func (d *draft) byToken(t testing.TB) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return d.by(t, "system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:machinist")
}

func (d *draft) byNode(t testing.TB, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return d.by(t, "system:node:"+node, "system:nodes")
}

// Ways in which a request is not a kubelet's.

func organizations(names ...string) func(*draft) {
	return func(d *draft) { d.Subject.Organization = names }
}

func attribute(id asn1.ObjectIdentifier, value string) func(*draft) {
	return func(d *draft) {
		d.Subject.ExtraNames = append(d.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: id, Value: value})
	}
}

func commonName(name string) func(*draft) { return func(d *draft) { d.Subject.CommonName = name } }

func dnsNames(names ...string) func(*draft) { return func(d *draft) { d.DNSNames = names } }

func usages(u ...certificatesv1.KeyUsage) func(*draft) { return func(d *draft) { d.usages = u } }

func email(d *draft) { d.EmailAddresses = []string{"root@example.com"} }

func uri(d *draft) { d.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/admin"}} }

// certificateAuthority asks for the right to sign.
func certificateAuthority(t testing.TB) func(*draft) {
	value, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return func(d *draft) {
		d.ExtraExtensions = append(d.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
			Value: value})
	}
}

// otherName adds to the alternative names one of a form that Go's parser passes over: a user name of Windows domains.
func otherName(t testing.TB, dns string) func(*draft) {
	upn := slices.Concat([]byte{0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x14, 0x02, 0x03},
		[]byte{0xa0, 0x07, 0x0c, 0x05}, []byte("admin"))
	value, err := asn1.Marshal([]asn1.RawValue{
		{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(dns)},
		{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: upn},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(d *draft) {
		d.DNSNames, d.IPAddresses = nil, nil
		d.ExtraExtensions = append(d.ExtraExtensions, pkix.Extension{Id: extensionAlternative, Value: value})
	}
}
