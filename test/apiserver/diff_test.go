package apiserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func TestMergePatchOfEqualsMergeFrom(t *testing.T) {
	k, err := builtRegistry().kindOf(&v1beta1.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1beta1.Machine){
		"nothing":    func(*v1beta1.Machine) {},
		"labels":     func(m *v1beta1.Machine) { m.Labels = map[string]string{"x": "y"} },
		"no labels":  func(m *v1beta1.Machine) { m.Labels = nil },
		"finalizers": func(m *v1beta1.Machine) { m.Finalizers = []string{"example.com/a"} },
		"version":    func(m *v1beta1.Machine) { m.ResourceVersion = "7" },
		"spec":       func(m *v1beta1.Machine) { m.Spec.Provider, m.Spec.ProviderSpec.Raw = "", []byte(`{"b":{"c":1.5}}`) },
		"no spec":    func(m *v1beta1.Machine) { m.Spec = v1beta1.MachineSpec{} },
		"timeouts":   func(m *v1beta1.Machine) { m.Spec.Timeouts.Drain = &metav1.Duration{Duration: time.Minute} },
		"condition":  func(m *v1beta1.Machine) { m.Status.Conditions[1].Status = "False" },
		"no status":  func(m *v1beta1.Machine) { m.Status = v1beta1.MachineStatus{} },
		"kind":       func(m *v1beta1.Machine) { m.Kind = "Machine" },
		"taints": func(m *v1beta1.Machine) {
			m.Spec.Node.Taints = []corev1.Taint{{Key: "a", TimeAdded: &metav1.Time{Time: epoch}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := machine("a")
			before.ResourceVersion = "5"
			setRunning(before)
			after := before.DeepCopy()
			change(after)
			for _, patch := range []client.Patch{client.MergeFrom(before),
				client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})} {
				data, err := patch.Data(after)
				if err != nil {
					t.Fatal(err)
				}
				want, err := decodePatch(data)
				if err != nil {
					t.Fatal(err)
				}
				got, ok := k.mergePatchOf(patch, after)
				if !ok {
					t.Fatal("cannot read the fields of the patch: client.MergeFrom may have changed")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
