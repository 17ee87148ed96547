package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// booting creates a machine whose instance boots for ten seconds and has no addresses until then.
func booting(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	w := newWorld(t, change...)
	w.cloud.Boot = 10 * time.Second
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	if state := w.get("m").Status.Instance.State; state != v1beta1.InstancePending {
		t.Fatalf("the instance is %s", state)
	}
	w.step(w.cloud.Boot)
	w.cloud.Script("Get", fakecloud.Step{EditAnswer: func(in *provider.Instance) {
		in.Zone, in.Addresses = "r-2", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}}
	}})
	w.effects.clear()
	return w
}

func wantBooted(t *testing.T, m *v1beta1.Machine) {
	t.Helper()
	in, addresses := m.Status.Instance, m.Status.Addresses
	if in.State != v1beta1.InstanceRunning || in.Zone != "r-2" || len(addresses) != 1 ||
		addresses[0].Address != "10.9.9.9" {
		t.Errorf("instance is %+v, addresses are %v", *in, addresses)
	}
}

// Rule: four-writes-to-running.
func TestBootedInstanceIsReportedIfItsNodeDoesNotRegister(t *testing.T) {
	t.Parallel()
	w := booting(t)
	for range 2 { // The second pass does not extend the wait.
		if again := w.wantQuiet("m").RequeueAfter; again <= 0 || again > bootGrace {
			t.Fatalf("the machine is requeued after %s", again)
		}
		w.step(bootGrace / 3)
	}
	w.step(bootGrace / 3)
	w.effects.clear()
	w.reconcile("m")
	want(t, "effects", w.effects.since(), "API Machine patch status")
	wantBooted(t, w.get("m"))
	w.wantQuiet("m")
}

// Rule: four-writes-to-running.
func TestBootedInstanceIsReportedTogetherWithItsNode(t *testing.T) {
	t.Parallel()
	w := booting(t)
	w.wantQuiet("m")
	w.node("m", true)
	w.effects.clear()
	w.reconcile("m")
	want(t, "effects", w.effects.since("API Machine", "cloud"), "API Machine patch status")
	wantBooted(t, w.get("m"))
	w.wantRest("m")
	known := w.process.states.get(w.get("m"))
	if known != (machineState{}) {
		t.Errorf("the process still remembers %v", known)
	}
}

// One more read from the cloud is needed.
//
// Rules: four-writes-to-running, crash-safe-everywhere.
func TestBootedInstanceIsReadAgainAfterARestart(t *testing.T) {
	t.Parallel()
	w := booting(t)
	w.wantQuiet("m")
	w.restart()
	w.wantQuiet("m")
	want(t, "driver calls", w.effects.calls(), "cloud get")
}

// The Node name of the instance determines which kubelet gets its certificate.
func TestTheNodesNameIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	w := booting(t)
	w.cloud.Recover()
	w.cloud.Script("Get", fakecloud.Step{EditAnswer: func(in *provider.Instance) { in.NodeName = "other" }})
	w.reconcile("m")
	want(t, "writes", w.effects.writes(), "API Machine patch status")
	if in := w.get("m").Status.Instance; in.NodeName != "other" || in.State != v1beta1.InstanceRunning {
		t.Errorf("instance is %+v", *in)
	}
}

// Rule: available-without-target.
func TestBootedInstanceIsAvailableAtOnceWithoutATargetCluster(t *testing.T) {
	t.Parallel()
	w := booting(t, noTarget)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineAvailable)
	wantBooted(t, w.get("m"))
}

// In some clouds, a network assigns the addresses of an instance while it boots.
//
// Rule: late-addresses-with-the-node.
func TestAddressesThatComeLateAreReadWithTheNode(t *testing.T) {
	t.Parallel()
	name := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "m"}}
	for what, step := range map[string]fakecloud.Step{
		"read": {EditAnswer: func(in *provider.Instance) {
			in.Addresses = append(in.Addresses[:0:0], corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.9.9.9"})
		}},
		"unavailable": {Err: provider.Errorf(provider.Unavailable, "the cloud is unreachable")},
		"missing":     {EditAnswer: func(in *provider.Instance) { in.Addresses = name }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.createMachine("m")
			w.cloud.Boot = time.Second
			w.reconcile("m")
			w.step(w.cloud.Boot)
			w.cloud.Script("Get", fakecloud.Step{EditAnswer: func(in *provider.Instance) { in.Addresses = name }})
			w.reconcile("m")
			w.node("m", true)
			w.cloud.Script("Get", step)
			w.effects.clear()
			w.reconcile("m")
			want(t, "effects", w.effects.since("API Machine", "cloud"), "cloud get", "API Machine patch status")
			m := w.get("m")
			w.wantPhase(m, v1beta1.MachineRunning)
			if read := len(m.Status.Addresses) == 1 && m.Status.Addresses[0].Address == "10.9.9.9"; read != (what == "read") {
				t.Errorf("the addresses are %v", m.Status.Addresses)
			}
			w.wantRest("m")
		})
	}
}

// A machine whose node name is lost would otherwise wait until spec.timeouts.creation, and then lose its instance.
//
// Rule: lost-instance-status-is-restored.
func TestLostInstanceStatusIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	before := w.get("m")
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Instance = &v1beta1.InstanceStatus{} })
	w.reconcile("m")
	if got := w.get("m").Status.Instance; got == nil || got.State != before.Status.Instance.State ||
		got.NodeName != before.Status.Instance.NodeName {
		t.Errorf("the recorded instance is %+v, want %+v", got, before.Status.Instance)
	}
	w.wantQuiet("m")
}
