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

// Joins tells with which tokens nodes joined. It asks the API server, which keeps a request for about an hour after its
// approval; nothing later is known. Who asks while a list is under way shares the next one with all others who do.
type Joins struct {
	requests client.Reader
	// begun counts the lists that were begun.
	begun atomic.Int64
	// turn is held by the one who may list, and who may check byNode.
	turn   chan struct{}
	byNode map[string][]Joined
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

func (j *Joins) list(ctx context.Context) (map[string][]Joined, error) {
	out := map[string][]Joined{}
	for more := ""; ; {
		page := &certificatesv1.CertificateSigningRequestList{}
		err := j.requests.List(ctx, page, client.Limit(pageSize), client.Continue(more),
			client.MatchingFields{"spec.signerName": certificatesv1.KubeAPIServerClientKubeletSignerName})
		if err != nil {
			return nil, fmt.Errorf("list the target cluster's CertificateSigningRequests: %w", err)
		}
		for i := range page.Items {
			if node, how, ok := joinOf(&page.Items[i]); ok {
				out[node] = append(out[node], how)
			}
		}
		if more = page.Continue; more == "" {
			return out, nil
		}
	}
}

// joinOf returns which node a request let join, and false if it let none.
func joinOf(csr *certificatesv1.CertificateSigningRequest) (node string, how Joined, ok bool) {
	if !issued(csr) {
		return "", Joined{}, false
	}
	r := Read(csr)
	if r.Kind != Join || r.Fault != "" {
		return "", Joined{}, false
	}
	return r.Wanted, Joined{TokenID: r.TokenID, At: csr.CreationTimestamp.Time}, true
}

// issued reports whether somebody approved the request and it was signed.
func issued(csr *certificatesv1.CertificateSigningRequest) bool {
	approved := false
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Status == corev1.ConditionFalse:
		case c.Type == certificatesv1.CertificateApproved:
			approved = true
		case c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			return false
		}
	}
	return approved && len(csr.Status.Certificate) > 0
}
