package disruption

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type unansweredLists struct {
	*lists
	namespace string
	began     chan struct{}
	end       chan struct{}
}

func (l *unansweredLists) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	if _, machines := into.(*v1beta1.MachineList); machines && o.Namespace == l.namespace {
		close(l.began)
		<-l.end
	}
	return l.lists.List(ctx, into, options...)
}

// Rule: locks-not-held-for-others.
func TestGrantDoesNotWaitForReadsOfOtherNamespaces(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	slow := &unansweredLists{lists: b.server, namespace: "slow", began: make(chan struct{}), end: make(chan struct{})}
	b.LiveReader = slow
	ask := func(namespace string) error {
		_, err := b.Grant(t.Context(), Asker{Kind: "MachineSet",
			NamespacedName: types.NamespacedName{Namespace: namespace, Name: "s"}},
			[]Candidate{{Machine: ms[0], Reason: v1beta1.DisruptionRollout}})
		return err
	}
	slowResult := make(chan error, 1)
	go func() { slowResult <- ask("slow") }()
	<-slow.began
	fastResult := make(chan error, 1)
	go func() {
		for i := range 32 { // Enough namespaces that some would share a lock with the slow one.
			if err := ask(fmt.Sprintf("fleet-%d", i)); err != nil {
				fastResult <- err
				return
			}
		}
		fastResult <- nil
	}()
	select {
	case err := <-fastResult:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a grant waits for the API server's answer about another namespace")
	}
	close(slow.end)
	if err := <-slowResult; err != nil {
		t.Error(err)
	}
}

func TestUnusedNamespaceIsForgotten(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	b.grant(t, "one", Candidate{Machine: ms[0], Reason: v1beta1.DisruptionRollout})
	b.Settle(ms[0], nil)
	other := func(name string) {
		who := Asker{Kind: "MachineSet", NamespacedName: types.NamespacedName{Namespace: name, Name: "s"}}
		if _, err := b.Grant(t.Context(), who, []Candidate{{Machine: ms[1], Reason: v1beta1.DisruptionRollout}}); err != nil {
			t.Fatal(err)
		}
	}
	other("soon")
	if len(b.namespaces) != 2 {
		t.Errorf("the ledger remembers %d namespaces, want 2", len(b.namespaces))
	}
	b.clock.SetTime(b.clock.Now().Add(namespaceTimeout + time.Minute))
	other("later")
	if b.namespaces["fleet"] != nil || b.namespaces["later"] == nil {
		t.Errorf("the ledger remembers %v", b.namespaces)
	}
}
