package kubeletcsr

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// JoinCertificate describes a client certificate that was issued for a request with a bootstrap token. Any user may
// have approved the request.
type JoinCertificate struct {
	// TokenID is the id of the token.
	TokenID string
	// RequestTime holds the creation time of the certificate request, by the API server's clock.
	RequestTime time.Time
}

// JoinRequest is a request with a bootstrap token for a node's client certificate.
type JoinRequest struct {
	// Name is the name of the CertificateSigningRequest.
	Name string
	// Outcome is the current state of the request.
	Outcome Outcome
	JoinCertificate
}

// Outcome is the state of a request.
type Outcome int

const (
	// OutcomeUndecided means that the request is neither approved nor denied.
	OutcomeUndecided Outcome = iota
	// OutcomeUnsigned means that the request is approved but its certificate is not issued yet.
	OutcomeUnsigned
	// OutcomeIssued means that the status of the request contains the certificate.
	OutcomeIssued
	// OutcomeRefused means that the request was denied, or that signing the certificate failed.
	OutcomeRefused
)

// JoinFinder finds the requests of nodes for their first client certificate. The lookup lists the requests live,
// because Kubernetes deletes them about an hour after the approval. Calls during a list wait for the next list and
// share its result.
type JoinFinder struct {
	requests client.Reader
	started  atomic.Int64
	// lock guards byNode and serializes lists. The lock is a channel, so that a caller stops waiting when its context
	// ends.
	lock   chan struct{}
	byNode map[string][]JoinRequest
}

const pageSize = 500

// NewJoinFinder returns a JoinFinder. The reader must not cache.
func NewJoinFinder(requests client.Reader) *JoinFinder {
	return &JoinFinder{requests: requests, lock: make(chan struct{}, 1)}
}

// Find returns the client certificates that were issued for a node name. The method lists the requests after the
// call, and not earlier. A kubelet needs its certificate to register its Node. So for a Node that existed before the
// call, the result is complete.
func (j *JoinFinder) Find(ctx context.Context, node string) ([]JoinCertificate, error) {
	requests, err := j.Requests(ctx, node)
	var joined []JoinCertificate
	for _, r := range requests {
		if r.Outcome == OutcomeIssued {
			joined = append(joined, r.JoinCertificate)
		}
	}
	return joined, err
}

// Requests returns the certificate requests for the node name, from a list that started after the call.
func (j *JoinFinder) Requests(ctx context.Context, node string) ([]JoinRequest, error) {
	before := j.started.Load()
	select {
	case j.lock <- struct{}{}:
		defer func() { <-j.lock }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a list of the target cluster's CertificateSigningRequests: %w", ctx.Err())
	}
	if j.byNode == nil || j.started.Load() == before {
		j.started.Add(1)
		byNode, err := j.list(ctx)
		if err != nil {
			j.byNode = nil // Do not share a failed list.
			return nil, err
		}
		j.byNode = byNode
	}
	return slices.Clone(j.byNode[node]), nil
}

func (j *JoinFinder) list(ctx context.Context) (map[string][]JoinRequest, error) {
	out := map[string][]JoinRequest{}
	for more := ""; ; {
		page := &certificatesv1.CertificateSigningRequestList{}
		err := j.requests.List(ctx, page, client.Limit(pageSize), client.Continue(more),
			client.MatchingFields{"spec.signerName": certificatesv1.KubeAPIServerClientKubeletSignerName})
		if err != nil {
			return nil, fmt.Errorf("list the target cluster's CertificateSigningRequests: %w", err)
		}
		for i := range page.Items {
			if node, request, ok := joinOf(&page.Items[i]); ok {
				out[node] = append(out[node], request)
			}
		}
		if more = page.Continue; more == "" {
			return out, nil
		}
	}
}

// joinOf returns the node name of a joining node's request, and the request. ok is false for other requests.
func joinOf(csr *certificatesv1.CertificateSigningRequest) (node string, request JoinRequest, ok bool) {
	r := Read(csr)
	if r.Kind != KindJoin || r.Fault != "" {
		return "", JoinRequest{}, false
	}
	return r.RequestedNode, JoinRequest{Name: csr.Name, Outcome: outcome(csr),
		JoinCertificate: JoinCertificate{TokenID: r.TokenID, RequestTime: csr.CreationTimestamp.Time}}, true
}

func outcome(csr *certificatesv1.CertificateSigningRequest) Outcome {
	state := OutcomeUndecided
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Status == corev1.ConditionFalse:
		case c.Type == certificatesv1.CertificateApproved:
			state = OutcomeUnsigned
		case c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			return OutcomeRefused
		}
	}
	if state == OutcomeUnsigned && len(csr.Status.Certificate) > 0 {
		return OutcomeIssued
	}
	return state
}
