package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// A cache may still contain a deleted deployment. The deployment must not create a set then, because no controller
// would delete the set.
//
// Rule: surge-and-unavailable-kept.
func TestADeploymentThatIsGoneGetsNoSet(t *testing.T) {
	b := newBench(t)
	b.create(3)
	d := b.deployment()
	b.must(b.api.Delete(b.ctx, d, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	b.hooks.deployment = func(cached *v1beta1.MachineDeployment) { *cached = *d.DeepCopy() }
	if _, err := b.try("web"); err != nil {
		t.Fatal(err)
	}
	if sets := b.sets(); len(sets) > 0 {
		t.Errorf("it got %d sets", len(sets))
	}
}

// Rule: surge-and-unavailable-kept.
func TestAProcessThatBeginsWithAnOldCacheTakesNothingBack(t *testing.T) {
	b := newBench(t)
	b.create(3)
	b.settle()
	old := b.deployment()
	b.change(replicas(1))
	b.settle()
	b.restart()
	b.hooks.deployment = func(cached *v1beta1.MachineDeployment) { *cached = *old.DeepCopy() }
	b.reconcile()
	b.wantReplicas(map[string]int32{"a": 1})
	b.hooks.deployment = nil
	b.settle()
	b.wantReplicas(map[string]int32{"a": 1})
}
