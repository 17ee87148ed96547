// Package kubeletcsr reads the CertificateSigningRequests of kubelets: those to be decided about, and those with which
// nodes have joined.
package kubeletcsr

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/internal/class/bootstrap"
)

// Names by which the API server knows kubelets and those who are about to become one.
const (
	nodeUserPrefix     = "system:node:"
	nodesGroup         = "system:nodes"
	bootstrappersGroup = "system:bootstrappers"
)

// Signers are the names of the two signers whose requests are checked.
func Signers() []string {
	return []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}
}

// Pending reports whether a request is for one of Signers and nobody has decided about it.
func Pending(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(Signers(), csr.Spec.SignerName) && len(csr.Status.Certificate) == 0 && !Decided(csr)
}

// Decided reports whether somebody has approved or denied a request, or it has failed.
func Decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return c.Status != corev1.ConditionFalse
		}
		return false
	})
}

// Kind is why a kubelet asks.
type Kind int

const (
	// NoKubelet: asked by somebody who is no kubelet. It has no owner business here.
	NoKubelet Kind = iota
	// Join: a client certificate, asked for with a bootstrap token.
	Join
	// Renewal: a client certificate, asked for by the node itself.
	Renewal
	// Serving: a serving certificate, asked for by the node itself.
	Serving
)

// Request is what a CertificateSigningRequest says, as far as it can be read.
type Request struct {
	Kind Kind
	// TokenID is that of the requester's bootstrap token, for a join.
	TokenID string
	// Requester is the name of the node that asks, for the other kinds.
	Requester string
	// Wanted is the name of the node that the certificate must be for; empty if it is for none.
	Wanted string
	// DNS and ips are the names to serve under.
	DNS []string
	IPs []netip.Addr
	// Fault says why no kubelet asks like this; empty if one might.
	Fault string
}

// Read reads a request. Everything in it but the requester's name and groups comes from whoever made it.
func Read(csr *certificatesv1.CertificateSigningRequest) Request {
	r := identify(csr)
	if r.Kind == NoKubelet {
		return r
	}
	if err := r.readCertificateRequest(csr.Spec.Request); err != nil {
		r.Fault = err.Error()
		return r
	}
	switch {
	case r.Wanted == "":
		r.Fault = "its subject is no node"
	case r.Kind != Join && r.Requester != r.Wanted:
		r.Fault = fmt.Sprintf("node %s asks for the identity of node %s", r.Requester, r.Wanted)
	case !usagesFit(csr.Spec.Usages, r.Kind):
		r.Fault = "its usages are not those that a kubelet asks for"
	case r.Kind != Serving && len(r.DNS)+len(r.IPs) > 0:
		r.Fault = "a client certificate has no alternative names"
	case r.Kind == Serving && len(r.DNS)+len(r.IPs) == 0:
		r.Fault = "it names nothing to serve under"
	}
	return r
}

// identify tells who asks for what kind of certificate.
func identify(csr *certificatesv1.CertificateSigningRequest) Request {
	in := func(group string) bool { return slices.Contains(csr.Spec.Groups, group) }
	node, isNode := nodeOf(csr.Spec.Username)
	isNode = isNode && in(nodesGroup)
	token, isToken := bootstrap.TokenIDOf(csr.Spec.Username)
	isToken = isToken && in(bootstrappersGroup)
	switch {
	case csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && isToken:
		return Request{Kind: Join, TokenID: token}
	case csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && isNode:
		return Request{Kind: Renewal, Requester: node}
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && isNode:
		return Request{Kind: Serving, Requester: node}
	}
	return Request{}
}

// nodeOf returns the name of the node that a user is, if it can be one's name.
func nodeOf(username string) (name string, ok bool) {
	name, ok = strings.CutPrefix(username, nodeUserPrefix)
	if !ok || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", false
	}
	return name, true
}

var (
	attributeCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	attributeOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
	extensionAlternative  = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// MaxRequest is many times what a kubelet sends. The API server admits a megabyte, and to verify a signature made
// with a key of that size would keep a processor busy for hours.
const MaxRequest = 16 << 10

// readCertificateRequest reads the PEM of a request. What a kubelet never puts into one is an error, even if today's
// signer would leave it out of the certificate.
func (r *Request) readCertificateRequest(data []byte) error {
	if len(data) > MaxRequest {
		return fmt.Errorf("it has more than %d bytes, which no kubelet's has", MaxRequest)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("it is not one PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return errors.New("its PEM block cannot be read")
	}
	// With several common names readers differ on which one counts.
	var commonNames, organizations int
	for _, a := range parsed.Subject.Names {
		switch {
		case a.Type.Equal(attributeCommonName):
			commonNames++
		case a.Type.Equal(attributeOrganization) && a.Value == nodesGroup:
			organizations++
		default:
			return errors.New("its subject has more than a node's name and the organization " + nodesGroup)
		}
	}
	r.Wanted, _ = nodeOf(parsed.Subject.CommonName)
	if commonNames != 1 || organizations != 1 {
		return errors.New("its subject is not one name in the organization " + nodesGroup)
	}
	if err := parsed.CheckSignature(); err != nil {
		return errors.New("it is not signed with the key that it is for")
	}
	return r.readAlternatives(parsed)
}

// readAlternatives reads the alternative names, the one extension that a kubelet uses.
func (r *Request) readAlternatives(parsed *x509.CertificateRequest) error {
	if len(parsed.EmailAddresses) > 0 || len(parsed.URIs) > 0 {
		return errors.New("its alternative names are not only DNS names and IP addresses")
	}
	named := 0
	for _, e := range parsed.Extensions {
		if !e.Id.Equal(extensionAlternative) {
			return fmt.Errorf("it has the extension %s", e.Id)
		}
		// Names of other forms are not in what the parser returns, but would be in what a signer copies.
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) > 0 {
			return errors.New("its alternative names cannot be read")
		}
		named += len(names)
	}
	for _, ip := range parsed.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok {
			return errors.New("its alternative names cannot be read")
		}
		r.IPs = append(r.IPs, address.Unmap())
	}
	r.DNS = parsed.DNSNames
	if named != len(r.DNS)+len(r.IPs) {
		return errors.New("its alternative names are not only DNS names and IP addresses")
	}
	return nil
}

// usagesFit reports whether the usages are those of a kubelet: with keys that can, kubelets also ask for the
// encipherment of keys.
func usagesFit(usages []certificatesv1.KeyUsage, k Kind) bool {
	purpose := certificatesv1.UsageClientAuth
	if k == Serving {
		purpose = certificatesv1.UsageServerAuth
	}
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose,
		certificatesv1.UsageKeyEncipherment}
	others := slices.ContainsFunc(usages, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(allowed, u) })
	return !others && slices.Contains(usages, certificatesv1.UsageDigitalSignature) && slices.Contains(usages, purpose)
}
