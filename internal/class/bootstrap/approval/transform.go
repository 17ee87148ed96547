package approval

import (
	"bytes"
	"context"
	"fmt"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Transform removes the unused fields of a CertificateSigningRequest before it is stored in a cache. If the request is
// already decided, or if its signer does not sign certificates of kubelets, only the requester, the signer and the
// status remain. Transform is a cache.TransformFunc.
func Transform(object any) (any, error) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return object, nil
	}
	pending := kubeletcsr.Pending(csr)
	csr.ManagedFields, csr.Annotations, csr.Labels = nil, nil, nil
	csr.Spec.Extra = nil
	if len(csr.Spec.Request) > kubeletcsr.MaxRequest {
		// The request can be large, because any client that can join may send up to one megabyte, the limit of the API
		// server. Keep one byte more than MaxRequest, so that later checks recognize that the request is too large.
		csr.Spec.Request = bytes.Clone(csr.Spec.Request[:kubeletcsr.MaxRequest+1])
	}
	if !pending {
		csr.Spec.Request, csr.Spec.Groups, csr.Spec.Usages = nil, nil, nil
	}
	if kubeletcsr.Decided(csr) {
		csr.Status.Certificate = nil // The conditions show that the request is decided.
	}
	return csr, nil
}

// byNode is the name of an index that finds the pending requests for a node name. The index finds a request by the
// name of the node that sent it, and by the node name for which the certificate is requested.
const byNode = "certificatesigningrequest.nodeName"

// RegisterIndexes adds the index of CertificateSigningRequests to the cache of the target cluster. It must be called
// only once per cache.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &certificatesv1.CertificateSigningRequest{}, byNode, func(o client.Object) []string {
		csr := o.(*certificatesv1.CertificateSigningRequest)
		if !kubeletcsr.Pending(csr) {
			return nil
		}
		return readRequest(csr).nodes()
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", byNode, err)
	}
	return nil
}

// nodes returns the name of the node that sent the request, and the node name for which the certificate is
// requested. If both names are equal, nodes returns only one.
func (r request) nodes() []string {
	var names []string
	if r.Requester != "" {
		names = append(names, r.Requester)
	}
	if r.Wanted != "" && r.Wanted != r.Requester {
		names = append(names, r.Wanted)
	}
	return names
}
