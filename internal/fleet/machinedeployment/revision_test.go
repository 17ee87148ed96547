package machinedeployment

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func deployment(class string) *v1beta1.MachineDeployment {
	replicas := int32(3)
	return &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web-uid", Generation: 1},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: &replicas,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}},
			},
		},
	}
}

func setOf(class string, revision int, created time.Time) *v1beta1.MachineSet {
	set := history{number: int64(revision)}.newSet(deployment(class))
	set.UID = types.UID(set.Name)
	set.CreationTimestamp = metav1.NewTime(created)
	set.Generation, set.Status.ObservedGeneration = 1, 1
	if revision == 0 {
		set.Annotations = nil
	}
	return set
}

// Rule: rollback-reuses-set.
func TestFindRevision(t *testing.T) {
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	deletedSet := setOf("b", 2, hour(-1))
	deleted := metav1.NewTime(noon)
	deletedSet.DeletionTimestamp = &deleted
	restarted := setOf("b", 3, hour(-1))
	restarted.Annotations[v1beta1.AnnotationRolloutAfter] = hour(1).Format(time.RFC3339)
	otherHash := setOf("b", 2, hour(-1))
	otherHash.Name, otherHash.Annotations[v1beta1.AnnotationHashVersion] = "web-otherhash", "0"
	tests := []struct {
		name    string
		after   *time.Time
		sets    []*v1beta1.MachineSet
		current string // class/revision of the current set
		number  int64
		starts  time.Duration
	}{
		{"no set", nil, nil, "", 1, 0},
		{"the newest", nil, []*v1beta1.MachineSet{setOf("b", 2, hour(-1)), setOf("a", 1, hour(-2))}, "b/2", 2, 0},
		{"a new template", nil, []*v1beta1.MachineSet{setOf("a", 1, hour(-2))}, "", 2, 0},
		{"rolled back", nil, []*v1beta1.MachineSet{setOf("b", 1, hour(-2)), setOf("a", 2, hour(-1))}, "b/1", 3, 0},
		{"found by the rollout fields, whatever its hash is", nil, []*v1beta1.MachineSet{setOf("a", 1, hour(-2)), otherHash},
			"b/2", 2, 0},
		{"a set without revision", nil, []*v1beta1.MachineSet{setOf("b", 0, hour(-1))}, "b/0", 1, 0},
		{"two sets with the template", nil, []*v1beta1.MachineSet{setOf("b", 1, hour(-1)), setOf("b", 2, hour(-2))},
			"b/2", 2, 0},
		{"a set being deleted", nil, []*v1beta1.MachineSet{deletedSet}, "", 3, 0},
		{"rolloutAfter in the future", at(hour(2)), []*v1beta1.MachineSet{setOf("b", 1, hour(-1))}, "b/1", 1, 2 * time.Hour},
		{"rolloutAfter in the past", at(hour(-1)), []*v1beta1.MachineSet{setOf("b", 1, hour(-2))}, "", 2, 0},
		{"rolloutAfter before the set was created",
			at(hour(-3)), []*v1beta1.MachineSet{setOf("b", 1, hour(-2))}, "b/1", 1, 0},
		{"created for this rolloutAfter by a clock that is ahead", at(noon), []*v1beta1.MachineSet{restarted}, "b/3", 3, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := deployment("b")
			if test.after != nil {
				after := metav1.NewTime(*test.after)
				d.Spec.RolloutAfter = &after
			}
			h := findRevision(d, test.sets, noon)
			current := ""
			if h.currentIndex >= 0 {
				set := h.sets[h.currentIndex]
				current = set.Spec.Template.Spec.ClassRef.Name + "/" + strconv.FormatInt(revisionOf(set), 10)
			}
			if current != test.current || h.number != test.number || h.startsIn != test.starts {
				t.Errorf("current is %q, revision %d, starts in %s; expected %q, %d, %s", current, h.number, h.startsIn,
					test.current, test.number, test.starts)
			}
		})
	}
}

func at(t time.Time) *time.Time { return &t }

func TestNewSetIsFoundAgain(t *testing.T) {
	d := deployment("b")
	past := metav1.NewTime(noon.Add(-time.Minute))
	d.Spec.RolloutAfter = &past
	h := findRevision(d, []*v1beta1.MachineSet{setOf("b", 1, noon.Add(-time.Hour))}, noon)
	if h.currentIndex >= 0 {
		t.Fatal("the set from before rolloutAfter is still current")
	}
	successor := h.newSet(d)
	successor.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) // The API server's clock is behind.
	if h = findRevision(d, []*v1beta1.MachineSet{successor}, noon); h.currentIndex != 0 || h.number != 2 {
		t.Errorf("the new set is not found again: current %d, revision %d", h.currentIndex, h.number)
	}
	for key, want := range map[string]string{v1beta1.LabelMachineDeployment: "web",
		v1beta1.AutoscalerDeploymentNameLabel: "web", "app": "web"} {
		if successor.Labels[key] != want {
			t.Errorf("label %s of the set is %q, expected %q", key, successor.Labels[key], want)
		}
	}
	hash := successor.Labels[v1beta1.LabelTemplateHash]
	if successor.Name != "web-"+hash || successor.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash] != hash ||
		successor.Spec.Template.ObjectMeta.Labels[v1beta1.LabelTemplateHash] != hash {
		t.Errorf("hash %q is missing in the name, selector or labels of %s: %v, %v", hash, successor.Name,
			successor.Spec.Selector,
			successor.Spec.Template.ObjectMeta.Labels)
	}
	for _, key := range []string{v1beta1.AnnotationRevision, v1beta1.AutoscalerRevisionAnnotation} {
		if successor.Annotations[key] != "2" {
			t.Errorf("annotation %s of the set is %q, expected 2", key, successor.Annotations[key])
		}
	}
	if len(d.Spec.Selector.MatchLabels) != 1 {
		t.Errorf("the deployment's selector was changed: %v", d.Spec.Selector)
	}
}

// Rule: progress-deadline-reported.
func TestExpired(t *testing.T) {
	var sets []*v1beta1.MachineSet
	for i := range 6 {
		sets = append(sets, setOf(string(rune('a'+i)), i+1, noon))
	}
	deleted := metav1.NewTime(noon)
	sets[2].DeletionTimestamp = &deleted
	sets[3].Generation = 2
	h := findRevision(deployment("b"), sets, noon) // Set b has revision 2 and is current.
	counted := make([]Set, 6)
	for _, test := range []struct {
		name   string
		change func()
		limit  int32
		want   int
	}{
		{"all except current, deleted and unobserved sets", func() {}, 0, 3},
		{"a small limit", func() {}, 2, 1},
		{"a large limit", func() {}, 9, 0},
		{"with machines", func() { counted[0].Live = 1 }, 0, 2},
		{"with machines being deleted", func() { counted[0] = Set{Deleting: 1} }, 0, 2},
		{"with replicas", func() { counted[0] = Set{Replicas: 1} }, 0, 2},
		{"with earlier replicas that are not observed yet", func() { counted[0] = Set{MaxReplicas: 1} }, 0, 2},
	} {
		test.change()
		if got := h.expiredSets(counted, test.limit); len(got) != test.want {
			t.Errorf("%s: %d sets are expired, expected %d", test.name, len(got), test.want)
		}
	}
	counted[0] = Set{}
	if got := h.expiredSets(counted, 2); len(got) != 1 || got[0] != sets[0] {
		t.Errorf("expired sets are %v, expected the oldest", got)
	}
}

// Rule: rollback-reuses-set.
func TestRevisionSetHasTheGivenInstanceAndTheOtherFieldsOfTheDeployment(t *testing.T) {
	d := deployment("new")
	old := v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "old"}}
	set := RevisionSet(d, &old, 3)
	if class := set.Spec.Template.Spec.ClassRef.Name; class != "old" || revisionOf(set) != 3 {
		t.Errorf("the set has the class %q and the revision %d", class, revisionOf(set))
	}
	if set.Name == RevisionSet(d, &d.Spec.Template.Spec, 3).Name {
		t.Error("sets of different instances have the same name")
	}
	if class := d.Spec.Template.Spec.ClassRef.Name; class != "new" {
		t.Errorf("the deployment now has the class %q", class)
	}
}
