package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// tainter is a bench with a NodeTainter.
type tainter struct {
	*bench
	options machinedeployment.NodeTainterOptions
	k       *machinedeployment.NodeTainter
	// patched are the Nodes written, in order; fail replaces the API server's response to a write.
	patched []string
	fail    func(node string) error
	// read counts the Nodes read.
	read int
}

func newTainter(t *testing.T) *tainter {
	b := &tainter{bench: newBench(t)}
	nodes := interceptor.NewClient(b.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			b.read++
			return c.Get(ctx, key, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			b.patched = append(b.patched, o.GetName())
			if b.fail != nil {
				if err := b.fail(o.GetName()); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
	})
	b.options = machinedeployment.NodeTainterOptions{Client: b.cached(), Nodes: nodes, Clock: b.clock,
		Run: func(n int, f func(int)) {
			for i := range n {
				f(i)
			}
		}}
	b.k = machinedeployment.NewNodeTainter(b.options)
	return b
}

// mark makes one pass, and returns how many Nodes it wrote.
func (b *tainter) mark() (reconcile.Result, int) {
	b.Helper()
	b.pass(2 * time.Second)
	b.patched = nil
	result, err := b.k.Reconcile(b.ctx,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: "web"}})
	b.must(err)
	return result, len(b.patched)
}

func (b *tainter) wantWritten(what string, want int) {
	b.Helper()
	if _, n := b.mark(); n != want {
		b.Errorf("%s: %d nodes were written, expected %d: %v", what, n, want, b.patched)
	}
}

// register gives each machine without one a Node of its name.
func (b *tainter) register() {
	b.Helper()
	for _, m := range b.machines() {
		if m.Status.NodeRef != nil {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
		b.must(b.api.Create(b.ctx, n))
		b.Cleanup(func() { _ = b.api.Delete(b.ctx, n) })
		was := m.DeepCopy()
		m.Status.NodeRef = &v1beta1.NodeRef{Name: n.Name, UID: n.UID}
		b.must(b.api.Status().Patch(b.ctx, &m, client.MergeFrom(was)))
	}
}

func (b *tainter) machines() []v1beta1.Machine {
	b.Helper()
	list := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
	return list.Items
}

// marks returns how many Nodes of each class of machines are tainted.
func (b *tainter) marks() map[string]int {
	b.Helper()
	marks := map[string]int{}
	for _, m := range b.machines() {
		n := &corev1.Node{}
		b.must(b.api.Get(b.ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, n))
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == v1beta1.NodeTaintOutdated && t.Effect == corev1.TaintEffectPreferNoSchedule
		})
		if scaleDownDisabled := n.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] == "true"; scaleDownDisabled != tainted {
			b.Errorf("node %s of class %s is tainted: %v, and annotated for the autoscaler: %v", n.Name, m.Spec.ClassRef.Name,
				tainted, scaleDownDisabled)
		}
		if tainted {
			marks[m.Spec.ClassRef.Name]++
		}
	}
	return marks
}

func (b *tainter) wantMarks(what string, want map[string]int) {
	b.Helper()
	if got := b.marks(); !maps.Equal(got, want) {
		b.Errorf("%s: tainted are %v, expected %v", what, got, want)
	}
}

// midway begins a rollout of class b over 4 running machines of class a.
func (b *tainter) midway() {
	b.Helper()
	b.create(4, rolling("2", "0"))
	b.settle()
	b.register()
	b.wantWritten("settled", 0)
	b.change(class("b"))
	b.wantWritten("before there is a set of the new revision", 0)
	b.reconcile()
	b.play()
	b.register()
}

// One patch taints a Node, in the first pass of a rollout; Nodes that need no change are not written.
//
// Rule: outdated-node-taints.
func TestOutdatedNodesAreTaintedDuringARollout(t *testing.T) {
	b := newTainter(t)
	b.midway()
	b.wantWritten("the rollout began", 4)
	b.wantMarks("the rollout began", map[string]int{"a": 4})
	b.read = 0
	b.wantWritten("nothing happened since", 0)
	if b.read != 0 {
		t.Errorf("%d nodes were read again, expected none", b.read)
	}
	b.k = machinedeployment.NewNodeTainter(b.options)
	b.wantWritten("another process", 0)

	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = true })
	b.wantWritten("paused", 0)
	b.change(func(d *v1beta1.MachineDeployment) { d.Spec.Paused = false })

	b.settle()
	b.register()
	b.wantWritten("the rollout ended", 0)
	b.wantMarks("the rollout ended", map[string]int{})

	b.change(class("c"))
	b.reconcile()
	b.play()
	b.register()
	b.wantWritten("the next rollout", 4)
	b.change(class("b"))
	b.wantWritten("undone: 4 are of the wanted revision again, 2 are not", 6)
	b.wantMarks("undone", map[string]int{"c": 2})
	b.change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyOnDelete}
	})
	b.wantWritten("somebody has to delete the old machines", 2)
	b.wantMarks("somebody has to delete the old machines", map[string]int{})
}

// What is beyond the bound of a pass follows in the next ones, which come without an event.
//
// Rule: outdated-node-taints.
func TestManyNodesAreTaintedInSeveralPasses(t *testing.T) {
	b := newTainter(t)
	b.options.PerPass = 3
	b.k = machinedeployment.NewNodeTainter(b.options)
	b.midway()
	result, written := b.mark()
	if written != 3 || result.RequeueAfter != time.Second {
		t.Errorf("%d nodes were written and the next pass is after %s, expected 3 and 1s", written, result.RequeueAfter)
	}
	if result, written = b.mark(); written != 1 || result.RequeueAfter != 0 {
		t.Errorf("%d nodes were written and the next pass is after %s, expected 1 and none", written, result.RequeueAfter)
	}
	b.wantMarks("all have been written", map[string]int{"a": 4})
}

// Rule: outdated-node-taints.
func TestTaintsAreRemovedWhenSwitchedOff(t *testing.T) {
	b := newTainter(t)
	b.midway()
	b.wantWritten("switched on", 4)
	b.options.Off = true
	b.k = machinedeployment.NewNodeTainter(b.options)
	b.wantWritten("switched off", 4)
	b.wantMarks("switched off", map[string]int{})
}

// A failure with one Node does not affect the others, and is retried.
//
// Rule: outdated-node-taints.
func TestTaintsAreBestEffort(t *testing.T) {
	b := newTainter(t)
	b.midway()
	old := slices.DeleteFunc(b.machines(), func(m v1beta1.Machine) bool { return m.Spec.ClassRef.Name != "a" })
	// One Node is gone, one is another one of the same name, one cannot be written.
	gone, other, stubborn := old[0].Name, old[1].Name, old[2].Name
	for _, name := range []string{gone, other} {
		b.must(b.api.Delete(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	b.must(b.api.Create(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}))
	b.Cleanup(func() { _ = b.api.Delete(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}) })
	b.fail = func(node string) error {
		if node == stubborn {
			return errors.New("the target cluster is unreachable")
		}
		return nil
	}
	result, n := b.mark()
	if n != 2 || slices.Contains(b.patched, gone) || slices.Contains(b.patched, other) {
		t.Errorf("written were %v, expected %s and one more", b.patched, stubborn)
	}
	if result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("tried again after %s, expected within a minute", result.RequeueAfter)
	}
	b.fail = nil
	b.wantWritten("tried again", 1)
	if result, _ := b.mark(); result.RequeueAfter <= 0 {
		t.Error("a Node that was not there is not looked for again")
	}

	// A kubelet that reports in between wins, and the pass is repeated soon.
	b.change(class("a"))
	patches := 0
	b.fail = func(node string) error {
		if patches++; patches == 1 {
			n := &corev1.Node{}
			b.must(b.api.Get(b.ctx, client.ObjectKey{Name: node}, n))
			n.Labels = map[string]string{"reported": "now"}
			return b.api.Update(b.ctx, n)
		}
		return nil
	}
	if result, _ := b.mark(); result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Second {
		t.Errorf("after a conflict the next pass is in %s, expected soon", result.RequeueAfter)
	}
	b.fail = nil
	b.wantWritten("after the conflict", 1)
}

// Rule: outdated-node-taints.
func TestTaintsWaitForTheTargetCluster(t *testing.T) {
	b := newTainter(t)
	b.midway()
	stopped, synced := "Unreachable", true
	b.options.Stopped = func() (string, string) { return stopped, "" }
	b.options.Synced = func() bool { return synced }
	b.k = machinedeployment.NewNodeTainter(b.options)
	for _, what := range []string{"unreachable", "not listed yet"} {
		if result, n := b.mark(); n != 0 || result.RequeueAfter <= 0 {
			t.Errorf("the target cluster is %s: %d nodes were written, and the next pass is in %s", what, n, result.RequeueAfter)
		}
		stopped, synced = "", false
	}
	synced = true
	b.wantWritten("the target cluster is there", 4)
}

// Events of many machines cause one check per second; a new revision is checked at once.
func TestNodeTainterDebouncesEvents(t *testing.T) {
	b := newTainter(t)
	b.midway()
	b.wantWritten("the rollout began", 4)
	check := func() (time.Duration, int) {
		b.Helper()
		b.patched = nil
		result, err := b.k.Reconcile(b.ctx,
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: "web"}})
		b.must(err)
		return result.RequeueAfter, len(b.patched)
	}
	b.pass(400 * time.Millisecond)
	if wait, n := check(); wait != 600*time.Millisecond || n != 0 {
		t.Errorf("400 ms after the last check %d nodes were written, and the next is in %s, expected none and 600 ms", n,
			wait)
	}
	b.change(class("a"))
	if _, n := check(); n != 6 {
		t.Errorf("%d nodes were written at once after an undo, expected 6", n)
	}
}

// Rule: labels-too-long-refused.
func TestATemplateWithTooManyLabelsIsRefused(t *testing.T) {
	crowd := func(labels, annotations int) func(*v1beta1.MachineDeployment) {
		return func(d *v1beta1.MachineDeployment) {
			d.Spec.Template.ObjectMeta = v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{}}
			for i := range labels - 1 {
				d.Spec.Template.ObjectMeta.Labels[fmt.Sprintf("l%d", i)] = ""
			}
			for i := range annotations {
				d.Spec.Template.ObjectMeta.Annotations[fmt.Sprintf("a%d", i)] = ""
			}
		}
	}
	for _, n := range []int{63, 64} {
		b := newBench(t)
		b.create(2, crowd(n, 64))
		b.reconcile()
		c := b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration)
		for _, part := range []string{fmt.Sprintf("%d labels", n), "spec.template.metadata.labels", v1beta1.LabelTemplateHash,
			v1beta1.LabelMachineDeployment, "64"} {
			if !strings.Contains(c.Message, part) {
				t.Errorf("the message does not name %s: %s", part, c.Message)
			}
		}
		b.took()
		b.reconcile()
		b.wantCalls()
		b.change(crowd(62, 64))
		b.settle()
		if d := b.deployment(); d.Status.AvailableReplicas != 2 {
			t.Errorf("with 62 labels %d machines are available, expected 2: %+v", d.Status.AvailableReplicas,
				d.Status.Conditions)
		}
	}
}
