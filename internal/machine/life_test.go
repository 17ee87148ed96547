package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Machinist writes four times until the Machine is Running, and three times after the request to delete it. No step has
// to wait: the test does not advance the clock.
//
// Rules: one-event-per-error, four-writes-to-running, deletion-order.
func TestAnInstantCloudCostsFewWritesAndNoTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.node("m", true)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	want(t, "writes until Running", w.effects.writes(), "API Machine patch", "API Machine patch status", "API Node patch",
		"API Machine patch status")
	want(t, "driver calls until Running", w.effects.calls(), "cloud create")
	want(t, "events until Running", reasons(w.events.take()))
	if m.Status.ObservedGeneration != m.Generation {
		t.Errorf("observedGeneration is %d of %d", m.Status.ObservedGeneration, m.Generation)
	}
	w.wantRest("m")
	w.restart()
	w.wantRest("m")

	w.delete("m")
	w.effects.clear()
	w.reconcile("m")
	if m := w.get("m"); m != nil {
		t.Fatalf("the machine still exists: %s", summaryOf(m))
	}
	want(t, "writes until gone", w.effects.writes(), "API Node patch", "API Node delete", "API Machine patch")
	want(t, "driver calls until gone", w.effects.calls(), "cloud delete")
	want(t, "events until gone", reasons(w.events.take()), "Deleted")
	w.wantNothingLeft("m")
}

// If the Node is Ready before the status is written, Running is the first phase in the status.
//
// Rule: provider-id-recorded-first.
func TestANodeThatIsThereAtOnceSavesAWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.createMachine("m")
	w.node("m", true, func(n *corev1.Node) { n.Spec.ProviderID = "fake://" + m.Namespace + "/i-0001" })
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	want(t, "writes until Running", w.effects.writes(), "API Machine patch", "API Node patch", "API Machine patch status")
	w.wantRest("m")
}

// Rule: available-without-target.
func TestWithoutATargetClusterTheMachineIsAvailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineAvailable)
	w.wantCondition(m, v1beta1.ConditionReady, "True", v1beta1.ReasonMachineReady)
	want(t, "writes", w.effects.writes(), "API Machine patch", "API Machine patch status")
	w.wantRest("m")
	w.delete("m")
	w.effects.clear()
	w.reconcile("m")
	want(t, "writes until gone", w.effects.writes(), "API Machine patch")
	w.wantNothingLeft("m")
}

// A slow launch causes no additional writes. A slow deletion causes one additional write, which reports the deletion in
// the status.
//
// Rules: pending-instance-polled, four-writes-to-running.
func TestASlowCloudIsFollowedWithoutWritingTheSameAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot, w.cloud.Shutdown = 20e9, 20e9
	w.class("small", "")
	w.createMachine("m")
	result := w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	launch := w.effects.writes()
	for range 2 {
		w.step(result.RequeueAfter)
		result = w.wantQuiet("m")
		want(t, "driver calls of a pass over a booting machine", w.effects.calls(), "cloud get")
	}
	w.step(20e9)
	w.wantQuiet("m")
	want(t, "driver calls of a pass over a machine that booted", w.effects.calls(), "cloud get")
	w.wantQuiet("m")
	want(t, "driver calls of another pass", w.effects.calls())
	w.node("m", true)
	w.effects.clear()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if in := w.get("m").Status.Instance; in.State != v1beta1.InstanceRunning {
		t.Errorf("instance is %s after it booted", in.State)
	}
	want(t, "driver calls until Running", w.effects.calls())
	want(t, "writes until Running", append(launch, w.effects.writes()...), "API Machine patch", "API Machine patch status",
		"API Node patch", "API Machine patch status")
	w.wantRest("m")

	w.delete("m")
	w.effects.clear()
	result = w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineDeleting)
	w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonInstanceTerminating)
	w.wantCondition(m, v1beta1.ConditionDrained, "True", v1beta1.ReasonDrained)
	first := w.effects.writes()
	w.step(result.RequeueAfter)
	// Another process does not drain a drained node again, even if it has new pods.
	w.podOn(nodeNameOf(w.namespace, "m"))
	w.restart()
	w.wantQuiet("m")
	want(t, "driver calls of a pass over a terminating machine", w.effects.calls(), "cloud delete")
	w.effects.clear()
	w.step(20e9)
	w.reconcile("m")
	all := append(first, w.effects.writes()...)
	want(t, "writes until gone", all, "API Node patch", "API Machine patch status", "API Node delete", "API Machine patch")
	w.wantNothingLeft("m")
}

// A faulty driver may report an instance as pending forever. A Ready Node proves that the instance runs.
func TestADriverThatLagsBehindTheNodeIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot = 24 * 3600e9
	w.class("small", "")
	w.running("m")
	w.wantRest("m")
}

// Rule: claim-before-first-call.
func TestMachineCreatedByHandIsClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) { m.Finalizers, m.Labels = nil, nil })
	w.reconcile("m")
	m := w.get("m")
	if !hasFinalizer(m) || m.Labels[v1beta1.LabelProvider] != fakeProvider {
		t.Errorf("finalizers %v, labels %v", m.Finalizers, m.Labels)
	}
	w.wantPhase(m, v1beta1.MachineProvisioned)
}

// Rule: provider-serves-own-machines.
func TestMachinesOfOtherProvidersAreIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelProvider] = "other" })
	w.wantRest("m")
	w.delete("m")
	w.wantRest("m")
	if w.get("m") == nil {
		t.Error("a machine of another provider was released")
	}
}

// During the migration of a fleet from another system, a Machine without the required label for the type version must
// wait.
//
// Rule: unsupported-schema-only-deletable.
func TestMachineWithoutRequiredTypeVersionWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.process.RequireTypeVersion = true
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) { delete(m.Labels, v1beta1.LabelTypeVersion) })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonUnknownTypeVersion)
	w.wantRest("m")
	w.update("m", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = v1beta1.TypeVersion })
	w.reconcile("m")
	if m := w.get("m"); m.Spec.ProviderID == "" && m.Status.Launch == nil {
		t.Errorf("the machine is not launched: %v", m.Status.Conditions)
	}
}

// Rule: unsupported-schema-only-deletable.
func TestMachineWithUnknownTypeVersionCanOnlyBeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	other := func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = "v9" }
	w.createMachine("new", other)
	w.reconcile("new")
	w.wantCondition(w.get("new"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonUnknownTypeVersion)
	w.wantPhase(w.get("new"), v1beta1.MachinePending)
	w.wantRest("new")

	w.running("old")
	w.update("old", other)
	w.reconcile("old")
	m := w.get("old")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, "False", v1beta1.ReasonUnknownTypeVersion)
	w.wantRest("old")
	w.delete("old")
	w.untilGone("old")
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func reasons(events []string) []string {
	var out []string
	for _, e := range events {
		_, rest, _ := strings.Cut(e, " ")
		reason, _, _ := strings.Cut(rest, ":")
		out = append(out, reason)
	}
	return out
}
