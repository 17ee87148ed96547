package approval

import (
	"bytes"
	"context"
	"fmt"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Transform removes unused fields of CertificateSigningRequests in a cache. Decided requests and those for other
// signers keep only the requester, the signer and the status. Transform is a cache.TransformFunc.
func Transform(object any) (any, error) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return object, nil
	}
	pending := kubeletcsr.IsPending(csr)
	csr.ManagedFields, csr.Annotations, csr.Labels = nil, nil, nil
	csr.Spec.Extra = nil
	if len(csr.Spec.Request) > kubeletcsr.MaxRequest {
		// Any client that can join may send a request of up to one megabyte. One byte more than MaxRequest is kept, so
		// that later checks notice the size.
		csr.Spec.Request = bytes.Clone(csr.Spec.Request[:kubeletcsr.MaxRequest+1])
	}
	if !pending {
		csr.Spec.Request, csr.Spec.Groups, csr.Spec.Usages = nil, nil, nil
	}
	if kubeletcsr.IsDecided(csr) {
		csr.Status.Certificate = nil // The conditions show that the request is decided.
	}
	return csr, nil
}

// byNode is the index of pending requests by node name. A request is indexed under the name of the node that sent it,
// and under the node name in its subject.
const byNode = "certificatesigningrequest.nodeName"

// RegisterIndexes adds the index of CertificateSigningRequests to the target cluster's cache. Call it once per cache.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &certificatesv1.CertificateSigningRequest{}, byNode, func(o client.Object) []string {
		csr := o.(*certificatesv1.CertificateSigningRequest)
		if !kubeletcsr.IsPending(csr) {
			return nil
		}
		return readRequest(csr).nodes()
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", byNode, err)
	}
	return nil
}

// nodes returns the node that sent the request and the node name that it asks for, without duplicates.
func (r request) nodes() []string {
	var names []string
	if r.Requester != "" {
		names = append(names, r.Requester)
	}
	if r.RequestedNode != "" && r.RequestedNode != r.Requester {
		names = append(names, r.RequestedNode)
	}
	return names
}
