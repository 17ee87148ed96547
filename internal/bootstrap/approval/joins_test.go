package approval

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rule: node-paired-by-token.
func TestJoinsAreTheCertificatesThatWereIssuedForTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	joins := NewJoins(w.WithWatch)
	wantJoins := func(node string, want ...string) {
		t.Helper()
		got, err := joins.Of(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, j := range got {
			ids = append(ids, j.TokenID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("node %s was joined with the tokens %q, want %q", node, ids, want)
		}
	}
	m := w.machine("m")
	wantJoins(w.node("m"))
	token := w.token(m)
	id, _, _ := strings.Cut(token.Value, ".")
	w.post(w.asToken(token), forClient(w.node("stranger")))
	w.wantSigned(w.post(w.asToken(token), forClient(w.node("m"))), ReasonMachineJoins)
	w.pair(m)
	w.wantSigned(w.post(w.asNode(w.node("m")), forClient(w.node("m"))), ReasonNodeRenews)
	wantJoins(w.node("m"), id)
	wantJoins(w.node("stranger"))
}

// Rule: node-paired-by-token.
func TestWhatIsNoJoin(t *testing.T) {
	t.Parallel()
	asked := time.Unix(1700000000, 0)
	sign := func(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
		csr.CreationTimestamp = metav1.NewTime(asked)
		csr.Status.Certificate = []byte("signed")
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
		return csr
	}
	node, join, ok := joinOf(sign(forClient("n").byToken(t)))
	if !ok || node != "n" || join != (Join{TokenID: "abcdef", At: asked}) {
		t.Fatalf("joinOf = %q, %+v, %t", node, join, ok)
	}
	for name, csr := range map[string]*certificatesv1.CertificateSigningRequest{
		"not decided":           forClient("n").byToken(t),
		"by no bootstrapper":    sign(forClient("n").by(t, "system:bootstrap:abcdef")),
		"by a node":             sign(forClient("n").byNode(t, "n")),
		"by a person":           sign(forClient("n").by(t, "alice", "system:bootstrappers")),
		"for no node":           sign(forClient("n", commonName("n")).byToken(t)),
		"for more than a node":  sign(forClient("n", organizations("system:nodes", "system:masters")).byToken(t)),
		"a serving certificate": sign(forServing("n", []string{"n"}, nil).byToken(t)),
		"with other usages": sign(forClient("n",
			usages(certificatesv1.UsageClientAuth, certificatesv1.UsageCertSign)).byToken(t)),
		"approved and failed":     failed(sign(forClient("n").byToken(t))),
		"approved, not signed":    bare(sign(forClient("n").byToken(t))),
		"approved in false":       withdrawn(sign(forClient("n").byToken(t))),
		"of no token that is one": sign(forClient("n").by(t, "system:bootstrap:abc", "system:bootstrappers")),
	} {
		if node, join, ok := joinOf(csr); ok {
			t.Errorf("%s: joinOf = %q, %+v", name, node, join)
		}
	}
}

func failed(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Conditions = append(csr.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
			Status: corev1.ConditionTrue})
	return csr
}

func bare(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Certificate = nil
	return csr
}

func withdrawn(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Conditions[0].Status = corev1.ConditionFalse
	return csr
}

// pages is a server of certificate requests, in pages of one.
type pages struct {
	client.Reader
	requests []certificatesv1.CertificateSigningRequest
	// lists counts those that began. Each waits for hold, if that is set.
	lists atomic.Int32
	hold  chan struct{}
	err   error
}

func (p *pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	n := len(o.Continue)
	if n == 0 {
		p.lists.Add(1)
	}
	if p.hold != nil {
		<-p.hold
	}
	if p.err != nil {
		return p.err
	}
	out := list.(*certificatesv1.CertificateSigningRequestList)
	out.Items = p.requests[n : n+1]
	if n+1 < len(p.requests) {
		out.Continue = strings.Repeat("x", n+1)
	}
	return nil
}

// A thousand machines that join at once are not a thousand lists; but there is none answered from before it asked.
func TestListsOfJoinsAreShared(t *testing.T) {
	t.Parallel()
	server := &pages{}
	for _, name := range []string{"a", "b"} {
		csr := forClient(name).byToken(t)
		csr.Status.Certificate = []byte("signed")
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
		server.requests = append(server.requests, *csr)
	}
	synctest.Test(t, func(t *testing.T) {
		server.hold = make(chan struct{})
		joins := NewJoins(server)
		var all sync.WaitGroup
		ask := func(node string) {
			if found, err := joins.Of(t.Context(), node); err != nil || len(found) != 1 {
				t.Errorf("joins of %s are %v, %v", node, found, err)
			}
		}
		all.Go(func() { ask("a") })
		synctest.Wait()
		for range 20 {
			all.Go(func() { ask("b") })
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := joins.Of(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait any more got %v", err)
		}
		close(server.hold)
		all.Wait()
		if n := server.lists.Load(); n != 2 {
			t.Errorf("%d lists for those who asked before and during the first", n)
		}

		server.err = errors.New("away")
		if _, err := joins.Of(t.Context(), "a"); !errors.Is(err, server.err) {
			t.Errorf("error %v", err)
		}
		server.err = nil
		ask("a")
		ask("a")
		if n := server.lists.Load(); n != 5 {
			t.Errorf("%d lists in all, want one for each who asked alone", n)
		}
	})
}
