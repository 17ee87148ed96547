package migration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func TestManifestsAreAsAfterTheMigration(t *testing.T) {
	made := func(labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", Labels: labels, Annotations: annotations}
	}
	five := int32(5)
	set := &v1beta1.MachineSet{ObjectMeta: made(
		map[string]string{v1beta1.LabelFreeze: v1beta1.FreezeMigration, v1beta1.LabelMigration: "m"},
		map[string]string{v1beta1.AnnotationAfterMigration: `{"replicas":3,"annotations":{"k":"v"}}`})}
	set.Spec.Replicas = &five
	frozen := &v1beta1.MachineSet{ObjectMeta: made(map[string]string{v1beta1.LabelFreeze: "x", "b": "c"}, nil)}
	class := &v1beta1.MachineClass{ObjectMeta: made(nil, nil)}
	class.Spec.Provider, class.Spec.Adoption = "p", v1beta1.AdoptionAllow
	check := &v1beta1.MachineHealthCheck{ObjectMeta: made(nil,
		map[string]string{v1beta1.AnnotationAfterMigration: `{"remediation":"Replace"}`})}
	check.Spec.Remediation.Type = v1beta1.RemediationNone
	for name, test := range map[string]struct {
		object client.Object
		want   string
	}{
		"a set": {set, "MachineSet\nmetadata:\n  annotations:\n    k: v\n  name: a\n" +
			"spec:\n  replicas: 3\n  selector: {}\n  template:\n    spec: {}\n"},
		"a freeze by the user": {frozen, "MachineSet\nmetadata:\n  labels:\n    b: c\n    machinist.dev/freeze: x\n  name: a\n" +
			"spec:\n  selector: {}\n  template:\n    spec: {}\n"},
		"a class": {class,
			"MachineClass\nmetadata:\n  name: a\nspec:\n  adoption: Forbid\n  provider: p\n  providerSpec: null\n"},
		"a check": {check, "MachineHealthCheck\nmetadata:\n  name: a\n" +
			"spec:\n  remediation:\n    type: Replace\n  selector: {}\n"},
	} {
		got, err := completedYAML(test.object)
		if want := "apiVersion: machinist.dev/v1beta1\nkind: " + test.want; err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}
