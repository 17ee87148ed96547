package migration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func TestWhatIsHeldBackIsReadAgain(t *testing.T) {
	three := int32(3)
	for name, text := range map[string]string{"nothing": "", "garbage": "{", "another type": `{"replicas":"many"}`,
		"half of it": `{"delete":true,"annotations":5}`} {
		object := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			v1beta1.AnnotationAfterMigration: text}}}
		if got := afterOf(object); got.Annotations != nil || got.Replicas != nil || got.Remediation != "" || got.Delete {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	object := &v1beta1.MachineSet{}
	(&planner{}).holdBack(object, after{Annotations: map[string]string{"a": "b"}, Replicas: &three, Delete: true})
	if got := afterOf(object); got.Annotations["a"] != "b" || *got.Replicas != 3 || !got.Delete {
		t.Errorf("what was held back is read as %+v", got)
	}
}

func TestNamesBesideOthersFitAndDiffer(t *testing.T) {
	long := strings.Repeat("a", v1beta1.MaxMachineNameLength-12) + "-bcdefghijkl"
	for name, uid := range map[string]types.UID{"worker-1": "0b5ec2de-0000-4000-8000-000000000001", long: "0b5ec2de-1",
		"worker-2": "short"} {
		got := nameBeside(name, uid)
		if len(got) > v1beta1.MaxMachineNameLength || got == name || strings.Contains(got, "--") {
			t.Errorf("beside %s: %s of %d characters", name, got, len(got))
		}
		if got == nameBeside(name, "1"+uid) || got != nameBeside(name, uid) {
			t.Errorf("beside %s: %s does not follow from the UID alone", name, got)
		}
	}
}

func TestTheOldUIDIsInTheOrigin(t *testing.T) {
	f := fleetOf(t, "cluster.k8s.io", "healthy")
	old := f.named("MachineSet", "alone")
	object := &v1beta1.MachineSet{}
	if got := oldUID(object); got != "" {
		t.Errorf("an object that no migration made is from %s", got)
	}
	f.planner().markFrom(object, old)
	if got := oldUID(object); got != old.GetUID() {
		t.Errorf("the old UID is %s, expected %s", got, old.GetUID())
	}
}
