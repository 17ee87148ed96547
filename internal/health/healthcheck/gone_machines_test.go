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

// Rule: remediation-retries-limited. A machine that failed and is gone before a pass sees it leaves a vacancy, once.
func TestAMachineThatIsGoneBetweenPassesCounts(t *testing.T) {
	owned := func(s *Subject) {
		yes := true
		s.Machine.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", UID: "set", Controller: &yes}}
	}
	failed := func(s *Subject) {
		s.Machine.Status.Phase, s.Machine.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureJoinClusterTimeout
	}
	r := New(Options{})
	r.state.vacancies = map[types.UID][]Vacancy{"set": {{UID: "uid-b", Row: 1, At: minutes(50)}}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	for _, m := range []*v1beta1.Machine{made("a", 30, owned, failed, after(1, "x"), deleted(60)),
		made("b", 30, owned, failed, deleted(50)), made("c", 30, owned, deleted(60)), made("d", 30, failed, deleted(60))} {
		r.rememberingGone(&handler.EnqueueRequestForObject{}).Delete(t.Context(), event.DeleteEvent{Object: m}, queue)
	}
	found := r.state.takeGone()["set"]
	if len(found) != 2 || found[1] != (Vacancy{UID: "uid-a", Row: 2, At: minutes(60)}) || queue.Len() == 0 {
		t.Errorf("vacancies %v, %d requests", found, queue.Len())
	}
	if again := r.state.takeGone()["set"]; len(again) != 1 {
		t.Errorf("taken again: %v", again)
	}
}
