// Package kubeletcsr parses the CertificateSigningRequests of kubelets, pending or decided.
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

// These are the users and groups of kubelets and joining instances.
const (
	nodeUserPrefix     = "system:node:"
	nodesGroup         = "system:nodes"
	bootstrappersGroup = "system:bootstrappers"
)

// Signers returns the signers whose requests are checked.
func Signers() []string {
	return []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}
}

// IsPending reports whether a request is for one of Signers and is not decided yet.
func IsPending(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(Signers(), csr.Spec.SignerName) && len(csr.Status.Certificate) == 0 && !IsDecided(csr)
}

// IsDecided reports whether a request is approved, denied or failed.
func IsDecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return c.Status != corev1.ConditionFalse
		}
		return false
	})
}

// RequestKind is the purpose for which a kubelet requests a certificate.
type RequestKind int

const (
	// KindNotKubelet means that the requester is neither a kubelet nor a joining instance. Machinist ignores such
	// requests.
	KindNotKubelet RequestKind = iota
	// KindJoin is a request for a node's first client certificate, sent with a bootstrap token.
	KindJoin
	// KindRenewal is a node's request for its next client certificate, sent with its current one.
	KindRenewal
	// KindServing is a node's request for the certificate of its kubelet's HTTPS server.
	KindServing
)

// Request is the parsed content of a CertificateSigningRequest.
type Request struct {
	Kind RequestKind
	// TokenID is the id of the requester's bootstrap token if Kind is KindJoin.
	TokenID string
	// Requester is the requesting node if Kind is KindRenewal or KindServing.
	Requester string
	// RequestedNode is the node name in the subject of the requested certificate. It is empty if the subject is not a
	// node.
	RequestedNode string
	// DNS and IPs are the alternative names in the request.
	DNS []string
	IPs []netip.Addr
	// Fault describes a property of the request that requests of kubelets never have. It is empty if a kubelet may have
	// sent the request.
	Fault string
}

// Read parses a request. Only the requester's name and groups are trustworthy, because the API server sets them.
func Read(csr *certificatesv1.CertificateSigningRequest) Request {
	r := identify(csr)
	if r.Kind == KindNotKubelet {
		return r
	}
	if err := r.readCertificateRequest(csr.Spec.Request); err != nil {
		r.Fault = err.Error()
		return r
	}
	switch {
	case r.RequestedNode == "":
		r.Fault = "the request's subject is not the name of a node"
	case r.Kind != KindJoin && r.Requester != r.RequestedNode:
		r.Fault = fmt.Sprintf("node %s requests a certificate for node %s", r.Requester, r.RequestedNode)
	case !hasKubeletUsages(csr.Spec.Usages, r.Kind):
		r.Fault = "the request's usages differ from those that kubelets request"
	case r.Kind != KindServing && len(r.DNS)+len(r.IPs) > 0:
		r.Fault = "the request is for a client certificate but has alternative names"
	case r.Kind == KindServing && len(r.DNS)+len(r.IPs) == 0:
		r.Fault = "the request is for a serving certificate but has no DNS names and no IP addresses"
	}
	return r
}

// identify derives the kind of certificate, and the token or node, from the requester's name and groups.
func identify(csr *certificatesv1.CertificateSigningRequest) Request {
	in := func(group string) bool { return slices.Contains(csr.Spec.Groups, group) }
	node, isNode := nodeOf(csr.Spec.Username)
	isNode = isNode && in(nodesGroup)
	token, isToken := bootstrap.TokenIDOf(csr.Spec.Username)
	isToken = isToken && in(bootstrappersGroup)
	switch {
	case csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && isToken:
		return Request{Kind: KindJoin, TokenID: token}
	case csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && isNode:
		return Request{Kind: KindRenewal, Requester: node}
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && isNode:
		return Request{Kind: KindServing, Requester: node}
	}
	return Request{}
}

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

// MaxRequest is the maximum size of a request in bytes, many times that of a kubelet. The API server accepts a
// megabyte, and a key of that size would take hours to verify.
const MaxRequest = 16 << 10

// readCertificateRequest parses the PEM data of a request. readCertificateRequest returns an error if the data contains
// something that kubelets never request, even if the signer would ignore this part.
func (r *Request) readCertificateRequest(data []byte) error {
	if len(data) > MaxRequest {
		return fmt.Errorf("the request is larger than %d bytes, and requests of kubelets are much smaller", MaxRequest)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("the request is not a single PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return errors.New("the request's PEM block cannot be parsed")
	}
	// The subject must have only one common name. If the subject has several, X.509 parsers disagree about which one
	// to use.
	var commonNames, organizations int
	for _, a := range parsed.Subject.Names {
		switch {
		case a.Type.Equal(attributeCommonName):
			commonNames++
		case a.Type.Equal(attributeOrganization) && a.Value == nodesGroup:
			organizations++
		default:
			return errors.New("the request's subject has more attributes than a node's name and the organization " + nodesGroup)
		}
	}
	r.RequestedNode, _ = nodeOf(parsed.Subject.CommonName)
	if commonNames != 1 || organizations != 1 {
		return errors.New("the request's subject is not exactly one name and the organization " + nodesGroup)
	}
	if err := parsed.CheckSignature(); err != nil {
		return errors.New("the request is not signed with the private key of its public key")
	}
	return r.readAlternativeNames(parsed)
}

// readAlternativeNames parses the alternative names, the only extension that kubelets request.
func (r *Request) readAlternativeNames(parsed *x509.CertificateRequest) error {
	if len(parsed.EmailAddresses) > 0 || len(parsed.URIs) > 0 {
		return errors.New("the request has alternative names that are not DNS names or IP addresses")
	}
	count := 0
	for _, e := range parsed.Extensions {
		if !e.Id.Equal(extensionAlternative) {
			return fmt.Errorf("the request has the extension %s, which kubelets do not request", e.Id)
		}
		// Go's X.509 parser ignores alternative names of types that it does not know, but a signer could copy such
		// names into the certificate. So the code below counts the alternative names of all types.
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) > 0 {
			return errors.New("the request's alternative names cannot be parsed")
		}
		count += len(names)
	}
	for _, ip := range parsed.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok {
			return errors.New("the request's alternative names cannot be parsed")
		}
		r.IPs = append(r.IPs, address.Unmap())
	}
	r.DNS = parsed.DNSNames
	if count != len(r.DNS)+len(r.IPs) {
		return errors.New("the request has alternative names that are not DNS names or IP addresses")
	}
	return nil
}

// hasKubeletUsages reports whether kubelets request this kind of certificate with these usages. Kubelets request key
// encipherment only for keys that support it, such as RSA keys.
func hasKubeletUsages(usages []certificatesv1.KeyUsage, k RequestKind) bool {
	purpose := certificatesv1.UsageClientAuth
	if k == KindServing {
		purpose = certificatesv1.UsageServerAuth
	}
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose,
		certificatesv1.UsageKeyEncipherment}
	hasOthers := slices.ContainsFunc(usages, func(u certificatesv1.KeyUsage) bool { return !slices.Contains(allowed, u) })
	return !hasOthers && slices.Contains(usages, certificatesv1.UsageDigitalSignature) && slices.Contains(usages, purpose)
}
