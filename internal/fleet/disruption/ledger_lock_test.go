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

// unansweredLists answers lists of machines of a namespace only when that is closed.
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
func TestAGrantDoesNotWaitForTheReadsOfAnotherNamespace(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	slow := &unansweredLists{lists: b.server, namespace: "slow", began: make(chan struct{}), end: make(chan struct{})}
	b.Live = slow
	ask := func(namespace string) error {
		_, err := b.Grant(t.Context(), Asker{Kind: "MachineSet",
			NamespacedName: types.NamespacedName{Namespace: namespace, Name: "s"}},
			[]Candidate{{Machine: ms[0], Reason: v1beta1.DisruptionRollout}})
		return err
	}
	slowly := make(chan error, 1)
	go func() { slowly <- ask("slow") }()
	<-slow.began
	quickly := make(chan error, 1)
	go func() {
		for i := range 32 { // More than a few, lest they have other locks by chance.
			if err := ask(fmt.Sprintf("fleet-%d", i)); err != nil {
				quickly <- err
				return
			}
		}
		quickly <- nil
	}()
	select {
	case err := <-quickly:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a grant waits for the API server's answer about another namespace")
	}
	close(slow.end)
	if err := <-slowly; err != nil {
		t.Error(err)
	}
}

func TestANamespaceThatIsNotNeededIsForgotten(t *testing.T) {
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
		t.Errorf("remembers %d namespaces, want 2", len(b.namespaces))
	}
	b.clock.SetTime(b.clock.Now().Add(forgetNamespace + time.Minute))
	other("later")
	if b.namespaces["fleet"] != nil || b.namespaces["later"] == nil {
		t.Errorf("remembers %v", b.namespaces)
	}
}
