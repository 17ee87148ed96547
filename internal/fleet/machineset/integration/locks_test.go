package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// otherSets is the number of sets that must not wait for one slow set. With fewer sets, two sets that share a lock
// might go unnoticed.
const otherSets = 24

func (b *bench) setOf(d *v1beta1.MachineDeployment, name string, machines, replicas int32) {
	b.Helper()
	labels := map[string]string{"pool": name}
	if d != nil {
		labels["app"] = d.Name
	}
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: v1beta1.MachineSetSpec{Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}}}
	if d != nil {
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	}
	b.must(b.admin.Create(b.ctx, set))
	for i := range machines {
		m := b.orphan(fmt.Sprintf("%s-%d", name, i), func(m *v1beta1.Machine) {
			m.Labels = labels
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
				v1beta1.GroupVersion.WithKind("MachineSet"))}
		})
		b.play(m.Name, b.running)
	}
}

func (b *bench) pass(set string) error {
	_, err := b.r.Reconcile(b.ctx,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: set}})
	return err
}

// wantOthersServed checks that every other set can delete a machine while a deletion of the set "slow" is blocked.
func (b *bench) wantOthersServed() {
	b.Helper()
	began, end := make(chan struct{}), make(chan struct{})
	b.hooks.delete = func(c client.Client, m *v1beta1.Machine, options ...client.DeleteOption) error {
		if strings.HasPrefix(m.Name, "slow-") {
			close(began)
			<-end
		}
		return c.Delete(b.ctx, m, options...)
	}
	slowly, quickly := make(chan error, 1), make(chan error, 1)
	go func() { slowly <- b.pass("slow") }()
	<-began
	b.took()
	go func() {
		for i := range otherSets {
			if err := b.pass(fmt.Sprintf("quick%d", i)); err != nil {
				quickly <- err
				return
			}
		}
		quickly <- nil
	}()
	select {
	case err := <-quickly:
		b.must(err)
		b.wantCalls(map[string]int{"delete": otherSets})
	case <-time.After(20 * time.Second):
		b.Error("a set waits for the API server's answer about a machine of another owner")
	}
	close(end)
	b.must(<-slowly)
}

// Rule: locks-not-held-for-others.
func TestRemediationDoesNotWaitForThatOfAnotherOwner(t *testing.T) {
	b := newBench(t)
	broken := func(name string) {
		b.setOf(nil, name, 2, 2)
		b.must(b.pass(name))
		b.play(name+"-0", b.failed)
	}
	broken("slow")
	for i := range otherSets {
		broken(fmt.Sprintf("quick%d", i))
	}
	b.wantOthersServed()
}

// Rule: locks-not-held-for-others.
func TestAScaleDownDoesNotWaitForThatOfAnotherDeployment(t *testing.T) {
	b := newBench(t)
	rolling := func(name string) {
		labels := map[string]string{"app": name}
		d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
			Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To[int32](2),
				Selector: metav1.LabelSelector{MatchLabels: labels},
				Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels},
					Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}},
				Strategy: v1beta1.DeploymentStrategy{RollingUpdate: &v1beta1.RollingUpdate{
					MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}}}}
		b.must(b.admin.Create(b.ctx, d))
		b.setOf(d, name, 2, 1)
		b.setOf(d, name+"-new", 1, 1)
	}
	rolling("slow")
	for i := range otherSets {
		rolling(fmt.Sprintf("quick%d", i))
	}
	b.wantOthersServed()
}
