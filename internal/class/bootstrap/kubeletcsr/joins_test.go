package kubeletcsr

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rule: node-paired-by-token.
func TestJoinOf(t *testing.T) {
	t.Parallel()
	requested := time.Unix(1700000000, 0)
	sign := func(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
		csr.CreationTimestamp = metav1.NewTime(requested)
		csr.Status.Certificate = []byte("signed")
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
		return csr
	}
	node, join, ok := joinOf(sign(csrtest.ForClient("n").ByToken(t)))
	if !ok || node != "n" || join != (JoinRequest{Name: join.Name, Outcome: OutcomeIssued, JoinCertificate: JoinCertificate{TokenID: "abcdef", RequestTime: requested}}) {
		t.Fatalf("joinOf = %q, %+v, %t", node, join, ok)
	}
	for name, csr := range map[string]*certificatesv1.CertificateSigningRequest{
		"not a bootstrapper": sign(csrtest.ForClient("n").ByUser(t, "system:bootstrap:abcdef")),
		"by a node":          sign(csrtest.ForClient("n").ByNode(t, "n")),
		"by another user":    sign(csrtest.ForClient("n").ByUser(t, "alice", "system:bootstrappers")),
		"not for a node":     sign(csrtest.ForClient("n", csrtest.CommonName("n")).ByToken(t)),
		"with an additional group": sign(csrtest.ForClient("n",
			csrtest.Organizations("system:nodes", "system:masters")).ByToken(t)),
		"a serving certificate": sign(csrtest.ForServing("n", []string{"n"}, nil).ByToken(t)),
		"with other usages": sign(csrtest.ForClient("n",
			csrtest.Usages(certificatesv1.UsageClientAuth, certificatesv1.UsageCertSign)).ByToken(t)),
		"by an invalid token id": sign(csrtest.ForClient("n").ByUser(t, "system:bootstrap:abc", "system:bootstrappers")),
	} {
		if node, join, ok := joinOf(csr); ok {
			t.Errorf("%s: joinOf = %q, %+v", name, node, join)
		}
	}
	for name, tc := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want Outcome
	}{
		"not decided":               {csrtest.ForClient("n").ByToken(t), OutcomeUndecided},
		"condition Approved=False":  {withdrawn(sign(csrtest.ForClient("n").ByToken(t))), OutcomeUndecided},
		"approved, not signed":      {unsigned(sign(csrtest.ForClient("n").ByToken(t))), OutcomeUnsigned},
		"approved, and then failed": {failed(sign(csrtest.ForClient("n").ByToken(t))), OutcomeRefused},
	} {
		if node, join, ok := joinOf(tc.csr); !ok || node != "n" || join.Outcome != tc.want {
			t.Errorf("%s: joinOf = %q, %+v, %t, want outcome %d", name, node, join, ok, tc.want)
		}
	}
}

func failed(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Conditions = append(csr.Status.Conditions,
		certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
			Status: corev1.ConditionTrue})
	return csr
}

func unsigned(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Certificate = nil
	return csr
}

func withdrawn(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr.Status.Conditions[0].Status = corev1.ConditionFalse
	return csr
}

type pagedReader struct {
	client.Reader
	requests  []certificatesv1.CertificateSigningRequest
	listCalls atomic.Int32
	// If the channel proceed is not nil, each call of List waits until it receives from the channel.
	proceed chan struct{}
	err     error
}

func (p *pagedReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	n := len(o.Continue)
	if n == 0 {
		p.listCalls.Add(1)
	}
	if p.proceed != nil {
		<-p.proceed
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

// A thousand joining machines need only a few lists. A list that is already in progress is not the answer to a new
// call, because it may lack the newest requests.
func TestJoinsShareLists(t *testing.T) {
	t.Parallel()
	server := &pagedReader{}
	for _, name := range []string{"a", "b"} {
		csr := csrtest.ForClient(name).ByToken(t)
		csr.Status.Certificate = []byte("signed")
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
		server.requests = append(server.requests, *csr)
	}
	synctest.Test(t, func(t *testing.T) {
		server.proceed = make(chan struct{})
		joins := NewJoinFinder(server)
		var all sync.WaitGroup
		ask := func(node string) {
			if found, err := joins.Find(t.Context(), node); err != nil || len(found) != 1 {
				t.Errorf("joins of %s are %v, %v", node, found, err)
			}
		}
		all.Go(func() { ask("a") })
		synctest.Wait()
		for range 20 {
			all.Go(func() { ask("b") })
		}
		synctest.Wait()
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := joins.Find(canceled, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a call with a canceled context returned %v", err)
		}
		close(server.proceed)
		all.Wait()
		if n := server.listCalls.Load(); n != 2 {
			t.Errorf("%d lists for the calls before and during the first list, want 2", n)
		}

		server.err = errors.New("unreachable")
		if _, err := joins.Find(t.Context(), "a"); !errors.Is(err, server.err) {
			t.Errorf("error %v, want %v", err, server.err)
		}
		server.err = nil
		ask("a")
		ask("a")
		if n := server.listCalls.Load(); n != 5 {
			t.Errorf("%d lists, want one for each call outside of another list", n)
		}
	})
}
