package approval

import (
	"bytes"
	"context"
	"fmt"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Transform drops from a CertificateSigningRequest what is not used: of one that is decided, or for another signer, all
// but who asked for what. It is a cache.TransformFunc.
func Transform(object any) (any, error) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return object, nil
	}
	pending := kubeletcsr.Pending(csr)
	csr.ManagedFields, csr.Annotations, csr.Labels = nil, nil, nil
	csr.Spec.Extra = nil
	if len(csr.Spec.Request) > kubeletcsr.MaxRequest {
		// Whoever may join can fill them up to the megabyte that the API server admits. One byte too many is kept, so that
		// it is still seen to be too long.
		csr.Spec.Request = bytes.Clone(csr.Spec.Request[:kubeletcsr.MaxRequest+1])
	}
	if !pending {
		csr.Spec.Request, csr.Spec.Groups, csr.Spec.Usages = nil, nil, nil
	}
	if kubeletcsr.Decided(csr) {
		csr.Status.Certificate = nil // Without a condition it is what says that nothing must be done.
	}
	return csr, nil
}

// byNode is the index that finds pending requests by the names of nodes in them: the one that asks and the one asked
// for.
const byNode = "certificatesigningrequest.nodeName"

// RegisterIndexes adds the index of CertificateSigningRequests to the target cluster's cache. It may be called once per
// cache.
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

// nodes are the names of nodes in a request, without repetition.
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
