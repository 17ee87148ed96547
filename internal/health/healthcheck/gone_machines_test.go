package healthcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// A machine that fails and disappears between two passes is recorded exactly once.
//
// Rule: remediation-retries-limited.
func TestMachineDeletedBetweenPassesCounts(t *testing.T) {
	owned := func(s *Subject) {
		yes := true
		s.Machine.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", UID: "set", Controller: &yes}}
	}
	failed := func(s *Subject) {
		s.Machine.Status.Phase, s.Machine.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureJoinClusterTimeout
	}
	r := New(Options{})
	r.state.predecessors = map[types.UID][]Predecessor{"set": {{UID: "uid-b", Retries: 1, At: minutes(50)}}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	for _, m := range []*v1beta1.Machine{created("a", 30, owned, failed, after(1, "x"), deleted(60)),
		created("b", 30, owned, failed, deleted(50)), created("c", 30, owned, deleted(60)),
		created("d", 30, failed, deleted(60))} {
		r.recordingGone(&handler.EnqueueRequestForObject{}).Delete(t.Context(), event.DeleteEvent{Object: m}, queue)
	}
	found := r.state.takeGone()["set"]
	if len(found) != 2 || found[1] != (Predecessor{UID: "uid-a", Retries: 2, At: minutes(60)}) || queue.Len() == 0 {
		t.Errorf("predecessors %v, %d requests", found, queue.Len())
	}
	if again := r.state.takeGone()["set"]; len(again) != 1 {
		t.Errorf("taken again: %v", again)
	}
}
