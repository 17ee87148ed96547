package machine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const joinsWithToken = "join <<API_ENDPOINT>> as <<MACHINE_NAME>> with <<BOOTSTRAP_TOKEN>>"

// What each code of Create leads to: the condition, the phase, whether and when it is tried again.
//
// M-11.
func TestErrorsOfCreate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code     provider.Code
		reason   string
		phase    v1beta1.MachinePhase
		low, top time.Duration // both zero: not before something changes
	}{
		{provider.InvalidArgument, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 0, 0},
		{provider.FailedPrecondition, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 0, 0},
		{provider.Unimplemented, v1beta1.ReasonInvalidConfiguration, v1beta1.MachinePending, 0, 0},
		{provider.ResourceExhausted, v1beta1.ReasonInsufficientResources, v1beta1.MachineProvisioning, time.Minute, 75 * time.Second},
		{provider.Unauthenticated, v1beta1.ReasonCredentialsRefused, v1beta1.MachineProvisioning, 30 * time.Second, 38 * time.Second},
		{provider.PermissionDenied, v1beta1.ReasonCredentialsRefused, v1beta1.MachineProvisioning, 30 * time.Second, 38 * time.Second},
		{provider.Unavailable, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.DeadlineExceeded, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.Throttled, v1beta1.ReasonProviderUnavailable, v1beta1.MachineProvisioning, 7 * time.Second, 7 * time.Second},
		{provider.Aborted, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.Internal, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
		{provider.Unknown, v1beta1.ReasonCreateFailed, v1beta1.MachineProvisioning, time.Second, 2 * time.Second},
	} {
		t.Run(string(tc.code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.born("m")
			failure := provider.Errorf(tc.code, "no")
			if tc.code == provider.Throttled {
				failure.RetryAfter = 7 * time.Second
			}
			w.cloud.fail("Create", failure)
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

			// Being woken for another reason is no reason to try again.
			w.wantQuiet("m")
			want(t, "driver calls before it is time", w.effects.calls())
			// New credentials are.
			w.setSecret("small-credentials", "token", "rotated")
			w.reconcile("m")
			want(t, "driver calls with other credentials", w.effects.calls(), "cloud create")
			w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
		})
	}
}

// M-12.
func TestRetriesBackOffAndCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.born("m")
	for range 3 {
		w.cloud.fail("Create", provider.Errorf(provider.Unavailable, "no"))
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
	want(t, "events of one spell of failures", reasons(w.events.take()), v1beta1.ReasonProviderUnavailable)
	first := w.cloud.created()[0]
	for _, req := range w.cloud.created() {
		if req.Token != first.Token || string(req.UserData.Reveal()) != string(first.UserData.Reveal()) {
			t.Errorf("a retry was sent with token %s and user data %s, first with %s and %s", req.Token, req.UserData.Reveal(), first.Token, first.UserData.Reveal())
		}
	}
}

// Nothing is asked of the cloud, one event is sent, and the machine waits to be woken.
//
// M-5.
func TestALaunchWaitsForWhatIsMissing(t *testing.T) {
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
			func(w *world) { w.create(w.secret("small-credentials", "token", "again")) }},
		{"user data", v1beta1.ReasonUserDataNotFound,
			func(w *world) { w.class("small", "x"); w.drop("small-user-data") },
			func(w *world) { w.create(w.secret("small-user-data", "userData", "x")) }},
		{"placeholder", v1beta1.ReasonInvalidConfiguration,
			func(w *world) { w.class("small", "<<NONSENSE>>") },
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
			w.born("m")
			w.reconcile("m")
			m := w.get("m")
			w.wantPhase(m, v1beta1.MachinePending)
			w.wantCondition(m, v1beta1.ConditionLaunched, "False", tc.reason)
			w.wantCondition(m, v1beta1.ConditionReady, "False", tc.reason)
			w.wantRest("m")
			// However long it takes, it is not the machine that failed, and it has all its time afterwards.
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
	if err := w.api.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: secret}}); err != nil {
		w.t.Fatal(err)
	}
}

// The time of a launch that was refused begins when it is first tried.
//
// M-15.
func TestAFailureAfterARefusalIsNotATimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.born("m")
	w.reconcile("m")
	w.step(time.Hour)
	w.class("small", "")
	w.cloud.fail("Create", provider.Errorf(provider.Unavailable, "no"))
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
}

// M-4.
func TestAPausedMachineIsNotLaunched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.born("m", func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPaused, "") })
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

// M-5.
func TestAClassOfAnotherProviderIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	class.Spec.Provider, class.Spec.ProviderSpec = "other", &runtime.RawExtension{Raw: []byte(`{}`)}
	w.create(class)
	w.born("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonInvalidConfiguration)
	w.wantRest("m")
}

// A message may be as long as what it complains of, and must not make the status unwritable.
func TestAnAbsurdTemplateIsReportedAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var template strings.Builder
	for i := range 26 * 26 * 26 {
		template.WriteString("<<LONG_NAME_OF_NO_MEANING_" + string([]byte{'A' + byte(i/676), 'A' + byte(i/26%26), 'A' + byte(i%26)}) + ">>")
	}
	w.class("small", template.String())
	w.born("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonInvalidConfiguration)
	w.wantRest("m")
}

// Without an instance the machine fails at its timeout, for an autoscaler to move on, goes on trying, and recovers.
//
// M-15.
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
			w.born("m")
			for range 30 {
				w.cloud.fail("Create", provider.Errorf(code, "no"))
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
			w.until("m", "another attempt", func() bool { return w.get("m").Status.LastOperation.Attempts == attempts+1 })
			within(t, "the wait of a failed machine", w.wantQuiet("m").RequeueAfter, 4*time.Minute, 13*time.Minute)
			want(t, "events", reasons(w.events.take()), createConsequence(code).reason, string(reason))

			w.cloud.script = map[string][]scripted{}
			w.joins = true
			m = w.untilPhase("m", v1beta1.MachineRunning)
			if m.Status.FailureMessage != "" {
				t.Errorf("failureMessage is still %q", m.Status.FailureMessage)
			}
			w.wantRest("m")
		})
	}
}

// A Create whose answer was lost may have made an instance that lookups do not show yet. When the next one is refused
// since its user data differs, the machine has to wait for it to show; a new attempt would make a twin.
//
// M-8.
func TestALostInstanceIsFoundBeforeAnotherIsMade(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		then func(*world)
	}{
		{"in one process", func(*world) {}},
		{"after a restart", func(w *world) { w.restart() }},
		{"after a call that took no effect", func(w *world) {
			w.cloud.fail("Create", provider.Errorf(provider.Throttled, "slow down"))
			w.step(w.reconcile("m").RequeueAfter)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			// A long time passes between the start of the process and the birth of the machine.
			w.reconcile("nobody")
			w.step(10 * time.Minute)
			w.cloud.blind = 40 * time.Second
			w.class("small", "one")
			w.born("m")
			w.cloud.will("Create", scripted{err: provider.Errorf(provider.DeadlineExceeded, "no answer"), late: time.Millisecond})
			w.step(w.reconcile("m").RequeueAfter)
			w.setSecret("small-user-data", "userData", "two")
			tc.then(w)
			m := w.untilPhase("m", v1beta1.MachineRunning)
			if made := w.cloud.made[m.UID]; made != 1 || len(w.cloud.twins) > 0 {
				t.Errorf("%d instances were made", made)
			}
		})
	}
}

// A token whose instance came and went is spent: once that is certain, a new attempt is opened, with a token of its own.
//
// M-9.
func TestASpentAttemptIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	m := w.born("m")
	w.cloud.will("Create", scripted{err: provider.Errorf(provider.DeadlineExceeded, "no answer"), late: time.Millisecond})
	before := w.clock.Now()
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.vanish(w.cloud.live()[0].ProviderID)
	m = w.untilPhase("m", v1beta1.MachineRunning)
	if m.LaunchAttempt() != 2 {
		t.Errorf("attempt is %d", m.LaunchAttempt())
	}
	if waited := w.clock.Since(before); waited < w.cloud.settle {
		t.Errorf("another attempt was made after %s, before the first had settled", waited)
	}
	last := w.cloud.created()[len(w.cloud.created())-1]
	if last.Token != string(m.UID)+"-2" {
		t.Errorf("the second attempt was made with the token %s", last.Token)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d bootstrap tokens are left of a machine that runs", n)
	}
}

// A bootstrap token must live long enough to join with.
//
// M-9.
func TestAnOldTokenIsReplacedByANewAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.born("m")
	for range 40 {
		w.cloud.fail("Create", provider.Errorf(provider.Throttled, "slow down"))
	}
	w.until("m", "a second attempt", func() bool { return w.get("m").LaunchAttempt() == 2 })
	first, created := w.cloud.created()[0], len(w.cloud.created())
	w.cloud.script = map[string][]scripted{}
	m := w.untilPhase("m", v1beta1.MachineRunning)
	requests := w.cloud.created()
	if len(requests) != created+1 || string(requests[created].UserData.Reveal()) == string(first.UserData.Reveal()) {
		t.Errorf("%d calls after the new attempt, user data %s", len(requests)-created, requests[created].UserData.Reveal())
	}
	if age := w.clock.Since(m.CreationTimestamp.Time); age < 10*time.Minute {
		t.Errorf("the token was replaced after %s, it lives 20m", age)
	}
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d bootstrap tokens are left of a machine that runs", n)
	}
}

// The decision to create is taken on the live object: a cache may be late by any amount.
//
// M-10.
func TestAStaleCacheCreatesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		then func(*world)
	}{
		{"launched meanwhile", func(w *world) { w.reconcile("m") }},
		{"being deleted meanwhile", func(w *world) { w.delete("m") }},
		{"gone meanwhile", func(w *world) { w.delete("m"); w.untilGone("m") }},
		{"another one meanwhile", func(w *world) { w.delete("m"); w.untilGone("m"); w.born("m") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.born("m")
			stale := w.get("m")
			tc.then(w)
			w.options.Client = interceptor.NewClient(w.options.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if m, ok := o.(*v1beta1.Machine); ok {
						stale.DeepCopyInto(m)
						return nil
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			w.restart()
			w.effects.clear()
			result := w.reconcile("m")
			if done := w.effects.of(); len(done) > 0 || result.RequeueAfter == 0 {
				t.Errorf("a pass over a stale machine did %q and comes back after %s", done, result.RequeueAfter)
			}
		})
	}
}

// A crash between the two writes after Create leaves a provider ID and no status. Whatever the driver answers, its Get is
// not called without end.
//
// M-14.
func TestFollowingAnInstanceBacksOff(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.Unavailable, provider.InvalidArgument, provider.Unauthenticated, provider.Unknown} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			w.class("small", "")
			w.born("m")
			w.effects.next = cut{at: 3, dies: true} // create, provider ID, status
			_, _ = w.pass("m")
			w.restart()
			for range 8 {
				w.cloud.fail("Get", provider.Errorf(code, "no"))
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
			want(t, "creates", w.effects.of("cloud create"), "cloud create")
		})
	}
}

// M-14.
func TestAPendingInstanceThatFailsFailsTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.boot = time.Minute
	w.class("small", "")
	w.born("m")
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.state(w.cloud.live()[0].ProviderID, provider.StateFailed, "the disk melted")
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureCreateError || !strings.Contains(m.Status.FailureMessage, "the disk melted") {
		t.Errorf("failure is %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	w.wantRest("m")
}

func TestAPendingInstanceThatVanishesFailsTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.boot = time.Minute
	w.class("small", "")
	w.born("m")
	w.step(w.reconcile("m").RequeueAfter)
	w.cloud.vanish(w.cloud.live()[0].ProviderID)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("failureReason is %s", m.Status.FailureReason)
	}
	if result := w.wantQuiet("m"); result.RequeueAfter != 0 {
		t.Errorf("a vanished machine asks for another pass after %s", result.RequeueAfter)
	}
}

// The token secret is the one thing that a launch writes into the target cluster; an outage of it is no error of the machine.
//
// M-7.
func TestALaunchWaitsForTheTargetClusterIfItNeedsAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.born("m")
	w.refuse = func(verb string, o runtime.Object) error {
		if _, ok := o.(*corev1.Secret); ok && verb == "create" {
			return errors.New("connection refused")
		}
		return nil
	}
	if _, err := w.pass("m"); err == nil {
		t.Error("the pass reports no error to retry on")
	}
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioning)
	w.refuse = nil
	w.untilPhase("m", v1beta1.MachineRunning)
}
