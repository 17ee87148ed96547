package machinedeployment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: only-template-changes-roll.
func TestPropagateCopiesFieldsThatCauseNoRollout(t *testing.T) {
	d := deployment("b")
	d.Spec.MinReadySeconds, d.Spec.DeletePolicy = 7, v1beta1.DeleteOldest
	d.Spec.Template.ObjectMeta = v1beta1.TemplateMeta{
		Labels:      map[string]string{"app": "web", "new": "label"},
		Annotations: map[string]string{"new": "annotation"},
	}
	d.Spec.Template.Spec.Node = v1beta1.NodeTemplate{
		Labels: map[string]string{"node": "label"},
		Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}},
	}
	d.Spec.Template.Spec.Timeouts.Drain = &metav1.Duration{Duration: 5}
	d.Spec.Template.Spec.Version = "v1.36.3"

	set := setOf("a", 1, noon)
	hash := set.Labels[v1beta1.LabelTemplateHash]
	set.Labels["mine"] = "kept"
	set.Labels["old"] = "label"
	set.Spec.Template.ObjectMeta.Labels["old"] = "label"
	set.Spec.Template.ObjectMeta.Annotations = map[string]string{"old": "annotation"}
	set.Spec.Template.Spec.Version = "v1.36.2"
	propagate(set, d)

	want := v1beta1.MachineTemplateSpec{
		ObjectMeta: v1beta1.TemplateMeta{
			Labels: map[string]string{"app": "web", "new": "label", v1beta1.LabelMachineDeployment: "web",
				v1beta1.LabelTemplateHash: hash},
			Annotations: map[string]string{"new": "annotation"},
		},
		Spec: v1beta1.MachineSpec{
			ClassRef: &v1beta1.LocalRef{Name: "a"},
			Version:  "v1.36.2",
			Node:     d.Spec.Template.Spec.Node,
			Timeouts: d.Spec.Template.Spec.Timeouts,
		},
	}
	if diff := cmp.Diff(want, set.Spec.Template); diff != "" {
		t.Errorf("the template differs (- expected, + got):\n%s", diff)
	}
	labels := map[string]string{"app": "web", "new": "label", "mine": "kept", v1beta1.LabelMachineDeployment: "web",
		v1beta1.LabelTemplateHash: hash, v1beta1.AutoscalerDeploymentNameLabel: "web"}
	if diff := cmp.Diff(labels, set.Labels); diff != "" {
		t.Errorf("the labels differ (- expected, + got):\n%s", diff)
	}
	if set.Spec.MinReadySeconds != 7 || set.Spec.DeletePolicy != v1beta1.DeleteOldest {
		t.Errorf("minReadySeconds is %d and deletePolicy is %s", set.Spec.MinReadySeconds, set.Spec.DeletePolicy)
	}
	again := set.DeepCopy()
	if propagate(again, d); !cmp.Equal(set, again) {
		t.Errorf("a second propagation changes the set:\n%s", cmp.Diff(set, again))
	}
}

func TestPropagateCredentials(t *testing.T) {
	form := func(provider, class, credentials string) v1beta1.MachineSpec {
		s := v1beta1.MachineSpec{Provider: provider}
		if provider != "" {
			s.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{}`)}
		}
		if class != "" {
			s.ClassRef = &v1beta1.LocalRef{Name: class}
		}
		if credentials != "" {
			s.CredentialsRef = &v1beta1.LocalRef{Name: credentials}
		}
		return s
	}
	for _, test := range []struct {
		name     string
		set, new v1beta1.MachineSpec
		want     string
	}{
		{"rotated", form("x", "", "old"), form("x", "", "new"), "new"},
		{"removed", form("x", "", "old"), form("x", "", ""), ""},
		{"of another provider", form("x", "", "old"), form("y", "", "new"), "old"},
		{"a class has its own credentials", form("", "c", ""), form("y", "", "new"), ""},
		{"an inline spec keeps its credentials", form("x", "", "old"), form("", "c", ""), "old"},
	} {
		d := deployment("")
		d.Spec.Template.Spec = test.new
		set := setOf("a", 1, noon)
		set.Spec.Template.Spec = test.set
		propagate(set, d)
		got := ""
		if ref := set.Spec.Template.Spec.CredentialsRef; ref != nil {
			got = ref.Name
		}
		if got != test.want {
			t.Errorf("%s: credentials are %q, expected %q", test.name, got, test.want)
		}
		if set.Spec.Template.Spec.Provider != test.set.Provider {
			t.Errorf("%s: the provider was changed", test.name)
		}
	}
}
