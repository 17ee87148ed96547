package machine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

type announcer struct {
	ends  []provider.Interruption
	err   error
	asked []provider.InterruptionsRequest
}

func (a *announcer) Interruptions(_ context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	a.asked = append(a.asked, req)
	return a.ends, a.err
}

func announced(t *testing.T) (*world, *announcer) {
	w, a := newWorld(t), &announcer{}
	w.options.Interrupter = a
	w.restart()
	return w, a
}

func (w *world) poll() {
	w.t.Helper()
	result, err := notices{w.process}.Reconcile(w.t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter != noticePeriod {
		w.t.Fatalf("the cloud is polled again after %s: %v", result.RequeueAfter, err)
	}
}

// Rule: interruption-drains-at-once.
func TestInterruptionThatTheCloudAnnouncesDrainsTheNode(t *testing.T) {
	t.Parallel()
	w, cloud := announced(t)
	w.class("small", "")
	m := w.running("m")
	w.running("other")
	w.poll()
	w.wantRest("m")
	// The poll also covers the machines of other tests.
	if !slices.ContainsFunc(cloud.asked, func(r provider.InterruptionsRequest) bool {
		return r.ClusterID == "cluster" && !r.Class.Credentials.IsEmpty()
	}) {
		t.Errorf("requests: %+v", cloud.asked)
	}
	w.class("same", "") // This class has the same specification and other credentials.
	w.createMachine("third", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "same" })
	w.reconcile("third")
	scopes, err := notices{w.process}.scopes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]int{}
	for _, s := range scopes {
		if s.machines[0].Namespace == w.namespace {
			sizes[len(s.machines)]++
		}
	}
	if len(sizes) != 2 || sizes[1] != 1 || sizes[2] != 1 {
		t.Errorf("scopes of %v machines, want one of two and one of one", sizes)
	}
	// A notice of an interruption far in the future is only advice.
	end := w.clock.Now().Add(40 * time.Second).Truncate(time.Second)
	cloud.ends = []provider.Interruption{{ProviderID: m.Spec.ProviderID, ReclaimTime: end.Add(time.Hour),
		Reason: provider.Preemption}}
	w.poll()
	w.wantRest("m")

	cloud.ends[0].ReclaimTime = end
	w.poll()
	w.reconcile("m")
	m = w.get("m")
	w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "True", v1beta1.ReasonPreemptionNotice)
	w.wantCordoned(m.Status.NodeRef.Name, true)
	if at := m.Status.InterruptionTime; at == nil || !at.Time.Equal(end) {
		t.Errorf("interruptionTime is %s, want %s", at, end)
	}
	w.wantRest("other")

	// A failed poll must not remove the notice from the status. A new process must not remove the notice before its
	// first poll.
	cloud.err = errors.New("no answer")
	w.poll()
	w.wantQuiet("m")
	w.restart()
	w.wantQuiet("m")
	cloud.ends[0].ReclaimTime, cloud.err = end.Add(10*time.Second), nil
	w.poll()
	w.reconcile("m")
	if at := w.get("m").Status.InterruptionTime; at == nil || !at.Time.Equal(end.Add(10*time.Second)) {
		t.Errorf("interruptionTime is %s after the cloud postponed the interruption", at)
	}

	// Rule: withdrawn-interruption-ends-drain.
	cloud.ends = nil
	w.restart()
	w.poll()
	w.reconcile("m")
	w.reconcile("m")
	m = w.get("m")
	w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "False", v1beta1.ReasonInterruptionWithdrawn)
	w.wantCordoned(m.Status.NodeRef.Name, false)
	w.wantRest("m")
}

// Rule: interruption-drains-at-once.
func TestInterruptionOfAMachineWithoutANodeIsReported(t *testing.T) {
	t.Parallel()
	w, cloud := announced(t)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	cloud.ends = []provider.Interruption{{ProviderID: w.get("m").Spec.ProviderID}}
	w.poll()
	w.reconcile("m")
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "True", v1beta1.ReasonTerminationNotice)
	w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonTerminationNotice)
	w.poll()
	w.wantQuiet("m")
	cloud.ends = nil
	w.poll()
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionInterruptionNotice, "False", v1beta1.ReasonInterruptionWithdrawn)
}
