package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// reportingJoined makes the driver of the test a provider.Joiner.
func reportingJoined(w *world) { w.reportsJoined = true }

func (w *world) wantJoined(calls int, removed bool) {
	w.t.Helper()
	if got := w.cloud.JoinedRequests(); len(got) != calls {
		w.t.Errorf("got %d calls of Joined, want %d", len(got), calls)
	}
	if got := w.get("m").Status.Instance.BootDataRemoved; got != removed {
		w.t.Errorf("got status.instance.bootDataRemoved %v, want %v", got, removed)
	}
}

// Rules: boot-data-removed-after-join.
func TestJoinedIsReportedOnceTheNodeIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reportingJoined)
	w.class("small", "#cloud-config")
	w.createMachine("m")
	w.reconcile("m")
	w.node("m", false)
	w.reconcile("m")
	w.wantJoined(0, false)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionTrue)
	w.reconcile("m")
	w.wantJoined(1, true)
	if got, in := w.cloud.JoinedRequests()[0], w.cloud.LiveInstances()[0]; got.ProviderID != in.ProviderID ||
		got.Scope != in.Scope || got.Machine.UID != in.MachineUID {
		t.Errorf("Joined was called for %+v, want the instance %+v", got, in)
	}
	w.reconcile("m")
	w.restart()
	w.reconcile("m")
	w.wantJoined(1, true)
}

// Rules: boot-data-removed-after-join.
func TestJoinedIsRepeatedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reportingJoined)
	w.class("small", "#cloud-config")
	w.cloud.Fail("Joined", provider.Errorf(provider.Unavailable, "the cloud is down"),
		provider.Errorf(provider.PermissionDenied, "no permission"))
	w.running("m")
	w.wantJoined(1, false)
	w.reconcile("m")
	w.wantJoined(1, false) // The backoff has not passed.
	for range 2 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
		w.reconcile("m")
	}
	w.wantJoined(3, true)
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

func TestJoinedIsNotRepeatedIfTheDriverCannotDoIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reportingJoined)
	w.class("small", "#cloud-config")
	w.cloud.Fail("Joined", provider.Errorf(provider.Unimplemented, "the data of this instance cannot be removed"))
	w.running("m")
	for range 2 {
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
		w.reconcile("m")
	}
	w.wantJoined(1, false)
}

func TestJoinedIsNotReportedWithoutJoiner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.running("m")
	w.wantJoined(0, false)
}
