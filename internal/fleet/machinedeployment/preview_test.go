package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: rollback-reuses-set.
func TestRollBackRestoresOnlyFieldsThatCauseARollout(t *testing.T) {
	d := deployment("b")
	d.Spec.Template.Spec.Version = "v1.36.3"
	d.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "front"}
	old := deployment("a")
	old.Spec.Template.Spec.Node.Labels = map[string]string{"tier": "gone"}
	set := findRevision(old, nil, noon).newSet(old)
	set.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour))
	labels := len(d.Spec.Template.ObjectMeta.Labels)
	RollBack(d, set, noon)
	got := d.Spec.Template
	if got.Spec.ClassRef.Name != "a" || got.Spec.Version != "" || got.Spec.Node.Labels["tier"] != "front" ||
		len(got.ObjectMeta.Labels) != labels {
		t.Errorf("the template is %+v", got)
	}
	if h := findRevision(d, []*v1beta1.MachineSet{set}, noon); h.currentIndex != 0 {
		t.Error("the set of the rollback is not current")
	}
}

// Rule: rollback-reuses-set.
func TestRollBackToBeforeARestartFindsTheExistingSet(t *testing.T) {
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	first, second := setOf("a", 1, hour(-5)), setOf("b", 3, hour(-1))
	restarted := setOf("a", 2, hour(-4))
	restarted.Annotations[v1beta1.AnnotationRolloutAfter] = hour(-3).Format(time.RFC3339)
	for name, test := range map[string]struct {
		to   *v1beta1.MachineSet
		want *time.Time
	}{"created before any restart": {first, nil}, "created for an earlier restart": {restarted, at(hour(-3))},
		"created after the restart": {second, at(hour(-2))}} {
		d := deployment("c")
		after := metav1.NewTime(hour(-2))
		d.Spec.RolloutAfter = &after
		RollBack(d, test.to, noon)
		got := d.Spec.RolloutAfter
		if (got == nil) != (test.want == nil) || got != nil && !got.Time.Equal(*test.want) {
			t.Errorf("%s: rolloutAfter is %v, expected %v", name, got, test.want)
		}
		if h := findRevision(d, []*v1beta1.MachineSet{test.to}, noon); h.currentIndex != 0 {
			t.Errorf("%s: the set is not current", name)
		}
	}
	d := deployment("c")
	after := metav1.NewTime(hour(2))
	d.Spec.RolloutAfter = &after
	if RollBack(d, first, noon); d.Spec.RolloutAfter == nil {
		t.Error("a rolloutAfter in the future was removed")
	}
}

// Rule: only-template-changes-roll.
func TestRestartOutdatesEverySet(t *testing.T) {
	aheadOfUs := setOf("a", 3, noon.Add(-time.Minute))
	aheadOfUs.Annotations[v1beta1.AnnotationRolloutAfter] = noon.Add(20 * time.Second).Format(time.RFC3339)
	for name, test := range map[string]struct {
		set  *v1beta1.MachineSet
		want time.Time
	}{
		"an hour old":                {setOf("a", 1, noon.Add(-time.Hour)), noon},
		"created in the same second": {setOf("a", 1, noon), noon.Add(time.Second)},
		"created by a clock ahead":   {setOf("a", 1, noon.Add(3*time.Second)), noon.Add(4 * time.Second)},
		"restarted by a clock ahead": {aheadOfUs, noon.Add(21 * time.Second)},
	} {
		d := deployment("a")
		at := RestartAt(d, []*v1beta1.MachineSet{test.set}, noon.Add(300*time.Millisecond))
		if !at.Equal(test.want) {
			t.Errorf("%s: restarted at %s, expected %s", name, at, test.want)
		}
		after := metav1.NewTime(at)
		d.Spec.RolloutAfter = &after
		if h := findRevision(d, []*v1beta1.MachineSet{test.set}, at); h.currentIndex != -1 {
			t.Errorf("%s: the set counts as new enough", name)
		}
	}
	d := deployment("a")
	asked := metav1.NewTime(noon)
	d.Spec.RolloutAfter = &asked
	if at := RestartAt(d, nil, noon.Add(time.Millisecond)); !at.After(noon) {
		t.Errorf("a second restart within a second has the time %s of the first", at)
	}
}

// Rule: rollback-reuses-set.
func TestRevisionKeepsItsChangeCause(t *testing.T) {
	d := deployment("a")
	d.Annotations = map[string]string{AnnotationChangeCause: "cheaper"}
	if set := findRevision(d, nil, noon).newSet(d); set.Annotations[AnnotationChangeCause] != "cheaper" {
		t.Errorf("the new set has the annotations %v", set.Annotations)
	}
	set := setOf("a", 1, noon.Add(-time.Hour))
	old := setOf("b", 0, noon.Add(-2*time.Hour))
	old.UID = "b"
	f, err := Preview(d, []*v1beta1.MachineSet{set, old}, map[types.UID][]*v1beta1.Machine{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if current := f.Sets[f.CurrentIndex]; current.Annotations[AnnotationChangeCause] != "cheaper" ||
		current.Annotations[v1beta1.AnnotationRevision] != "1" {
		t.Errorf("the current set has the annotations %v", current.Annotations)
	}
	if cause, ok := f.Sets[1-f.CurrentIndex].Annotations[AnnotationChangeCause]; ok {
		t.Errorf("another revision got the cause %q", cause)
	}
	if _, touched := set.Annotations[AnnotationChangeCause]; touched {
		t.Error("Preview changed its argument")
	}
}

func TestPreviewRejectsUnusableDeployments(t *testing.T) {
	d := deployment("a")
	d.Spec.Selector = metav1.LabelSelector{}
	if _, err := Preview(d, nil, nil, noon); err == nil {
		t.Error("Preview accepts an empty selector")
	}
}
