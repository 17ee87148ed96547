package machine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/capacity"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// full contains the accounts of a cloud that has no capacity in them.
type full map[string]bool

func (f full) refuse(r provider.CreateRequest) error {
	account, _ := r.Class.Credentials.Get("account")
	if f[string(account.Reveal())] {
		return provider.Errorf(provider.ResourceExhausted, "no host in %s", account.Reveal())
	}
	return nil
}

// placing returns a world with the classes "small" and "large", whose instances are in accounts of the same names.
// The accounts in the result have no capacity. No other process led before.
func placing(t *testing.T, change ...func(*world)) (*world, full) {
	t.Helper()
	w := newWorld(t, append([]func(*world){joining}, change...)...)
	noCapacity := full{}
	w.cloud.Refuse = noCapacity.refuse
	w.options.MachineCacheVersion = func() string { return "18446744073709551615" }
	w.restart()
	for _, class := range []string{"small", "large"} {
		w.class(class, joinsWithToken)
		w.setSecret(class+"-credentials", "account", class)
	}
	w.createMachine("first", inDomain) // The process learns when it became the leader.
	w.reconcile("first")
	w.delete("first")
	w.untilGone("first")
	w.reconcile("first") // The delete event triggers this pass.
	w.effects.clear()
	w.events.take()
	return w, noCapacity
}

func inDomain(m *v1beta1.Machine) { m.Labels[v1beta1.LabelPlacementDomain] = "a" }

func (w *world) getClass(name string) *v1beta1.MachineClass {
	w.t.Helper()
	class := &v1beta1.MachineClass{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, class); err != nil {
		w.t.Fatal(err)
	}
	return class
}

func (w *world) wantExhausted(class string, want bool) capacity.State {
	w.t.Helper()
	state := capacity.StateOf(w.getClass(class))
	if state.Exhausted != want {
		w.t.Errorf("class %s is exhausted: %t, want %t", class, state.Exhausted, want)
	}
	return state
}

// park creates a Machine of a placement that waits for capacity.
func (w *world) park(name string) *v1beta1.Machine {
	w.t.Helper()
	w.createMachine(name, inDomain)
	w.reconcile(name)
	m := w.get(name)
	if !m.IsAwaitingCapacity() {
		w.t.Fatalf("launch is %+v: %s", m.Status.Launch, summaryOf(m))
	}
	return m
}

// changeClass does what a MachineSet does with a Machine that awaits capacity.
func (w *world) changeClass(name, class string) {
	w.t.Helper()
	w.update(name, func(m *v1beta1.Machine) {
		m.Spec.ClassRef.Name, m.Labels[v1beta1.LabelPlacementDomain] = class, "b"
	})
}

// Rules: capacity-memory, awaiting-capacity-sends-nothing.
func TestAMachineOfAPlacementAwaitsCapacity(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	m := w.park("m")
	want(t, "effects", w.effects.since("API Machine", "cloud"), "cloud create", "API MachineClass patch status",
		"API Machine patch status")
	if l := m.Status.Launch; l.Attempt != 2 || !l.Refused || l.NoCapacitySince == nil {
		t.Errorf("launch is %+v", l)
	}
	w.wantPhase(m, v1beta1.MachineProvisioning)
	c := w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonInsufficientResources)
	state := w.wantExhausted("small", true)
	if retry := state.RetryTime.UTC().Format(time.RFC3339); !strings.Contains(c.Message, retry) ||
		!strings.Contains(c.Message, `"small"`) {
		t.Errorf("the message %q does not name the class and %s", c.Message, retry)
	}
	if o := m.Status.LastOperation; o.Code != string(provider.ResourceExhausted) || o.NextTryTime != nil {
		t.Errorf("lastOperation is %+v", o)
	}
	if tokens := w.tokens(); len(tokens) > 0 {
		t.Errorf("there are %d bootstrap tokens", len(tokens))
	}
	want(t, "events", reasons(w.events.take()), v1beta1.ReasonInsufficientResources)
	want(t, "events on the class", reasons(w.events.onClasses), "NoCapacity")

	within(t, "the wait", w.wantQuiet("m").RequeueAfter, 58*time.Second, time.Minute)
	w.step(state.RetryTime.Sub(w.clock.Now()) - time.Second)
	within(t, "the remaining wait", w.wantQuiet("m").RequeueAfter, time.Second, time.Second)
	want(t, "driver calls before the retry time", w.effects.calls())
	noCapacity["small"] = false
	m = w.untilPhase("m", v1beta1.MachineRunning)
	if l := m.Status.Launch; l.Attempt != 2 || l.Step != "" || l.Refused || l.NoCapacitySince != nil {
		t.Errorf("launch is %+v once the machine runs", l)
	}
	w.wantExhausted("small", false)
	if class := w.getClass("small"); class.Status.CapacityRetryTime != nil ||
		!meta.IsStatusConditionTrue(class.Status.Conditions, v1beta1.ConditionCapacityAvailable) {
		t.Errorf("the status of the class is %+v", class.Status)
	}
	want(t, "events on the class", reasons(w.events.onClasses), "NoCapacity", "CapacityFound")
	w.wantRest("m")
}

// Rule: capacity-memory.
func TestACreationWithoutFailureWritesNoCapacity(t *testing.T) {
	t.Parallel()
	w, _ := placing(t)
	w.createMachine("m", inDomain)
	w.untilPhase("m", v1beta1.MachineRunning)
	want(t, "writes of the class", w.effects.since("API MachineClass"))
	want(t, "writes of the machine", w.effects.since("API Machine"), "API Machine patch", "API Machine patch status",
		"API Machine patch status")
}

// Rules: capacity-memory, retry-policy-by-code.
func TestAMachineWithoutPlacementRecordsCapacityAndRetriesSlowly(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.createMachine("m")
	within(t, "the wait", w.reconcile("m").RequeueAfter, time.Minute, time.Minute+time.Minute/4)
	if m := w.get("m"); m.IsAwaitingCapacity() || m.LaunchAttempt() != 1 {
		t.Errorf("launch is %+v", m.Status.Launch)
	}
	w.wantExhausted("small", true)
	noCapacity["small"] = false
	w.untilPhase("m", v1beta1.MachineRunning)
	w.wantExhausted("small", false)
}

// Rules: awaiting-capacity-sends-nothing, create-is-idempotent.
func TestAMachineThatAwaitsCapacityLaunchesWithItsNewClass(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	before := w.park("m")
	w.changeClass("m", "large")
	w.reconcile("m")
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if m.Status.Instance.Account != "large" || m.Status.Applied.ClassName != "large" {
		t.Errorf("the instance is %+v of %+v", m.Status.Instance, m.Status.Applied)
	}
	requests := w.cloud.Requests()
	if first, second := requests[len(requests)-2].Token, requests[len(requests)-1].Token; first == second {
		t.Errorf("both attempts have the token %s", first)
	}
	if n := w.cloud.CreatedCount(before.UID); n != 1 {
		t.Errorf("%d instances were created", n)
	}
	w.wantExhausted("small", true)
	w.wantExhausted("large", false)
}

// Rule: awaiting-capacity-sends-nothing.
func TestTheFirstAttemptOfAnExhaustedClassIsNotSent(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.effects.clear()
	m := w.park("n")
	want(t, "effects", w.effects.since(), "API Machine patch status")
	if m.LaunchAttempt() != 1 {
		t.Errorf("launch is %+v", m.Status.Launch)
	}
	w.changeClass("n", "large")
	w.untilPhase("n", v1beta1.MachineRunning)
	w.wantRest("n")
}

// An earlier Create without an answer may have created an instance, and the answer of the next Create says nothing
// about that instance.
//
// Rules: attempt-ends-before-class-changes, create-is-idempotent.
func TestALostCreateIsSettledBeforeTheMachineAwaitsCapacity(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"takes effect late": 40 * time.Second, "has no effect": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, noCapacity := placing(t)
			w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"), EffectDelay: delay})
			noCapacity["small"] = true
			uid := w.createMachine("m", inDomain).UID
			w.step(w.reconcile("m").RequeueAfter)
			sent := w.clock.Now()
			w.reconcile("m")
			if m := w.get("m"); m.IsAwaitingCapacity() {
				t.Fatal("the machine awaits capacity, but its instance may still appear")
			}
			if tokens := w.tokens(); len(tokens) != 1 {
				t.Errorf("there are %d bootstrap tokens, but the instance may still join", len(tokens))
			}
			if delay > 0 {
				w.untilPhase("m", v1beta1.MachineRunning)
			} else {
				w.runUntil("m", "the wait for capacity", func() bool { return w.get("m").IsAwaitingCapacity() })
				within(t, "the time until the attempt has ended", w.clock.Since(sent), 55*time.Second, 65*time.Second)
				w.changeClass("m", "large")
				w.untilPhase("m", v1beta1.MachineRunning)
			}
			if n := w.cloud.CreatedCount(uid); n != 1 {
				t.Errorf("%d instances were created", n)
			}
			want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
		})
	}
}

// The classes belong to different accounts, so the cloud cannot know that both requests are for the same Machine.
//
// Rules: attempt-ends-before-class-changes, create-is-idempotent.
func TestAClassThatChangesDuringTheAttemptLeadsToOneInstance(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"same process": false, "new process": true} {
		for effect, delay := range map[string]time.Duration{"late": 40 * time.Second, "at once": time.Millisecond, "none": 0} {
			t.Run(name+"/"+effect, func(t *testing.T) {
				t.Parallel()
				w, _ := placing(t)
				w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"), EffectDelay: delay})
				uid := w.createMachine("m", inDomain).UID
				w.reconcile("m")
				w.changeClass("m", "large")
				if restarts {
					w.restart()
				}
				m := w.untilPhase("m", v1beta1.MachineRunning)
				if n := w.cloud.CreatedCount(uid); n != 1 {
					t.Errorf("%d instances were created", n)
				}
				want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
				if account := m.Status.Instance.Account; (account == "small") != (delay > 0) {
					t.Errorf("the instance is in account %s", account)
				}
			})
		}
	}
}

// Rule: attempt-ends-before-class-changes.
func TestAMachineWithoutAnAttemptLaunchesWithItsNewClass(t *testing.T) {
	t.Parallel()
	w, _ := placing(t)
	w.createMachine("m", inDomain)
	w.changeClass("m", "large")
	w.reconcile("m")
	want(t, "driver calls", w.effects.calls(), "cloud create")
	if m := w.untilPhase("m", v1beta1.MachineRunning); m.Status.Instance.Account != "large" || m.LaunchAttempt() != 1 {
		t.Errorf("the instance is %+v, launch %+v", m.Status.Instance, m.Status.Launch)
	}
}

// Rules: capacity-memory, late-lack-of-capacity.
func TestAnInstanceOfAPlacementThatFailsForLackOfCapacity(t *testing.T) {
	t.Parallel()
	w, _ := placing(t)
	w.cloud.Boot, w.cloud.Shutdown = time.Hour, 5*time.Second
	m := w.createMachine("m", inDomain)
	w.reconcile("m")
	w.step(2 * time.Second)
	w.failInstances(provider.ResourceExhausted)
	w.reconcile("m")
	w.wantExhausted("small", true)
	if !w.get("m").Retrying() {
		t.Fatalf("launch is %+v", w.get("m").Status.Launch)
	}
	w.runUntil("m", "the wait for capacity", func() bool { return w.get("m").IsAwaitingCapacity() })
	if in := w.cloud.LiveInstances(); len(in) > 0 {
		t.Errorf("%d instances exist", len(in))
	}
	if tokens := w.tokens(); len(tokens) > 0 {
		t.Errorf("there are %d bootstrap tokens", len(tokens))
	}
	if got := w.get("m"); got.Spec.ProviderID != "" || got.Status.Instance != nil || got.LaunchAttempt() != 2 {
		t.Errorf("the machine is %s", summaryOf(got))
	}
	w.cloud.Boot = 0
	w.changeClass("m", "large")
	w.untilPhase("m", v1beta1.MachineRunning)
	if n := w.cloud.CreatedCount(m.UID); n != 2 {
		t.Errorf("%d instances were created", n)
	}
	want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
}

// Rules: one-probe-per-pool, capacity-memory.
func TestOneMachineAtATimeProbesAnExhaustedClass(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.park("n")
	state := w.wantExhausted("small", true)
	calls := func() int { return len(w.cloud.Requests()) }
	both := func() {
		w.reconcile("m")
		w.reconcile("n")
	}
	before := calls()
	for i := 1; i <= 4; i++ { // The waits are 1, 1, 2 and 4 minutes.
		w.step(state.RetryTime.Sub(w.clock.Now()))
		both()
		both()
		if probes := calls() - before; probes != i {
			t.Fatalf("there were %d probes after %d retry times", probes, i)
		}
		next := w.wantExhausted("small", true)
		elapsed := next.RetryTime.Sub(w.clock.Now())
		within(t, "the next wait", elapsed, max(time.Minute, w.clock.Since(next.Since))-time.Second,
			max(time.Minute, w.clock.Since(next.Since))+time.Second)
		state = next
	}

	noCapacity["small"] = false
	w.cloud.Boot = 30 * time.Second
	before = calls()
	w.step(state.RetryTime.Sub(w.clock.Now()))
	both()
	both()
	if probes := calls() - before; probes != 1 {
		t.Errorf("%d machines probe at the same time", probes)
	}
	w.untilPhase("m", v1beta1.MachineRunning)
	w.wantExhausted("small", false)
	w.untilPhase("n", v1beta1.MachineRunning)
}

// Rule: one-probe-per-pool.
func TestTheProbeEndsWithItsAttempt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"deleted": func(w *world) {
			w.delete("m")
			w.reconcile("m")
		},
		"fails late": func(w *world) {
			w.failInstances(provider.ResourceExhausted)
			w.step(5 * time.Second)
			w.reconcile("m")
		},
		"new leader": func(w *world) { w.restart() },
		"cannot become a node": func(w *world) {
			w.step(21 * time.Minute)
			w.reconcile("m")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, noCapacity := placing(t)
			noCapacity["small"] = true
			w.park("m")
			w.park("n")
			noCapacity["small"] = false
			w.cloud.Boot = time.Hour
			w.step(time.Minute + time.Second)
			w.reconcile("m")
			w.reconcile("n")
			if n := w.get("n"); n.Spec.ProviderID != "" || !n.IsAwaitingCapacity() {
				t.Fatalf("both machines probe: %s", summaryOf(n))
			}
			end(w)
			w.runUntil("n", "its probe", func() bool { return w.get("n").Spec.ProviderID != "" })
		})
	}
}

// A machine may be paused for days.
//
// Rule: one-probe-per-pool.
func TestAPausedMachineEndsItsProbe(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.park("n")
	noCapacity["small"] = false
	w.cloud.Boot = time.Hour
	w.step(time.Minute + time.Second)
	w.reconcile("m")
	w.reconcile("n")
	if n := w.get("n"); n.Spec.ProviderID != "" {
		t.Fatalf("both machines probe: %s", summaryOf(n))
	}
	w.update("m", func(m *v1beta1.Machine) { m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""} })
	w.reconcile("m")
	w.reconcile("n")
	if n := w.get("n"); n.Spec.ProviderID == "" {
		t.Errorf("the paused machine still probes: %s", summaryOf(n))
	}
}

// An instance that was requested before the cloud refused another one proves nothing.
//
// Rule: capacity-memory.
func TestAnOlderInstanceDoesNotShowThatCapacityIsBack(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	w.cloud.Boot = 30 * time.Second
	w.createMachine("older", inDomain)
	w.reconcile("older")
	noCapacity["small"] = true
	w.park("m")
	w.untilPhase("older", v1beta1.MachineRunning)
	w.wantExhausted("small", true)
}

// Rule: awaiting-capacity-sends-nothing.
func TestAMachineThatAwaitsCapacityIsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.restart()
	w.wantGoneAtOnce("m")
}

// Rules: awaiting-capacity-sends-nothing, paused-machine-untouched.
func TestAPausedMachineThatAwaitsCapacitySendsNothing(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	noCapacity["small"] = false
	w.annotate("m", v1beta1.AnnotationPaused)
	w.effects.clear()
	for range 3 {
		w.step(10 * time.Minute)
		w.reconcile("m")
	}
	want(t, "driver calls", w.effects.calls())
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
	w.untilPhase("m", v1beta1.MachineRunning)
}

// Rules: retry-annotation-tries-now, one-probe-per-pool.
func TestTheRetryAnnotationEndsTheWaitForCapacity(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.reconcile("m")
	w.effects.clear()
	w.annotate("m", v1beta1.AnnotationRetry)
	w.reconcile("m")
	want(t, "driver calls without a new value", w.effects.calls())
	for i, value := range []string{"1", "2"} {
		w.update("m", func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationRetry] = value })
		for range 3 {
			w.reconcile("m")
		}
		if n := len(w.effects.calls()); n != i+1 {
			t.Errorf("there were %d driver calls after %d new values", n, i+1)
		}
	}
	noCapacity["small"] = false
	w.update("m", func(m *v1beta1.Machine) { m.Annotations[v1beta1.AnnotationRetry] = "3" })
	w.reconcile("m")
	w.untilPhase("m", v1beta1.MachineRunning)
	w.wantExhausted("small", false)
}

// Rules: join-timeout-fails-machine, awaiting-capacity-sends-nothing.
func TestTheCreationTimeoutCoversAllClasses(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"], noCapacity["large"] = true, true
	w.createMachine("m", inDomain)
	began := w.clock.Now()
	w.reconcile("m")
	w.step(8 * time.Minute)
	w.changeClass("m", "large")
	w.reconcile("m")
	w.wantExhausted("large", true)
	w.step(8 * time.Minute)
	w.changeClass("m", "small")
	m := w.untilPhase("m", v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureInsufficientResources {
		t.Errorf("it failed with %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	within(t, "the time until it failed", w.clock.Since(began), 20*time.Minute-time.Second, 21*time.Minute)
}

// Rules: class-deletion-is-decided, awaiting-capacity-sends-nothing.
func TestAMachineThatAwaitsCapacityDoesNotHoldAClassThatIsDeleted(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.park("m")
	w.restart()
	w.deleteClass(v1beta1.ReasonWithdrawn)
	w.effects.clear()
	w.reconcile("m")
	if m := w.get("m"); !resolve.ReleasesClass(m) || !m.IsAwaitingCapacity() {
		t.Fatalf("the machine holds its class: %s", summaryOf(m))
	}
	want(t, "driver calls", w.effects.calls())
	w.removeFinalizers(w.getClass("small"))
	w.step(time.Hour)
	w.reconcile("m")
	want(t, "driver calls without a class", w.effects.calls())
	w.changeClass("m", "large")
	w.untilPhase("m", v1beta1.MachineRunning)
}

// Rules: replacement-deletes-first, awaiting-capacity-sends-nothing.
func TestAReplacedInstanceAwaitsCapacity(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	w.setSecret("large-credentials", "account", "small")
	w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
	}
	w.createMachine("m", inDomain)
	w.untilPhase("m", v1beta1.MachineRunning)
	noCapacity["small"] = true
	w.changeClass("m", "large")
	w.runUntil("m", "the wait for capacity", func() bool { return w.get("m").IsAwaitingCapacity() })
	w.wantPhase(w.get("m"), v1beta1.MachineUpdating)
	if in := w.cloud.LiveInstances(); len(in) > 0 {
		t.Errorf("%d instances exist", len(in))
	}
	w.wantExhausted("large", true)
	noCapacity["small"] = false
	w.changeClass("m", "small")
	m := w.untilPhase("m", v1beta1.MachineRunning)
	if m.Status.Applied.ClassName != "small" || m.LaunchAttempt() != 3 {
		t.Errorf("the instance is %+v, launch %+v", m.Status.Instance, m.Status.Launch)
	}
	want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
}

// Rule: capacity-memory.
func TestAClassThatHasCapacityAgainWakesItsMachines(t *testing.T) {
	t.Parallel()
	class := func(status metav1.ConditionStatus) *v1beta1.MachineClass {
		class := &v1beta1.MachineClass{}
		class.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionCapacityAvailable, Status: status}}
		return class
	}
	never := &v1beta1.MachineClass{}
	exhausted, available := class(metav1.ConditionFalse), class(metav1.ConditionTrue)
	retried := class(metav1.ConditionFalse)
	retried.Status.CapacityRetryTime = &metav1.Time{Time: time.Now()}
	for name, tc := range map[string]struct {
		before, after *v1beta1.MachineClass
		wakes         bool
	}{
		"capacity is back":              {exhausted, available, true},
		"the condition is removed":      {exhausted, never, true},
		"capacity is lost":              {available, exhausted, false},
		"capacity is lost at first":     {never, exhausted, false},
		"the probe was refused as well": {exhausted, retried, false},
	} {
		if got := classChanged().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.wakes {
			t.Errorf("%s: wakes %t, want %t", name, got, tc.wakes)
		}
	}
}

// If the lack of capacity cannot be recorded, the class does not say when to try again.
//
// Rule: capacity-memory.
func TestAnUnrecordedLackOfCapacityIsRetriedSlowly(t *testing.T) {
	t.Parallel()
	w, noCapacity := placing(t)
	noCapacity["small"] = true
	w.refuse = func(verb string, o runtime.Object) error {
		if _, isClass := o.(*v1beta1.MachineClass); isClass && verb != "" {
			return errTimeout
		}
		return nil
	}
	w.createMachine("m", inDomain)
	within(t, "the wait", w.reconcile("m").RequeueAfter, time.Minute, time.Minute+time.Minute/4)
	if w.get("m").IsAwaitingCapacity() {
		t.Error("the machine awaits capacity, but its class says that there is capacity")
	}
	w.refuse = nil
	w.runUntil("m", "the wait for capacity", func() bool { return w.get("m").IsAwaitingCapacity() })
}

// The MachineSet can give such a Machine another class.
//
// Rules: placement-waiting-machine-moves, class-deletion-is-decided.
func TestAMachineOfAPlacementLeavesADeletedClass(t *testing.T) {
	t.Parallel()
	w, _ := placing(t)
	w.deleteClass(v1beta1.ReasonWithdrawn)
	w.createMachine("withdrawn", inDomain)
	w.createMachine("missing", inDomain, func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "gone" })
	w.createMachine("unplaced")
	for name, reason := range map[string]string{"withdrawn": v1beta1.ReasonClassDeleting,
		"missing": v1beta1.ReasonClassNotFound} {
		w.effects.clear()
		w.reconcile(name)
		m := w.get(name)
		w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, reason)
		want(t, name+": driver calls", w.effects.calls())
		if !m.IsAwaitingCapacity() || m.LaunchAttempt() != 1 {
			t.Errorf("%s: launch is %+v", name, m.Status.Launch)
		}
		w.wantRest(name)
		w.changeClass(name, "large")
		w.reconcile(name)
		if m := w.get(name); m.Spec.ProviderID == "" || m.IsAwaitingCapacity() {
			t.Errorf("%s has no instance of the other class: %s", name, summaryOf(m))
		}
	}
	w.reconcile("unplaced")
	if m := w.get("unplaced"); m.IsAwaitingCapacity() {
		t.Errorf("a machine whose class cannot change has the step AwaitingCapacity: %s", summaryOf(m))
	}
}
