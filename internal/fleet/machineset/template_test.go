package machineset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: unique-machine-names.
func TestNewMachineIsComplete(t *testing.T) {
	set := aSet(1, func(s *v1beta1.MachineSet) {
		s.Spec.Template.ObjectMeta.Labels[v1beta1.LabelTemplateHash] = "abc"
		s.Spec.Template.ObjectMeta.Annotations = map[string]string{"team": "red"}
		s.Spec.Template.Spec.ProviderID = "sim:///smuggled"
		s.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "one"}
	})
	m := templateOf(set).machine("sim")
	wantMeta := metav1.ObjectMeta{
		Namespace: "fleet",
		Labels: map[string]string{
			"pool": "workers", v1beta1.LabelTemplateHash: "abc", v1beta1.LabelMachineSet: "workers",
			v1beta1.LabelProvider: "sim", v1beta1.LabelTypeVersion: "v1beta1",
		},
		Annotations: map[string]string{
			"team":                                "red",
			v1beta1.AnnotationLastAppliedTemplate: `{"labels":["machinist.dev/machine-set","machinist.dev/template-hash","machinist.dev/type-version","pool"],"annotations":["team"],"nodeLabels":["tier"]}`,
		},
		Finalizers: []string{v1beta1.MachineFinalizer},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "machinist.dev/v1beta1", Kind: "MachineSet", Name: "workers", UID: "set-uid", Controller: ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}
	if diff := cmp.Diff(wantMeta, m.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if m.Spec.ProviderID != "" || m.Spec.ClassRef.Name != "small" || m.Spec.Node.Labels["tier"] != "one" {
		t.Errorf("spec: %+v", m.Spec)
	}
	if _, ok := templateOf(set).machine("").Labels[v1beta1.LabelProvider]; ok {
		t.Error("the machine of an unknown provider has the provider's label")
	}
	if templateOf(set).propagate(m) != nil {
		t.Error("a new machine is not in sync with its template")
	}
}

// Rule: owner-reference-repaired.
func TestWrongOwnerReferenceIsRepaired(t *testing.T) {
	set := aSet(1)
	m := templateOf(set).machine("")
	want := m.OwnerReferences[0]
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}
	m.OwnerReferences = append(m.OwnerReferences, other)
	if got := templateOf(set).propagate(m); got != nil {
		t.Errorf("a machine with another owner too is changed: %v", got.OwnerReferences)
	}
	m.OwnerReferences[0].Kind = "Unknown"
	got := templateOf(set).propagate(m)
	if got == nil || cmp.Diff([]metav1.OwnerReference{want, other}, got.OwnerReferences) != "" {
		t.Errorf("got machine %v, want the owner references %v and %v", got, want, other)
	}
}

// Rule: labels-reach-machines-in-place.
func TestTemplatePropagatesInPlace(t *testing.T) {
	before := aSet(1, func(s *v1beta1.MachineSet) {
		s.Spec.Template = v1beta1.MachineTemplateSpec{
			ObjectMeta: v1beta1.TemplateMeta{
				Labels:      map[string]string{"pool": "workers", "dropped": "x", "kept": "old"},
				Annotations: map[string]string{"note/dropped": "x", "note/kept": "old"},
			},
			Spec: v1beta1.MachineSpec{
				ClassRef: &v1beta1.LocalRef{Name: "small"}, Version: "v1.36.1",
				Node: v1beta1.NodeTemplate{
					Labels: map[string]string{"n-dropped": "x", "n-kept": "old"}, Annotations: map[string]string{"na-dropped": "x"},
					Taints: []corev1.Taint{{Key: "t-dropped", Effect: corev1.TaintEffectNoSchedule},
						{Key: "t-kept", Value: "old", Effect: corev1.TaintEffectNoSchedule}},
					StartupTaints:  []corev1.Taint{{Key: "s-dropped", Effect: corev1.TaintEffectNoExecute}},
					ReadinessGates: []v1beta1.NodeReadinessGate{{ConditionType: "Dropped"}, {ConditionType: "Kept"}},
				},
				Timeouts: v1beta1.MachineTimeouts{Drain: &metav1.Duration{Duration: time.Hour}},
				Drain:    v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{{Name: "dropped", Behavior: v1beta1.DrainBehaviorSkip}}},
				LifecycleHooks: v1beta1.LifecycleHooks{
					PreDrain: []v1beta1.LifecycleHook{{Name: "h.example/dropped", Owner: "x"}, {Name: "h.example/kept", Owner: "old"},
						{Name: "h.example/done", Owner: "x"}},
				},
			},
		}
	})
	m := templateOf(before).machine("sim")
	m.Name, m.Spec.ProviderID = "a", "sim:///a"
	m.Labels["mine"], m.Annotations["mine"] = "x", "x"
	m.Spec.Node.Labels["mine"] = "x"
	m.Spec.Node.Taints = append(m.Spec.Node.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	// The owner of the hook h.example/done has removed it, and another client has added a hook.
	m.Spec.LifecycleHooks.PreDrain = append(m.Spec.LifecycleHooks.PreDrain[:2:2],
		v1beta1.LifecycleHook{Name: "h.example/mine", Owner: "me"})

	if templateOf(before).propagate(m) != nil {
		t.Fatal("the machine is out of sync because of keys of other writers, or of a hook that is done")
	}

	after := before.DeepCopy()
	after.Spec.Template = v1beta1.MachineTemplateSpec{
		ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers", "kept": "new", "added": "x"},
			Annotations: map[string]string{"note/kept": "new"}},
		Spec: v1beta1.MachineSpec{
			ClassRef: &v1beta1.LocalRef{Name: "other"}, Version: "v1.36.2", UserDataRef: &v1beta1.UserDataRef{Name: "other"},
			CredentialsRef: &v1beta1.LocalRef{Name: "other"},
			Node: v1beta1.NodeTemplate{
				Labels:         map[string]string{"n-kept": "new", "n-added": "x"},
				Taints:         []corev1.Taint{{Key: "t-kept", Value: "new", Effect: corev1.TaintEffectNoSchedule}},
				StartupTaints:  []corev1.Taint{{Key: "s-added", Effect: corev1.TaintEffectNoExecute}},
				ReadinessGates: []v1beta1.NodeReadinessGate{{ConditionType: "Kept"}, {ConditionType: "Added"}},
			},
			Timeouts: v1beta1.MachineTimeouts{Drain: &metav1.Duration{Duration: 2 * time.Hour},
				Creation: &metav1.Duration{Duration: time.Minute}},
			Drain: v1beta1.MachineDrain{PodsWithVolumes: v1beta1.VolumePodsOneAtATime,
				Rules: []v1beta1.DrainRule{{Name: "added", Behavior: v1beta1.DrainBehaviorDrain, Order: 5}}},
			LifecycleHooks: v1beta1.LifecycleHooks{
				PreDrain: []v1beta1.LifecycleHook{{Name: "h.example/kept", Owner: "new"}, {Name: "h.example/done", Owner: "x"},
					{Name: "h.example/added", Owner: "x"}},
				PreTerminate: []v1beta1.LifecycleHook{{Name: "h.example/last", Owner: "x"}},
			},
		},
	}
	original := m.DeepCopy()
	got := templateOf(after).propagate(m)
	if diff := cmp.Diff(original, m); diff != "" {
		t.Fatalf("propagate has changed its argument:\n%s", diff)
	}
	want := original.DeepCopy()
	want.Labels = map[string]string{
		"pool": "workers", "kept": "new", "added": "x", "mine": "x",
		v1beta1.LabelMachineSet: "workers", v1beta1.LabelProvider: "sim", v1beta1.LabelTypeVersion: "v1beta1",
	}
	want.Annotations = map[string]string{"note/kept": "new", "mine": "x",
		v1beta1.AnnotationLastAppliedTemplate: templateOf(after).annotations[v1beta1.AnnotationLastAppliedTemplate]}
	want.Spec.Node = v1beta1.NodeTemplate{
		Labels: map[string]string{"n-kept": "new", "n-added": "x", "mine": "x"}, Annotations: map[string]string{},
		Taints: []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule},
			{Key: "t-kept", Value: "new", Effect: corev1.TaintEffectNoSchedule}},
		StartupTaints:  []corev1.Taint{{Key: "s-added", Effect: corev1.TaintEffectNoExecute}},
		ReadinessGates: []v1beta1.NodeReadinessGate{{ConditionType: "Kept"}, {ConditionType: "Added"}},
	}
	want.Spec.Timeouts = after.Spec.Template.Spec.Timeouts
	want.Spec.Drain = after.Spec.Template.Spec.Drain
	want.Spec.LifecycleHooks = v1beta1.LifecycleHooks{
		PreDrain: []v1beta1.LifecycleHook{{Name: "h.example/kept", Owner: "new"}, {Name: "h.example/mine", Owner: "me"},
			{Name: "h.example/added", Owner: "x"}},
		PreTerminate: []v1beta1.LifecycleHook{{Name: "h.example/last", Owner: "x"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if templateOf(after).propagate(got) != nil {
		t.Error("the machine is not in sync after it was propagated to")
	}

	original.DeletionTimestamp = &metav1.Time{Time: epoch}
	got = templateOf(after).propagate(original)
	if hooks := got.Spec.LifecycleHooks; len(hooks.PreTerminate) != 0 || len(hooks.PreDrain) != 2 {
		t.Errorf("a machine that is being deleted got new hooks, or kept one that the template lost: %+v", hooks)
	}
}

func TestPropagationRestoresFieldsOfTheTemplate(t *testing.T) {
	set := aSet(1, func(s *v1beta1.MachineSet) {
		s.Spec.Template.ObjectMeta.Labels["kept"] = "x"
		s.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "one"}
		s.Spec.Template.Spec.Node.ReadinessGates = []v1beta1.NodeReadinessGate{{ConditionType: "NetworkReady"}}
		s.Spec.Template.Spec.Drain = v1beta1.MachineDrain{PodsWithVolumes: v1beta1.VolumePodsOneAtATime,
			SingleReplicas: v1beta1.SingleReplicasRestart,
			Rules:          []v1beta1.DrainRule{{Name: "jobs", Behavior: v1beta1.DrainBehaviorWaitCompleted}}}
		s.Spec.Template.Spec.Node.Taints = []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}
		s.Spec.Template.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "h.example/a", Owner: "x"}}
	})
	for name, spoil := range map[string]func(*v1beta1.Machine){
		"label":               func(m *v1beta1.Machine) { delete(m.Labels, "kept") },
		"drain rule":          func(m *v1beta1.Machine) { m.Spec.Drain.Rules = nil },
		"eviction of volumes": func(m *v1beta1.Machine) { m.Spec.Drain.PodsWithVolumes = v1beta1.VolumePodsParallel },
		"single replicas":     func(m *v1beta1.Machine) { m.Spec.Drain.SingleReplicas = "" },
		"gate":                func(m *v1beta1.Machine) { m.Spec.Node.ReadinessGates = nil },
		"record":              func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationLastAppliedTemplate) },
		"invalid JSON":        func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationLastAppliedTemplate] = "{" },
		"node label":          func(m *v1beta1.Machine) { m.Spec.Node.Labels["tier"] = "two" },
		"taint":               func(m *v1beta1.Machine) { m.Spec.Node.Taints = nil },
		"timeout":             func(m *v1beta1.Machine) { m.Spec.Timeouts.Drain = &metav1.Duration{Duration: time.Second} },
		"hook's owner":        func(m *v1beta1.Machine) { m.Spec.LifecycleHooks.PreDrain[0].Owner = "me" },
	} {
		m := templateOf(set).machine("")
		want := m.DeepCopy()
		spoil(m)
		got := templateOf(set).propagate(m)
		if got == nil {
			t.Errorf("%s: not restored", name)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	m := templateOf(set).machine("")
	m.Spec.Timeouts.Drain = &metav1.Duration{Duration: v1beta1.DefaultDrainTimeout}
	if templateOf(set).propagate(m) != nil {
		t.Error("an explicit default value puts the machine out of sync")
	}
}
