package migration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

func TestPostponedRecordIsReadBack(t *testing.T) {
	three := int32(3)
	for name, text := range map[string]string{"nothing": "", "garbage": "{", "another type": `{"replicas":"many"}`,
		"partly valid": `{"delete":true,"annotations":5}`} {
		object := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1beta1.AnnotationAfterMigration: text}}}
		if got := postponedFor(object); got.Annotations != nil || got.Replicas != nil || got.Remediation != "" || got.Delete {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	object := &v1beta1.MachineSet{}
	(&planner{}).postpone(object, postponed{Annotations: map[string]string{"a": "b"}, Replicas: &three, Delete: true})
	if got := postponedFor(object); got.Annotations["a"] != "b" || *got.Replicas != 3 || !got.Delete {
		t.Errorf("the record is read as %+v", got)
	}
}

func TestAlternativeNamesFitAndDiffer(t *testing.T) {
	long := strings.Repeat("a", v1beta1.MaxMachineNameLength-12) + "-bcdefghijkl"
	for name, uid := range map[string]types.UID{"worker-1": "0b5ec2de-0000-4000-8000-000000000001", long: "0b5ec2de-1",
		"worker-2": "short"} {
		got := alternativeName(name, uid)
		if len(got) > v1beta1.MaxMachineNameLength || got == name || strings.Contains(got, "--") {
			t.Errorf("the alternative to %s is %s, which has %d characters", name, got, len(got))
		}
		if got == alternativeName(name, "1"+uid) || got != alternativeName(name, uid) {
			t.Errorf("the alternative to %s, %s, does not depend on the UID alone", name, got)
		}
	}
}

func TestOldUIDIsReadFromTheOrigin(t *testing.T) {
	f := fleetOf(t, "cluster.k8s.io", "healthy")
	old := f.named("MachineSet", "alone")
	object := &v1beta1.MachineSet{}
	if got := oldUID(object); got != "" {
		t.Errorf("an object that no migration created has the old UID %s", got)
	}
	p := f.planner()
	p.plan = &plan{oldNames: map[client.Object]string{}}
	p.markFrom(object, conversion{old: old, displayName: nameOf(old)})
	if got := oldUID(object); got != old.GetUID() {
		t.Errorf("the old UID is %s, expected %s", got, old.GetUID())
	}
}

// A copied Machine has all fields that its set would write, so that the set does not change the Machine. It also has
// the labels and annotations of the old machine.
//
// Rule: migration-copies-in-sync.
func TestCopyIsInSyncWithItsSet(t *testing.T) {
	for _, group := range []string{provider.SourceClusterK8s, provider.SourceGardener, provider.SourceOpenShift} {
		f := fleetOf(t, group, "healthy")
		for _, o := range f.objects {
			if f.role(o) == source.RoleMachine {
				o.SetLabels(mergeMaps(map[string]string{"own": "label"}, o.GetLabels()))
				o.SetAnnotations(mergeMaps(map[string]string{"example.com/own": "annotation"}, o.GetAnnotations()))
			}
		}
		plan := f.plan()
		plan.objects(f.migration, group)
		checked := 0
		for _, m := range plan.machines {
			if m.set == nil {
				continue
			}
			m.set.object.Spec.Template.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "example.com/wait",
				Owner: "someone"}}
			m.set.object.Spec.Template.Spec.Node.StartupTaints = []corev1.Taint{{Key: "starting", Effect: "NoSchedule"}}
			m.object.Spec.Node.Taints = append(m.object.Spec.Node.Taints, corev1.Taint{Key: "own", Effect: "NoExecute"})
			got := m.newMachine(f.migration, m.set.object, origin(group, m.old))
			checked++
			if !machineset.InSync(m.set.object, got) {
				t.Errorf("%s: the set would change the copy of %s", group, got.Name)
			}
			if !metav1.IsControlledBy(got, m.set.object) || got.Labels["own"] != "label" ||
				got.Annotations["example.com/own"] != "annotation" {
				t.Errorf("%s: %s has the owners %v, labels %v and annotations %v", group, got.Name, got.OwnerReferences,
					got.Labels, got.Annotations)
			}
			if n := len(got.Spec.Node.Taints); got.Spec.Node.Taints[n-1].Key != "own" {
				t.Errorf("%s: the taints are %v", group, got.Spec.Node.Taints)
			}
			if len(got.Spec.LifecycleHooks.PreDrain) > 0 {
				t.Errorf("%s: a hook whose owner is done with the old machine is set again: %v", group,
					got.Spec.LifecycleHooks.PreDrain)
			}
			if !hasKey(got.Annotations, v1beta1.AnnotationPaused) || got.Spec.ProviderID != m.instance.ProviderID ||
				!slices.Equal(got.Finalizers, []string{v1beta1.MachineFinalizer}) {
				t.Errorf("%s: %s is not paused, or without its instance or finalizer", group, got.Name)
			}
		}
		if checked == 0 {
			t.Errorf("%s: no machine of the sample is in a set", group)
		}
	}
}
