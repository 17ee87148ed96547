package machinedeployment

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: outdated-node-taints.
func TestTaintDecision(t *testing.T) {
	const old, current = 0, 1
	updating := condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdating)
	by := func(kind v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment, *history) {
		return func(d *v1beta1.MachineDeployment, _ *history) { d.Spec.Strategy.Type = kind }
	}
	tests := []struct {
		name    string
		off     bool
		change  func(*v1beta1.MachineDeployment, *history)
		set     int
		machine func(*v1beta1.Machine)
		want    taintDecision
	}{
		{name: "old", set: old, machine: isReady, want: tainted},
		{name: "old and not Ready", set: old, machine: notReady, want: tainted},
		{name: "new", set: current, machine: isReady, want: untainted},
		{name: "old, being deleted", set: old, machine: beingDeleted(isReady), want: leaveAsIs},
		{name: "switched off", off: true, set: old, machine: isReady, want: untainted},
		{name: "there is no new set yet", change: func(_ *v1beta1.MachineDeployment, h *history) { h.current = -1 }, set: old,
			machine: isReady, want: leaveAsIs},
		{name: "rolled back", change: func(_ *v1beta1.MachineDeployment, h *history) { h.current = old }, set: old,
			machine: isReady, want: untainted},
		{name: "created before the rollback", change: func(_ *v1beta1.MachineDeployment, h *history) {
			h.current = old
		}, set: current, machine: isReady, want: tainted},
		{name: "the old set is being deleted", change: func(_ *v1beta1.MachineDeployment, h *history) {
			now := metav1.NewTime(noon)
			h.sets[old].DeletionTimestamp = &now
		}, set: old, machine: isReady, want: leaveAsIs},
		{name: "paused, old", change: func(d *v1beta1.MachineDeployment, _ *history) { d.Spec.Paused = true }, set: old,
			machine: isReady, want: leaveAsIs},
		{name: "paused, new", change: func(d *v1beta1.MachineDeployment, _ *history) { d.Spec.Paused = true }, set: current,
			machine: isReady, want: leaveAsIs},
		{name: "frozen", change: func(d *v1beta1.MachineDeployment, _ *history) {
			d.Labels = map[string]string{v1beta1.LabelFreeze: ""}
		}, set: old, machine: isReady, want: leaveAsIs},
		{name: "in place, old", change: by(v1beta1.StrategyInPlace), set: old, machine: isReady, want: tainted},
		{name: "in place, handed over", change: by(v1beta1.StrategyInPlace), set: current, machine: updating,
			want: leaveAsIs},
		{name: "in place, updated", change: by(v1beta1.StrategyInPlace), set: current, machine: isReady, want: untainted},
		{name: "in place, orchestration Manual", change: func(d *v1beta1.MachineDeployment, _ *history) {
			d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace,
				InPlace: &v1beta1.InPlaceUpdate{Orchestration: v1beta1.OrchestrationManual}}
		}, set: old, machine: isReady, want: untainted},
		{name: "strategy OnDelete", change: by(v1beta1.StrategyOnDelete), set: old, machine: isReady, want: untainted},
		{name: "strategy Recreate", change: by(v1beta1.StrategyRecreate), set: old, machine: isReady, want: untainted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := deployment("b")
			h := findRevision(d, []*v1beta1.MachineSet{setOf("a", 1, noon), setOf("b", 2, noon)}, noon)
			if test.change != nil {
				test.change(d, &h)
			}
			if got := h.taintDecision(d, !test.off, test.set, machine("m", 1, test.machine)); got != test.want {
				t.Errorf("the decision is %d, expected %d", got, test.want)
			}
		})
	}
}

// node returns a Node with annotations, given as alternating keys and values, and taints.
func node(annotations []string, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	n.Annotations = map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// Rule: outdated-node-taints.
func TestTaintsAreAddedAndRemoved(t *testing.T) {
	const scaleDown = v1beta1.NodeAnnotationScaleDownDisabled
	ours := corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectPreferNoSchedule}
	theirs := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	stronger := corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectNoSchedule}
	tests := []struct {
		name          string
		before        *corev1.Node
		with, without *corev1.Node
		// between changes the Node by hand while it is tainted.
		between func(*corev1.Node)
		wanted  v1beta1.NodeTemplate
	}{
		{name: "plain", before: node([]string{"a", "b"}, theirs),
			with: node([]string{"a", "b", scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"},
				theirs, ours),
			without: node([]string{"a", "b"}, theirs)},
		{name: "scale-down was disabled by hand", before: node([]string{scaleDown, "true"}),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, "taint"}, ours),
			without: node([]string{scaleDown, "true"})},
		{name: "scale-down was enabled by hand", before: node([]string{scaleDown, "false"}),
			with:    node([]string{scaleDown, "false", nodeAnnotationOutdated, "taint"}, ours),
			without: node([]string{scaleDown, "false"})},
		{name: "the taint was added by hand", before: node(nil, ours),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, "scale-down-disabled"}, ours),
			without: node(nil, ours)},
		{name: "the taint and the annotation were added by hand", before: node([]string{scaleDown, "true"}, ours),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, ""}, ours),
			without: node([]string{scaleDown, "true"}, ours)},
		{name: "the same key with another effect", before: node(nil, stronger),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, stronger, ours),
			without: node(nil, stronger)},
		{name: "changed by hand in between", before: node(nil),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, ours),
			between: func(n *corev1.Node) { n.Annotations[scaleDown] = "false"; n.Spec.Taints = []corev1.Taint{theirs} },
			without: node([]string{scaleDown, "false"}, theirs)},
		{name: "the machine's template has the taint and the annotation by now", before: node(nil),
			with:    node([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, ours),
			wanted:  v1beta1.NodeTemplate{Annotations: map[string]string{scaleDown: "true"}, Taints: []corev1.Taint{ours}},
			without: node([]string{scaleDown, "true"}, ours)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			given := test.before.DeepCopy()
			if again := withoutOutdatedTaint(given, test.wanted); again != nil {
				t.Errorf("withoutOutdatedTaint changes an untainted Node: %v", again)
			}
			with := withOutdatedTaint(given)
			if diff := cmp.Diff(test.with, with); diff != "" {
				t.Fatalf("tainted (- expected, + got):\n%s", diff)
			}
			if diff := cmp.Diff(test.before, given); diff != "" {
				t.Errorf("withOutdatedTaint changed its argument:\n%s", diff)
			}
			if test.between != nil {
				test.between(with)
			}
			if again := withOutdatedTaint(with); again != nil {
				t.Errorf("withOutdatedTaint changes a tainted Node: %v", again)
			}
			given = with.DeepCopy()
			without := withoutOutdatedTaint(given, test.wanted)
			if diff := cmp.Diff(test.without, without, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("untainted (- expected, + got):\n%s", diff)
			}
			if diff := cmp.Diff(with, given); diff != "" {
				t.Errorf("withoutOutdatedTaint changed its argument:\n%s", diff)
			}
		})
	}
	leaving := node(nil)
	leaving.DeletionTimestamp = &metav1.Time{Time: noon}
	if withOutdatedTaint(leaving) != nil {
		t.Error("a Node being deleted is tainted")
	}
	if withOutdatedTaint(&corev1.Node{}) == nil {
		t.Error("a Node without annotations is not tainted")
	}
}

func TestTaintCheckDebounce(t *testing.T) {
	for _, test := range []struct {
		name       string
		machines   int
		partial    bool
		generation int64
		ago, want  time.Duration
	}{
		{"a small deployment", 100, false, 7, 300 * time.Millisecond, 700 * time.Millisecond},
		{"a large deployment waits longer", 2000, false, 7, time.Second, 3 * time.Second},
		{"the wait is limited", 100_000, false, 7, time.Second, 9 * time.Second},
		{"the wait has passed", 2000, false, 7, 4 * time.Second, 0},
		{"Nodes are left", 2000, true, 7, 300 * time.Millisecond, 700 * time.Millisecond},
		{"a changed deployment does not wait", 2000, false, 8, time.Second, 0},
		{"the clock was set back", 2000, false, 7, -time.Minute, 0},
	} {
		k := &taintState{checkedAt: noon.Add(-test.ago), generation: 7, machines: test.machines, partial: test.partial}
		if got := k.debounce(test.generation, history{current: -1}, noon); got != test.want {
			t.Errorf("%s: waits %s, expected %s", test.name, got, test.want)
		}
	}
}
