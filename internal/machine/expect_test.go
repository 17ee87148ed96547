package machine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// wantRest runs a pass. The test fails if this pass writes anything, calls the driver or requeues the Machine.
func (w *world) wantRest(name string) {
	w.t.Helper()
	w.effects.clear()
	if result := w.reconcile(name); result.RequeueAfter != 0 {
		w.t.Errorf("a machine without pending work is requeued after %s", result.RequeueAfter)
	}
	if done := w.effects.since(); len(done) > 0 {
		w.t.Errorf("a pass over a machine without pending work did %q", done)
	}
}

func (w *world) wantQuiet(name string) reconcile.Result {
	w.t.Helper()
	w.effects.clear()
	result := w.reconcile(name)
	if done := w.effects.since("API"); len(done) > 0 {
		w.t.Errorf("a pass without changes wrote %q", done)
	}
	return result
}

func (w *world) wantPhase(m *v1beta1.Machine, want v1beta1.MachinePhase) {
	w.t.Helper()
	if m.Status.Phase != want {
		w.t.Fatalf("phase is %q, want %q: %s", m.Status.Phase, want, summaryOf(m))
	}
	if failed := m.Status.FailureReason != ""; failed != (want == v1beta1.MachineFailed) {
		w.t.Errorf("failureReason is %q in phase %s", m.Status.FailureReason, want)
	}
}

func (w *world) wantCondition(m *v1beta1.Machine, kind string, status metav1.ConditionStatus,
	reason string) *metav1.Condition {
	w.t.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		w.t.Fatalf("there is no condition %s: %s", kind, summaryOf(m))
	}
	if c.Status != status || c.Reason != reason {
		w.t.Errorf("condition %s is %s/%s (%s), want %s/%s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	return c
}

// wantNothingLeft fails the test if any object of the machine remains, or if the machine had two instances at the same
// time.
func (w *world) wantNothingLeft(name string) {
	w.t.Helper()
	if m := w.get(name); m != nil {
		w.t.Errorf("the machine still exists: %s", summaryOf(m))
	}
	w.reconcile(name) // The delete event triggers this pass.
	if in := w.cloud.LiveInstances(); len(in) > 0 {
		w.t.Errorf("%d instances remain after the machine is gone", len(in))
	}
	if len(w.cloud.DuplicatedMachines()) > 0 {
		w.t.Errorf("machines %v had two instances at the same time", w.cloud.DuplicatedMachines())
	}
	if w.getNode(nodeNameOf(w.namespace, name)) != nil {
		w.t.Error("the node remains after the machine is gone")
	}
	if tokens := w.tokens(); len(tokens) > 0 {
		w.t.Errorf("bootstrap token %s remains after the machine is gone", tokens[0].Name)
	}
	if n := w.process.states.machines.Len(); n > 0 {
		w.t.Errorf("the process still remembers %d machines", n)
	}
}

// summaryOf returns those parts of a status that do not depend on names and times.
func summaryOf(m *v1beta1.Machine) string {
	if m == nil {
		return "gone"
	}
	var b strings.Builder
	s := m.Status
	fmt.Fprintf(&b, "phase=%s failure=%s providerID=%t node=%t attempt=%d", s.Phase, s.FailureReason,
		m.Spec.ProviderID != "", s.NodeRef != nil, m.LaunchAttempt())
	if s.Instance != nil {
		fmt.Fprintf(&b, " instance=%s/%s", s.Instance.State, s.Instance.Provider)
	}
	if o := s.LastOperation; o != nil {
		fmt.Fprintf(&b, " last=%s/%s/%s", o.Type, o.State, o.Code)
	}
	conditions := slices.Clone(s.Conditions)
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for _, c := range conditions {
		fmt.Fprintf(&b, " %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	return b.String()
}

func lastOf(all []string, n int) []string { return all[max(len(all)-n, 0):] }

// recorder records the events on Machines. The field onClasses contains the events on classes.
type recorder struct {
	mu              sync.Mutex
	seen, onClasses []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isClass := regarding.(*v1beta1.MachineClass); isClass {
		r.onClasses = append(r.onClasses, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
		return
	}
	r.seen = append(r.seen, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}
