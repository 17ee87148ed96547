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

// Joined is a client certificate that was issued to the bearer of a bootstrap token, whoever approved it.
type Joined struct {
	// TokenID is that of the token.
	TokenID string
	// At is when the certificate was asked for, by the API server's clock.
	At time.Time
}

// JoinRequest is a request of the bearer of a bootstrap token for a node's client certificate.
type JoinRequest struct {
	// Name is that of the CertificateSigningRequest.
	Name string
	// Outcome is what became of it.
	Outcome Outcome
	Joined
}

// Outcome is what became of a request.
type Outcome int

const (
	// Undecided is a request that is neither approved nor denied.
	Undecided Outcome = iota
	// Unsigned is an approved request whose certificate is not issued yet.
	Unsigned
	// Issued is a request whose certificate was issued.
	Issued
	// Refused is a request that was denied, or that its signer could not fulfil.
	Refused
)

// Joins tells with which tokens nodes joined, or tried to. It asks the API server, which keeps a request for about an
// hour after its approval; nothing later is known. Who asks while a list is under way shares the next one with all
// others who do.
type Joins struct {
	requests client.Reader
	// begun counts the lists that were begun.
	begun atomic.Int64
	// turn is held by the one who may list, and who may check byNode.
	turn   chan struct{}
	byNode map[string][]JoinRequest
}

// pageSize is how many requests are read at once.
const pageSize = 500

// NewJoins returns a Joins that reads with a client that does not cache.
func NewJoins(requests client.Reader) *Joins {
	return &Joins{requests: requests, turn: make(chan struct{}, 1)}
}

// Of returns the certificates issued for a node of that name, from a list that began after the call. A Node whose
// kubelet joined with a token can only be seen later than its certificate, so that what is missing here will not
// come.
func (j *Joins) Of(ctx context.Context, node string) ([]Joined, error) {
	requests, err := j.Requests(ctx, node)
	var joined []Joined
	for _, r := range requests {
		if r.Outcome == Issued {
			joined = append(joined, r.Joined)
		}
	}
	return joined, err
}

// Requests returns the requests for a node of that name, from a list that began after the call.
func (j *Joins) Requests(ctx context.Context, node string) ([]JoinRequest, error) {
	before := j.begun.Load()
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a list of the target cluster's CertificateSigningRequests: %w", ctx.Err())
	}
	if j.byNode == nil || j.begun.Load() == before {
		j.begun.Add(1)
		byNode, err := j.list(ctx)
		if err != nil {
			j.byNode = nil // Nobody shares a list that failed.
			return nil, err
		}
		j.byNode = byNode
	}
	return slices.Clone(j.byNode[node]), nil
}

func (j *Joins) list(ctx context.Context) (map[string][]JoinRequest, error) {
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

// joinOf returns for which node a request asks, and false if it does not ask for a node to join.
func joinOf(csr *certificatesv1.CertificateSigningRequest) (node string, request JoinRequest, ok bool) {
	r := Read(csr)
	if r.Kind != Join || r.Fault != "" {
		return "", JoinRequest{}, false
	}
	return r.Wanted, JoinRequest{Name: csr.Name, Outcome: outcome(csr),
		Joined: Joined{TokenID: r.TokenID, At: csr.CreationTimestamp.Time}}, true
}

// outcome returns what became of a request, whoever decided about it.
func outcome(csr *certificatesv1.CertificateSigningRequest) Outcome {
	now := Undecided
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Status == corev1.ConditionFalse:
		case c.Type == certificatesv1.CertificateApproved:
			now = Unsigned
		case c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			return Refused
		}
	}
	if now == Unsigned && len(csr.Status.Certificate) > 0 {
		return Issued
	}
	return now
}
