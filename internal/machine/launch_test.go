package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Each error code leads to a certain condition, phase and time of the next attempt.
//
// Rule: retry-policy-by-code.
func TestErrorsOfCreate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code     provider.Code
		reason   string
		phase    v1beta1.MachinePhase
		low, top time.Duration // both zero: only after a change
	}{
		{provider.InvalidArgument, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 10 * time.Minute,
			12*time.Minute + 30*time.Second},
		{provider.FailedPrecondition, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 10 * time.Minute,
			12*time.Minute + 30*time.Second},
		{provider.Unimplemented, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 0, 0},
		{provider.ResourceExhausted, v1beta1.ReasonInsufficientResources, v1beta1.MachineProvisioning, time.Minute,
			75 * time.Second},
		{provider.Unauthenticated, v1beta1.ReasonCredentialsRefused, v1beta1.MachineProvisioning, 30 * time.Second,
			38 * time.Second},
		{provider.PermissionDenied, v1beta1.ReasonCredentialsRefused, v1beta1.MachineProvisioning, 30 * time.Second,
			38 * time.Second},
		{provider.Unavailable, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.DeadlineExceeded, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, time.Second,
			2 * time.Second},
		{provider.Throttled, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, 7 * time.Second,
			7 * time.Second},
		{provider.Aborted, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.Internal, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.Unknown, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
	} {
		t.Run(string(tc.code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.createMachine("m")
			failure := provider.Errorf(tc.code, "no")
			if tc.code == provider.Throttled {
				failure.RetryAfter = 7 * time.Second
			}
			w.cloud.Fail("Create", failure)
			result := w.reconcile("m")
			within(t, "the wait", result.RequeueAfter, tc.low, tc.top)
			m := w.get("m")
			w.wantPhase(m, tc.phase)
			c := w.wantCondition(m, v1beta1.ConditionLaunched, "False", tc.reason)
			if c.Message != string(tc.code)+": no" {
				t.Errorf("message is %q", c.Message)
			}
			w.wantCondition(m, v1beta1.ConditionReady, "False", tc.reason)
			if o := m.Status.LastOperation; o.Code != string(tc.code) || o.Attempts != 1 {
				t.Errorf("lastOperation is %+v", o)
			}
			want(t, "events", reasons(w.events.take()), tc.reason)

			w.wantQuiet("m")
			want(t, "driver calls before the next try is due", w.effects.calls())
			w.setSecret("small-credentials", "token", "rotated")
			w.reconcile("m")
			want(t, "driver calls with other credentials", w.effects.calls(), "cloud create")
			w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
		})
	}
}

// Rule: one-event-per-error.
func TestRetriesBackOffAndCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	for range 3 {
		w.cloud.Fail("Create", provider.Errorf(provider.Unavailable, "no"))
	}
	for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		wait := w.reconcile("m").RequeueAfter
		within(t, "the wait", wait, want, want*5/4)
		if got := w.get("m").Status.LastOperation.Attempts; got != int32(n)+1 {
			t.Errorf("attempts = %d after %d failures", got, n+1)
		}
		w.step(wait)
		if n == 1 {
			w.restart()
		}
	}
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineProvisioned)
	if o := m.Status.LastOperation; o.Code != "" || o.Attempts != 0 {
		t.Errorf("lastOperation after success is %+v", o)
	}
	want(t, "events of one series of failures", reasons(w.events.take()), v1beta1.ReasonProviderUnavailable)
	first := w.cloud.Requests()[0]
	for _, req := range w.cloud.Requests() {
		if req.Token != first.Token || string(req.UserData.Reveal()) != string(first.UserData.Reveal()) {
			t.Errorf("a retry was sent with token %s and user data %s, first with %s and %s", req.Token, req.UserData.Reveal(),
				first.Token, first.UserData.Reveal())
		}
	}
}

// One event is recorded, and the machine waits for a trigger.
//
// Rule: missing-inputs-no-call.
func TestLaunchWaitsForMissingInputs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason string
		prepare      func(*world)
		repair       func(*world)
	}{
		{"class", v1beta1.ReasonClassNotFound,
			func(*world) {},
			func(w *world) { w.class("small", "") }},
		{"credentials", v1beta1.ReasonCredentialsNotFound,
			func(w *world) { w.class("small", ""); w.drop("small-credentials") },
			func(w *world) { w.create(w.withFinalizer(w.secret("small-credentials", "token", "again"))) }},
		{"user data", v1beta1.ReasonUserDataNotFound,
			func(w *world) { w.class("small", "x"); w.drop("small-user-data") },
			func(w *world) { w.create(w.secret("small-user-data", "userData", "x")) }},
		{"user data that cannot be read", v1beta1.ReasonInvalidConfiguration,
			func(w *world) { w.class("small", "H4sIAAAAAAAA/w==") },
			func(w *world) { w.setSecret("small-user-data", "userData", "x") }},
		{"version", v1beta1.ReasonInvalidConfiguration,
			func(w *world) { w.class("small", "<<KUBELET_VERSION>>") },
			func(w *world) { w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.3" }) }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.prepare(w)
			w.createMachine("m")
			w.reconcile("m")
			m := w.get("m")
			w.wantPhase(m, v1beta1.MachinePending)
			w.wantCondition(m, v1beta1.ConditionLaunched, "False", tc.reason)
			w.wantCondition(m, v1beta1.ConditionReady, "False", tc.reason)
			w.wantRest("m")
			// The machine does not fail, because its time limit starts when all inputs exist.
			w.step(time.Hour)
			w.restart()
			w.wantRest("m")
			want(t, "events", reasons(w.events.take()), tc.reason)
			want(t, "driver calls", w.effects.calls())
			tc.repair(w)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
			w.node("m", true)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		})
	}
}

func (w *world) drop(secret string) {
	w.t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: secret}}
	w.removeFinalizers(o)
	if err := w.api.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// The time limit starts with the first attempt that is not refused.
//
// Rule: join-timeout-fails-machine.
func TestAFailureAfterARefusalIsNotATimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createMachine("m")
	w.reconcile("m")
	w.step(time.Hour)
	w.class("small", "")
	w.cloud.Fail("Create", provider.Errorf(provider.Unavailable, "no"))
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
}

// Rule: paused-machine-untouched.
func TestAPausedMachineIsNotLaunched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPaused, "") })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionPaused, "True", v1beta1.ReasonPausedByAnnotation)
	w.wantPhase(w.get("m"), v1beta1.MachinePending)
	w.wantRest("m")
	w.step(time.Hour)
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	w.wantCondition(w.get("m"), v1beta1.ConditionPaused, "False", v1beta1.ReasonNotPaused)
}

// Rule: missing-inputs-no-call.
func TestAClassOfAnotherProviderIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	class.Spec.Provider, class.Spec.ProviderSpec = "other", &runtime.RawExtension{Raw: []byte(`{}`)}
	w.create(class)
	w.createMachine("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonInvalidConfiguration)
	w.wantRest("m")
}

// A machine without an instance fails at its timeout, so that an autoscaler can react. The launch continues, and the
// machine recovers.
//
// Rule: join-timeout-fails-machine.
func TestFailingToLaunchInTime(t *testing.T) {
	t.Parallel()
	for code, reason := range map[provider.Code]v1beta1.MachineFailureReason{
		provider.ResourceExhausted: v1beta1.FailureInsufficientResources,
		provider.Unavailable:       v1beta1.FailureCreateError,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.createMachine("m")
			for range 30 {
				w.cloud.Fail("Create", provider.Errorf(code, "no"))
			}
			m := w.untilPhase("m", v1beta1.MachineFailed)
			if m.Status.FailureReason != reason {
				t.Errorf("failureReason is %s, want %s", m.Status.FailureReason, reason)
			}
			age := w.clock.Since(m.CreationTimestamp.Time)
			within(t, "the age of the machine when it failed", age, 20*time.Minute, 21*time.Minute)
			attempts := m.Status.LastOperation.Attempts
			if m.Status.LastOperation.Code != string(code) || attempts < 4 {
				t.Errorf("lastOperation is %+v, want the last code and all attempts", m.Status.LastOperation)
			}
			w.runUntil("m", "another attempt", func() bool { return w.get("m").Status.LastOperation.Attempts == attempts+1 })
			within(t, "the wait of a failed machine", w.wantQuiet("m").RequeueAfter, 4*time.Minute, 13*time.Minute)
			want(t, "events", reasons(w.events.take()), createRetryPolicy(code).reason, string(reason))

			w.cloud.Recover()
			w.joins = true
			m = w.untilPhase("m", v1beta1.MachineRunning)
			if m.Status.FailureMessage != "" {
				t.Errorf("failureMessage is still %q", m.Status.FailureMessage)
			}
			w.wantRest("m")
		})
	}
}

// After a crash between the two writes that follow Create, the Machine has a provider ID, and its status contains no
// instance.
//
// Rule: pending-instance-polled.
func TestFollowingAnInstanceBacksOff(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.Unavailable, provider.InvalidArgument, provider.Unauthenticated,
		provider.Unknown} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			w.class("small", "")
			w.createMachine("m")
			w.effects.next = effectCut{effectNumber: 3, dies: true} // 3 is the status write, after Create and the provider ID
			_, _ = w.pass("m")
			w.restart()
			for range 8 {
				w.cloud.Fail("Get", provider.Errorf(code, "no"))
			}
			var last time.Duration
			for range 4 {
				wait := w.reconcile("m").RequeueAfter
				if wait < time.Second || wait < last {
					t.Errorf("the next lookup is after %s, after the last wait of %s", wait, last)
				}
				last = wait
				w.step(wait)
			}
			w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
			w.untilPhase("m", v1beta1.MachineRunning)
			want(t, "creates", w.effects.since("cloud create"), "cloud create")
		})
	}
}

// Rule: pending-instance-polled.
func TestAPendingInstanceThatFailsFailsTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot = time.Minute
	w.class("small", "")
	w.createMachine("m")
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.SetState(w.cloud.LiveInstances()[0].ProviderID, provider.StateFailed, "the disk melted")
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureCreateError ||
		!strings.Contains(m.Status.FailureMessage, "the disk melted") {
		t.Errorf("failure is %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	w.wantRest("m")
}

func TestAPendingInstanceThatVanishesFailsTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Boot = time.Minute
	w.class("small", "")
	w.createMachine("m")
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.Vanish(w.cloud.LiveInstances()[0].ProviderID)
	m := w.untilPhase("m", v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("failureReason is %s", m.Status.FailureReason)
	}
	if result := w.wantQuiet("m"); result.RequeueAfter != 0 {
		t.Errorf("a vanished machine is requeued after %s", result.RequeueAfter)
	}
}
