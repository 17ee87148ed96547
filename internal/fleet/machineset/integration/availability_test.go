package integration

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// rollout creates a deployment in the middle of a rollout, with two sets. The bench reconciles the set "workers", whose
// machines are available. The machines of the set "other" are not available.
func rollout(b *bench, replicas, old, others int32) (other *v1beta1.MachineSet) {
	b.Helper()
	template := v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web",
		"pool": "workers"}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "fleet"},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template,
			Strategy: v1beta1.DeploymentStrategy{RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(1)),
				MaxUnavailable: ptr.To(intstr.FromInt32(0))}}},
	}
	b.must(b.admin.Create(b.ctx, d))
	owned := func(s *v1beta1.MachineSet) {
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	}
	b.newSet(old, owned, func(s *v1beta1.MachineSet) { s.Spec.Template = template })
	b.reconcile()
	b.runAll()
	b.reconcile()
	other = &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other"}, Spec: b.set().Spec}
	other.Spec.Replicas, other.Spec.Selector = ptr.To(others), metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}
	other.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web", "pool": "other"}
	owned(other)
	b.must(b.admin.Create(b.ctx, other))
	for i := range others {
		b.orphan(fmt.Sprintf("other-%d", i), func(m *v1beta1.Machine) {
			m.Labels, m.Finalizers = map[string]string{"app": "web", "pool": "other"}, []string{v1beta1.MachineFinalizer}
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other,
				v1beta1.GroupVersion.WithKind("MachineSet"))}
		})
	}
	return other
}

func (b *bench) changeDeployment(change func(*v1beta1.MachineDeployment)) {
	b.Helper()
	d := &v1beta1.MachineDeployment{}
	b.must(b.admin.Get(b.ctx, types.NamespacedName{Namespace: b.namespace, Name: "fleet"}, d))
	was := d.DeepCopy()
	change(d)
	b.must(b.admin.Patch(b.ctx, d, client.MergeFrom(was)))
}

// Rule set-keeps-deployment-available: replicas that were lowered because of an unavailable machine do not lead to the
// deletion of an available one.
func TestAnAvailableMachineWaitsForTheOthersOfTheDeployment(t *testing.T) {
	b := newBench(t)
	rollout(b, 3, 3, 1)
	b.scale(2)
	b.took()
	result := b.reconcile()
	b.wantLives(3)
	if result.RequeueAfter <= 0 {
		t.Error("nothing requeues the set when another one's machines become available")
	}
	if c := b.wantCondition(v1beta1.ConditionScalingDown, metav1.ConditionTrue,
		v1beta1.ReasonScalingDown); !strings.Contains(c.Message, "at least 3") {
		t.Errorf("the condition says %q", c.Message)
	}
	b.wantCalls(map[string]int{"delete": 0, "patch status": 1})
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 0, "patch status": 0, "live list *v1beta1.MachineList": 0})

	b.play("other-0", b.running)
	b.reconcile()
	b.wantLives(2)
	b.reconcile()
	b.wantCalls(map[string]int{"delete": 1})
}

// Rule: set-keeps-deployment-available.
func TestAStaleCacheCostsNoAvailableMachine(t *testing.T) {
	for name, stale := range map[string]func(*bench){
		"of the deployment": func(b *bench) {
			b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](4) })
			b.hooks.deployment = func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](3) }
		},
		"of another set's machines, after a start": func(b *bench) {
			was := b.machine("other-0")
			b.must(b.admin.Delete(b.ctx, b.machine("other-0")))
			b.hooks.machines = func(list *v1beta1.MachineList) {
				for i := range list.Items {
					if list.Items[i].Name == was.Name {
						list.Items[i] = *was
					}
				}
			}
			b.hooks.seen = func() string { return "1" }
			b.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			rollout(b, 3, 3, 1)
			b.play("other-0", b.running)
			b.scale(2)
			stale(b)
			b.took()
			if result := b.reconcile(); result.RequeueAfter <= 0 {
				t.Error("the set does not look again")
			}
			b.wantLives(3)
			b.wantCalls(map[string]int{"delete": 0})
		})
	}
}

// Rule: set-keeps-deployment-available.
func TestADeploymentBlocksNoDeletionForEver(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"deleted": func(b *bench) {
			b.must(b.admin.Delete(b.ctx, &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace,
				Name: "fleet"}}))
		},
		"scaled to none": func(b *bench) {
			b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](0) })
		},
		"of strategy Recreate": func(b *bench) {
			b.changeDeployment(func(d *v1beta1.MachineDeployment) {
				d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRecreate}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			rollout(b, 3, 3, 1)
			b.scale(0)
			b.reconcile()
			b.wantLives(3)
			end(b)
			b.reconcile()
			b.wantLives(0)
		})
	}
}

// Rule: set-keeps-surge.
func TestNoMachineIsMadeBeyondWhatTheDeploymentMayHave(t *testing.T) {
	b := newBench(t)
	rollout(b, 3, 3, 1)
	b.play("other-0", b.running)
	b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](2) })
	b.play(b.lives()[0].Name, b.failed)
	if result := b.reconcile(); result.RequeueAfter <= 0 {
		t.Error("nothing requeues the set when the deployment has fewer machines")
	}
	b.wantLives(2)
	if c := b.wantCondition(v1beta1.ConditionScalingUp, metav1.ConditionTrue,
		v1beta1.ReasonScalingUp); !strings.Contains(c.Message, "replicas + maxSurge") {
		t.Errorf("the condition says %q", c.Message)
	}
	b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	b.reconcile()
	b.wantLives(3)

	b.must(b.admin.Delete(b.ctx, &b.lives()[0]))
	b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false })
	b.reconcile()
	b.wantLives(2)
	b.changeDeployment(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To[int32](3) })
	b.reconcile()
	b.wantLives(3)
}
