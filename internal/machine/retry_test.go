package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/pkg/provider"
)

func (w *world) wantRefused(m *v1beta1.Machine) {
	w.t.Helper()
	w.wantPhase(m, v1beta1.MachinePending)
	w.wantCondition(m, v1beta1.ConditionLaunched, "False", v1beta1.ReasonInvalidConfiguration)
}

// tryAgain runs passes until the provider is asked again to create the instance. It returns how long this took. Each
// pass must show the rejection.
func (w *world) tryAgain(name string, wait time.Duration) (took, next time.Duration) {
	w.t.Helper()
	asked, began := len(w.cloud.Requests()), w.clock.Now()
	for range 5 {
		w.step(wait)
		wait = w.reconcile(name).RequeueAfter
		w.wantRefused(w.get(name))
		if len(w.cloud.Requests()) > asked {
			return w.clock.Since(began), wait
		}
	}
	w.t.Fatalf("Create was not called again; effects: %q", lastOf(w.effects.since(), 20))
	return 0, 0
}

// An administrator may fix the cause of a rejection in the cloud, which changes no object in the cluster. The status
// shows the rejection until an attempt succeeds, even while an attempt waits for a new bootstrap token. The MachineSet
// would replace a machine with the status failed, and would create more machines beside one that is starting.
//
// Rules: rejected-configuration-retried-slowly, join-timeout-fails-machine.
func TestRefusedConfigurationIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, userData := range map[string]string{"without a token": "", "with a token": joinsWithToken} {
		for _, code := range []provider.Code{provider.FailedPrecondition, provider.InvalidArgument} {
			t.Run(fmt.Sprint(code, " ", name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, joining)
				w.class("small", userData)
				w.createMachine("m")
				for range 6 {
					w.cloud.Fail("Create", provider.Errorf(code, "a policy forbids it"))
				}
				wait := w.reconcile("m").RequeueAfter
				for n, low := range []time.Duration{10, 20, 30, 30} {
					low *= time.Minute
					within(t, "the wait", wait, low, low*5/4)
					m := w.get("m")
					w.wantRefused(m)
					if next := m.Status.LastOperation.NextTryTime; next == nil {
						t.Error("lastOperation does not have the time of the next try")
					} else {
						within(t, "the time of the next try", next.Sub(w.clock.Now()), wait-2*time.Second, wait+2*time.Second)
					}
					w.effects.clear()
					var took time.Duration
					took, wait = w.tryAgain("m", wait)
					within(t, "the time until the next try", took, low, low*5/4+time.Second)
					if writes := w.effects.writes(); len(writes) > 2 {
						t.Errorf("try %d caused the writes %q", n+2, writes)
					}
				}
				// A new process does not know the time of the next attempt.
				w.restart()
				settle := w.reconcile("m").RequeueAfter
				w.wantRefused(w.get("m"))
				if len(w.cloud.Requests()) < 6 {
					took, _ := w.tryAgain("m", settle)
					within(t, "the first try of a new process", took, 0, 2*time.Minute)
				}
				want(t, "events of one rejection", reasons(w.events.take()), v1beta1.ReasonInvalidConfiguration)

				m := w.untilPhase("m", v1beta1.MachineRunning)
				if o := m.Status.LastOperation; o.NextTryTime != nil || o.Attempts != 0 {
					t.Errorf("lastOperation of a running machine is %+v", o)
				}
				w.wantRest("m")
				if live := w.cloud.LiveInstances(); len(live) != 1 {
					t.Errorf("there are %d instances", len(live))
				}
			})
		}
	}
}

// An administrator has fixed the cause and follows the advice of machinist why.
//
// Rule: retry-annotation-tries-now.
func TestRetryAnnotationTriesAtOnce(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.FailedPrecondition, provider.InvalidArgument} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			w.class("small", joinsWithToken)
			w.createMachine("m")
			for range 3 {
				w.cloud.Fail("Create", provider.Errorf(code, "a policy forbids it"))
			}
			w.reconcile("m")
			for _, value := range []string{"1764", "1765"} {
				w.step(time.Second)
				w.follow("m", value)
				asked := len(w.cloud.Requests())
				wait := w.reconcile("m").RequeueAfter
				w.wantRefused(w.get("m"))
				if len(w.cloud.Requests()) != asked+1 {
					t.Fatalf("the annotation value %s does not cause a try", value)
				}
				within(t, "the wait after a requested try", wait, 10*time.Minute, 38*time.Minute)
				w.wantQuiet("m") // Each value causes only one attempt.
			}
			w.follow("m", "1766")
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
			w.untilPhase("m", v1beta1.MachineRunning)
			w.wantRest("m")
		})
	}
}

func (w *world) follow(name, date string) {
	w.t.Helper()
	m := w.get(name)
	findings := why.Explain(why.Facts{Now: w.clock.Now(), Machine: m, Provider: why.Process{IsKnown: true, Name: "p",
		LastRenewal: &m.CreationTimestamp.Time}})
	at := slices.IndexFunc(findings, func(f why.Finding) bool { return f.Reason == v1beta1.ReasonInvalidConfiguration })
	if at < 0 {
		w.t.Fatalf("machinist why says %+v", findings)
	}
	if until := findings[at].NextStepTime; until == nil || !until.Equal(m.Status.LastOperation.NextTryTime.Time) {
		w.t.Errorf("the next try is due at %v, but machinist why says %v", m.Status.LastOperation.NextTryTime, until)
	}
	_, command, found := strings.Cut(findings[at].Instructions, ": kubectl ")
	fields := strings.Fields(strings.ReplaceAll(command, "$(date +%s)", date))
	if !found || len(fields) != 7 || !slices.Equal(fields[:5], []string{"annotate", "machines.machinist.dev", name, "-n",
		w.namespace}) ||
		fields[6] != "--overwrite" {
		w.t.Fatalf("machinist why advises %q", findings[at].Instructions)
	}
	key, value, _ := strings.Cut(fields[5], "=")
	w.update(name, func(m *v1beta1.Machine) { set(&m.Annotations, key, value) })
}

// Rule: retry-annotation-tries-now.
func TestRetryAnnotationWorksAfterAnyError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", "")
	w.createMachine("m")
	w.cloud.Fail("Create", provider.Errorf(provider.ResourceExhausted, "no"))
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationRetry, "") })
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
}

// Rule: rejected-configuration-retried-slowly.
func TestAnUpdateThatTheProviderRefusesIsTriedAgain(t *testing.T) {
	t.Parallel()
	w, _ := changed(t, &scriptedUpdates{
		errs:  []error{provider.Errorf(provider.FailedPrecondition, "a policy forbids it")},
		given: []provider.UpdateResult{{Outcome: provider.UpdateDone}},
	})
	wait := w.reconcile("m").RequeueAfter
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, "False", v1beta1.ReasonUpdateError)
	within(t, "the wait", wait, 10*time.Minute, 12*time.Minute+30*time.Second)
	w.wantQuiet("m")
	w.step(wait)
	w.reconcile("m")
	if got := w.get("m").Status.Applied.ClassName; got != "large" {
		t.Errorf("the instance is of class %s", got)
	}
}

// Rule: rejected-configuration-retried-slowly.
func TestRefusedMachineThatWaitsForASlotStaysRefused(t *testing.T) {
	t.Parallel()
	w, queue := narrow(t)
	w.createMachine("refused")
	w.cloud.Fail("Create", provider.Errorf(provider.FailedPrecondition, "a policy forbids it"))
	wait := w.reconcile("refused").RequeueAfter
	w.cloud.Boot = 2 * wait
	w.createMachine("other")
	w.reconcile("other")
	w.step(wait)
	w.wantQuiet("refused")
	w.step(time.Minute)
	w.wantQuiet("refused")
	w.wantRefused(w.get("refused"))

	w.cloud.Boot = 0
	w.reconcile("other")
	w.wantEnqueued(queue, "refused")
	w.reconcile("refused")
	w.wantPhase(w.get("refused"), v1beta1.MachineProvisioned)
}
