package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Rule: outdated-node-taints.
func TestTaintDecision(t *testing.T) {
	t.Parallel()
	untouched := annotatedNode(nil)
	marked := withOutdatedTaint(untouched)
	for _, tc := range []struct {
		name     string
		outdated bool
		upToDate metav1.ConditionStatus
		node     *corev1.Node
		want     *corev1.Node
	}{
		{name: "old", outdated: true, node: untouched, want: marked},
		{name: "old and up to date", outdated: true, upToDate: metav1.ConditionTrue, node: untouched, want: marked},
		{name: "old and marked", outdated: true, node: marked},
		{name: "new", node: untouched},
		{name: "new and marked", node: marked, want: untouched},
		{name: "handed over, but not updated yet", upToDate: metav1.ConditionFalse, node: marked},
		{name: "handed over and updated", upToDate: metav1.ConditionTrue, node: marked, want: untouched},
	} {
		m := &v1beta1.Machine{}
		if tc.upToDate != "" {
			m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionUpToDate, Status: tc.upToDate}}
		}
		if diff := cmp.Diff(tc.want, withTaintFor(m, tc.node, tc.outdated), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", tc.name, diff)
		}
	}
}

// annotatedNode returns a Node with taints and annotations. The annotations are given as alternating keys and values.
func annotatedNode(annotations []string, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	n.Annotations = map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// Rule: outdated-node-taints.
func TestOutdatedTaintIsAddedAndRemoved(t *testing.T) {
	t.Parallel()
	const scaleDown = v1beta1.NodeAnnotationScaleDownDisabled
	ours := corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectPreferNoSchedule}
	theirs := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	stronger := corev1.Taint{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectNoSchedule}
	tests := []struct {
		name          string
		before        *corev1.Node
		with, without *corev1.Node
		// between changes the tainted Node as an administrator would.
		between func(*corev1.Node)
		wanted  v1beta1.NodeTemplate
	}{
		{name: "plain", before: annotatedNode([]string{"a", "b"}, theirs),
			with: annotatedNode([]string{"a", "b", scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"},
				theirs, ours),
			without: annotatedNode([]string{"a", "b"}, theirs)},
		{name: "scale-down was disabled by hand", before: annotatedNode([]string{scaleDown, "true"}),
			with:    annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, "taint"}, ours),
			without: annotatedNode([]string{scaleDown, "true"})},
		{name: "scale-down was enabled by hand", before: annotatedNode([]string{scaleDown, "false"}),
			with:    annotatedNode([]string{scaleDown, "false", nodeAnnotationOutdated, "taint"}, ours),
			without: annotatedNode([]string{scaleDown, "false"})},
		{name: "the taint was added by hand", before: annotatedNode(nil, ours),
			with:    annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, "scale-down-disabled"}, ours),
			without: annotatedNode(nil, ours)},
		{name: "the taint and the annotation were added by hand", before: annotatedNode([]string{scaleDown, "true"}, ours),
			with:    annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, ""}, ours),
			without: annotatedNode([]string{scaleDown, "true"}, ours)},
		{name: "the same key with another effect", before: annotatedNode(nil, stronger),
			with: annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, stronger,
				ours),
			without: annotatedNode(nil, stronger)},
		{name: "changed by hand in between", before: annotatedNode(nil),
			with:    annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, ours),
			between: func(n *corev1.Node) { n.Annotations[scaleDown] = "false"; n.Spec.Taints = []corev1.Taint{theirs} },
			without: annotatedNode([]string{scaleDown, "false"}, theirs)},
		{name: "the machine's template has the annotation by now", before: annotatedNode(nil),
			with:    annotatedNode([]string{scaleDown, "true", nodeAnnotationOutdated, "taint,scale-down-disabled"}, ours),
			wanted:  v1beta1.NodeTemplate{Annotations: map[string]string{scaleDown: "true"}},
			without: annotatedNode([]string{scaleDown, "true"})},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			given := tc.before.DeepCopy()
			if again := withoutOutdatedTaint(given, tc.wanted); again != nil {
				t.Errorf("withoutOutdatedTaint changes an untainted Node: %v", again)
			}
			with := withOutdatedTaint(given)
			if diff := cmp.Diff(tc.with, with); diff != "" {
				t.Fatalf("tainted (- want, + got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.before, given); diff != "" {
				t.Errorf("withOutdatedTaint changed its argument:\n%s", diff)
			}
			if tc.between != nil {
				tc.between(with)
			}
			if again := withOutdatedTaint(with); again != nil {
				t.Errorf("withOutdatedTaint changes a tainted Node: %v", again)
			}
			given = with.DeepCopy()
			without := withoutOutdatedTaint(given, tc.wanted)
			if diff := cmp.Diff(tc.without, without, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("untainted (- want, + got):\n%s", diff)
			}
			if diff := cmp.Diff(with, given); diff != "" {
				t.Errorf("withoutOutdatedTaint changed its argument:\n%s", diff)
			}
		})
	}
	leaving := annotatedNode(nil)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if withOutdatedTaint(leaving) != nil {
		t.Error("a Node that is being deleted is tainted")
	}
	if withOutdatedTaint(&corev1.Node{}) == nil {
		t.Error("a Node without annotations is not tainted")
	}
}

// set creates the MachineSet web-a. It returns a function that makes a Machine belong to this MachineSet.
func (w *world) set() func(*v1beta1.Machine) {
	w.t.Helper()
	labels := map[string]string{"app": "web"}
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-a"}}
	set.Spec.Selector.MatchLabels, set.Spec.Template.ObjectMeta.Labels = labels, labels
	set.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	w.create(set)
	return func(m *v1beta1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
			v1beta1.GroupVersion.WithKind("MachineSet"))}
	}
}

// declareOutdated does what a MachineDeployment does at the beginning and the end of a rollout.
func (w *world) declareOutdated(outdated bool) {
	w.t.Helper()
	set := &v1beta1.MachineSet{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web-a"}, set); err != nil {
		w.t.Fatal(err)
	}
	before := set.DeepCopy()
	set.Annotations = map[string]string{v1beta1.AnnotationRevision: "1"}
	if outdated {
		set.Annotations[v1beta1.AnnotationOutdated] = ""
	}
	if err := w.api.Patch(w.t.Context(), set, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// wantTaint checks whether the Node of machine m has both the taint and the annotation of an old revision, or neither
// of them.
func (w *world) wantTaint(what string, want bool) {
	w.t.Helper()
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	_, annotated := node.Annotations[v1beta1.NodeAnnotationScaleDownDisabled]
	if got := tainted(node, v1beta1.NodeTaintOutdated); got != want || annotated != want {
		w.t.Errorf("%s: the Node is tainted: %t, and annotated for the autoscaler: %t; want %t", what, got, annotated, want)
	}
}

// wantNodeWrites fails the test unless a pass wrote the Node exactly as often as wanted, and wrote nothing else.
func (w *world) wantNodeWrites(what string, want int) {
	w.t.Helper()
	w.effects.clear()
	w.reconcile("m")
	if got := len(w.effects.since("API Node patch")); got != want || len(w.effects.since("API")) != want {
		w.t.Errorf("%s: writes %q, want %d of the Node", what, w.effects.since("API"), want)
	}
}

// One patch adds the taint to the Node, and one patch removes it. The Machine is not written.
//
// Rule: outdated-node-taints.
func TestNodeIsTaintedWhileItsSetIsOutdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", w.set())
	w.wantNodeWrites("before the rollout", 0)
	w.declareOutdated(true)
	w.wantNodeWrites("the rollout began", 1)
	w.wantTaint("the rollout began", true)
	w.wantRest("m")
	w.restart()
	w.wantRest("m")
	w.declareOutdated(false)
	w.wantNodeWrites("the rollout was undone", 1)
	w.wantTaint("the rollout was undone", false)
	if _, recorded := w.getNode(nodeNameOf(w.namespace, "m")).Annotations[nodeAnnotationOutdated]; recorded {
		t.Error("the record of the taint stays on the Node")
	}
	w.wantRest("m")
	if r := w.process.states.get(w.get("m")).registration; r.taintedNode != "" {
		t.Errorf("the process still remembers %v", r)
	}
	w.declareOutdated(true)
	w.wantNodeWrites("the next rollout", 1)
	w.update("m", func(m *v1beta1.Machine) { m.OwnerReferences = nil })
	w.wantNodeWrites("released by its set", 1)
	w.wantTaint("released by its set", false)
}

// An administrator removes the taint, with or without the annotation that records it.
//
// Rules: outdated-node-taints, no-write-war.
func TestRemovedTaintDoesNotComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", w.set())
	w.declareOutdated(true)
	w.wantNodeWrites("the rollout began", 1)
	w.onNode(func(node *corev1.Node) {
		node.Spec.Taints = nil
		delete(node.Annotations, v1beta1.NodeAnnotationScaleDownDisabled)
	})
	w.wantNodeWrites("removed by hand", 0)
	w.restart()
	w.wantNodeWrites("another process", 0)
	w.onNode(func(node *corev1.Node) { delete(node.Annotations, nodeAnnotationOutdated) })
	w.wantNodeWrites("the record was removed too", 0)
	w.wantTaint("the record was removed too", false)
	w.step(24 * time.Hour)
	w.wantNodeWrites("a day later", 0)
	w.declareOutdated(false)
	w.wantNodeWrites("the rollout ended", 0)
}

// Rule: outdated-node-taints.
func TestTaintWaitsForMachineThatMustNotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", w.set())
	w.declareOutdated(true)
	w.annotate("m", v1beta1.AnnotationPaused)
	w.reconcile("m")
	w.wantTaint("paused", false)
	w.update("m", func(m *v1beta1.Machine) {
		m.Annotations, m.Labels[v1beta1.LabelTypeVersion] = nil, "v9"
	})
	w.reconcile("m")
	w.wantTaint("of another schema", false)
	w.update("m", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = v1beta1.TypeVersion })
	w.reconcile("m")
	w.wantTaint("no longer paused", true)
}

// After a failed write of the Node, the other steps still run, and the write is retried.
//
// Rule: outdated-node-taints.
func TestTaintIsBestEffort(t *testing.T) {
	t.Parallel()
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		name  string
		err   error
		again time.Duration
	}{
		{"refused", apierrors.NewForbidden(nodes, "n", errors.New("a policy refuses the taint")), taintRetryInterval},
		{"written by the kubelet", apierrors.NewConflict(nodes, "n", errors.New("changed")), time.Second},
		{"gone", apierrors.NewNotFound(nodes, "n"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m", w.set())
			w.declareOutdated(true)
			w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionFalse)
			w.refuse = func(verb string, o runtime.Object) error {
				if _, isNode := o.(*corev1.Node); isNode && verb == "patch" {
					return tc.err
				}
				return nil
			}
			if result := w.reconcile("m"); result.RequeueAfter != tc.again {
				t.Errorf("tried again after %s, want %s", result.RequeueAfter, tc.again)
			}
			if m := w.get("m"); machinestate.IsReady(m) {
				t.Errorf("the pass did not continue: %s", summaryOf(m))
			}
			w.wantTaint("refused", false)
			w.refuse = nil
			w.reconcile("m")
			w.wantTaint("accepted", true)
		})
	}
}

// Rule: outdated-node-taints.
func TestTaintWaitsForTheTargetCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	w.running("m", w.set())
	w.declareOutdated(true)
	w.refuse = func(verb string, o runtime.Object) error {
		if _, isNode := o.(*corev1.Node); isNode && verb != "" {
			t.Errorf("%s of the Node, which might hang", verb)
		}
		return nil
	}
	r.since = w.clock.Now() // The cache still answers reads.
	if result := w.reconcile("m"); result.RequeueAfter != targetPoll {
		t.Errorf("tried again after %s, want %s", result.RequeueAfter, targetPoll)
	}
	w.refuse, r.since = nil, time.Time{}
	w.reconcile("m")
	w.wantTaint("the target cluster answers again", true)
}
