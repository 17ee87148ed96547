package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/test/env"
)

// If nodes fail together, their timeouts end one after the other. When the first timeout ends, the other failed nodes
// must already count for maxUnhealthy.
//
// Rule: max-unhealthy-stops-remediation.
func TestAboveMaxUnhealthyNothingIsMarked(t *testing.T) {
	b := newBench(t)
	c := b.check(most("20%"))
	machines := b.machines(10)
	b.pass()
	b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 10, 10, 2)
	for _, m := range machines[:3] {
		b.silence(m)
		b.clock.Step(20 * time.Second)
	}
	b.advance(5*time.Minute - 50*time.Second) // The timeouts of the first two machines have ended.
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonTooManyUnhealthy,
		"3 of 10 machines are not well, and remediation stops at more than 2 (maxUnhealthy 20%).", 10, 7, 0)
	b.advance(time.Hour)
	b.wantMarked()
	b.wantNoWrites()

	b.recover(machines[2])
	b.pass()
	b.wantMarked(machines[0], machines[1])
	b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 10, 8, 0)
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	if !slices.Equal(is.Status.Targets, []string{"m00", "m01"}) {
		t.Errorf("targets %v", is.Status.Targets)
	}

	b.silence(machines[5])
	b.pass()
	b.wantMarked()
	reported := strings.Join(b.reported(), "\n")
	for message, n := range map[string]int{"Warning TooManyUnhealthy": 2, "Normal RemediationAllowed": 1,
		"Warning RemediationRequested": 2, "Normal RemediationWithdrawn": 2} {
		if strings.Count(reported, message) != n {
			t.Errorf("%q is not reported %d times:\n%s", message, n, reported)
		}
	}
	if n := testutil.ToFloat64(remediations(b).WithLabelValues(v1beta1.ReasonMachineHealthCheck, "requested")); n != 2 {
		t.Errorf("%v requests were counted, want 2", n)
	}
}

// Rule: health-policy-selection.
func TestBuiltInPolicyAppliesToUnselectedMachines(t *testing.T) {
	b := newBench(t)
	machines := b.machines(6)
	other := b.machine("other", func(m *v1beta1.Machine) { m.Labels = nil })
	c := b.check(func(c *v1beta1.MachineHealthCheck) { c.Spec.UnhealthyNodeConditions[0].Timeout.Duration = time.Hour })
	b.silence(machines[0], other)
	b.advance(10 * time.Minute)
	b.wantMarked(other)
	b.advance(50 * time.Minute)
	b.wantMarked(machines[0], other)

	// Without the check, the built-in policy applies. If three of seven machines are unhealthy, it remediates none of
	// them, because its limit is two.
	b.must(b.c.Delete(b.ctx(), c))
	b.silence(machines[1])
	b.pass()
	b.wantMarked()
	if reported := strings.Join(b.reported(), "\n"); !strings.Contains(reported,
		"Warning TooManyUnhealthy 3 of 7 machines") {
		t.Errorf("events:\n%s", reported)
	}
}

// Rule: no-judgement-in-outage.
func TestOutageStopsEvaluationAndRestartsTimeouts(t *testing.T) {
	b := newBench(t)
	c := b.check()
	machines := b.machines(5)
	b.pass()
	b.silence(machines[0])
	b.stopped = "The target cluster cannot be reached."
	if due := b.advance(time.Hour); due <= 0 || due > 10*time.Second {
		t.Errorf("the next pass is due after %s", due)
	}
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonControlPlaneUnreachable, b.stopped, 5, 5, 0)
	b.wantNoWrites()

	b.stopped, b.stable = "", b.clock.Now()
	if due := b.pass(); due > 5*time.Minute {
		t.Errorf("the next pass is due after %s", due)
	}
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 5, 4, 1)
	b.advance(5*time.Minute - time.Second)
	b.wantMarked()
	b.advance(2 * time.Second)
	b.wantMarked(machines[0])
}

// Rule: meltdown-stops-remediation.
func TestMeltdownStopsRemediationAndRestartsTimeouts(t *testing.T) {
	b := newBench(t)
	c := b.check(most("100%"))
	machines := b.machines(6)
	b.silence(machines...)
	b.advance(time.Hour)
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonMeltdown, "The nodes of 6 of 6 running machines have problems.", 6, 0, 0)
	frozen := func() float64 {
		t.Helper()
		gathered, err := b.registry.Gather()
		b.must(err)
		for _, family := range gathered {
			if family.GetName() == "machinist_frozen" {
				return family.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	if frozen() != 1 {
		t.Errorf("machinist_frozen is %v", frozen())
	}
	// A restarted process forgets when the meltdown began, but still detects the meltdown.
	b.restart()
	b.advance(time.Hour)
	b.wantMarked()

	b.recover(machines[2:]...)
	b.pass()
	if frozen() != 0 {
		t.Errorf("machinist_frozen is %v", frozen())
	}
	b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 6, 4, 4)
	b.advance(5*time.Minute - time.Second)
	b.wantMarked()
	b.advance(time.Second)
	b.wantMarked(machines[0], machines[1])
}

// Rule: frozen-set-no-remediation.
func TestMachinesOfAFrozenSetAreNotMarked(t *testing.T) {
	b := newBench(t)
	c := b.check()
	set, owned := b.set("web")
	machines := b.machines(5, owned)
	b.silence(machines[0])
	b.freeze(set, true)
	b.advance(5 * time.Minute)
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonFrozen, "m00", 5, 4, 1)
	b.freeze(set, false)
	b.pass()
	b.wantMarked(machines[0])
}

// Retries are recorded on the replacement and survive restarts.
//
// Rule: remediation-retries-limited.
func TestFailingReplacementsEndAfterMaxRetries(t *testing.T) {
	b := newBench(t)
	retries := int32(1)
	c := b.check(most("100%"), func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Remediation.MaxRetries = &retries
		c.Spec.UnhealthyNodeConditions[0].Timeout.Duration = time.Minute // Deletion timestamps are by the real clock.
	})
	_, owned := b.set("web")
	// The three other machines must not belong to the set, because the order of machines that were created in the same
	// second is undefined.
	protected := func(m *v1beta1.Machine) { m.Finalizers = []string{v1beta1.MachineFinalizer} }
	others := b.machines(3)
	last := b.machine("try-0", owned, protected)
	for i := 1; i <= 2; i++ {
		b.silence(last)
		b.advance(time.Minute)
		b.wantMarked(last)
		b.must(b.c.Delete(b.ctx(), last))
		next := b.machine(fmt.Sprintf("try-%d", i), owned, protected)
		b.restart()
		b.advance(time.Second)
		if got, want := b.read(next).Annotations[v1beta1.AnnotationRemediationRetry], fmt.Sprintf("%d/%s", i,
			last.UID); got != want {
			t.Fatalf("the annotation of try %d is %q, want %q", i, got, want)
		}
		b.release(last)
		b.pass()
		last = next
	}
	// The health check sets the condition on the last machine before this machine fails. Otherwise the set could
	// replace the machine before the condition is set.
	mark := b.mark(last)
	if mark == nil || mark.Status != metav1.ConditionFalse || mark.Reason != v1beta1.ReasonRetriesExhausted {
		t.Fatalf("the mark is %+v", mark)
	}
	b.silence(last)
	b.advance(time.Minute)
	b.wantMarked()
	b.wantCheck(c, v1beta1.ReasonRetriesExhausted, "try-2", 4, 3, 3)
	if reported := strings.Join(b.reported(), "\n"); !strings.Contains(reported,
		"Warning RetriesExhausted try-2 will not be replaced, because at least 2 replacements in a row") {
		t.Errorf("events:\n%s", reported)
	}
	b.wantNoWrites()

	// Other machines are still replaced. Without the limit maxRetries, the last machine is replaced too.
	b.silence(others[0])
	b.advance(time.Minute)
	b.wantMarked(others[0])
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	is.Spec.Remediation.MaxRetries = nil
	b.must(b.c.Update(b.ctx(), is))
	b.pass()
	b.wantMarked(others[0], last)
}

// If admission did not reject an invalid selector, the status of the check reports the error, and the check selects no
// machines.
func TestInvalidSelectorIsReported(t *testing.T) {
	b := newBench(t)
	c := b.check()
	machines := b.machines(5)
	b.silence(machines[0])
	b.options.Client = changedChecks{b.options.Client, func(spec *v1beta1.MachineHealthCheckSpec) {
		spec.Selector.MatchLabels = map[string]string{"no label": "at all"}
	}}
	b.restart()
	b.advance(10 * time.Minute)
	b.wantCheck(c, v1beta1.ReasonInvalidSelector, "no label", 0, 0, 1)
	b.wantMarked(machines[0]) // The built-in policy marks the machine.
}

// changedChecks is a client that lists checks with another spec.
type changedChecks struct {
	client.Client
	change func(*v1beta1.MachineHealthCheckSpec)
}

func (c changedChecks) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	err := c.Client.List(ctx, list, o...)
	if checks, ok := list.(*v1beta1.MachineHealthCheckList); ok {
		for i := range checks.Items {
			c.change(&checks.Items[i].Spec)
		}
	}
	return err
}

// Without the admission webhook, a user can create a check with Ready=True as an unhealthy condition. Such a check must
// not make all working machines unhealthy. An invalid range can be stored only without the schema.
//
// Rules: admitted-bad-object-harmless, unhealthy-range-limits-remediation.
func TestInvalidCheckSelectsNothing(t *testing.T) {
	for field, change := range map[string]func(*v1beta1.MachineHealthCheckSpec){
		"spec.unhealthyNodeConditions[0].status": func(spec *v1beta1.MachineHealthCheckSpec) {
			spec.UnhealthyNodeConditions = []v1beta1.UnhealthyNodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		},
		`spec.unhealthyRange: Invalid value: "[5-3]"`: func(spec *v1beta1.MachineHealthCheckSpec) { spec.UnhealthyRange = "[5-3]" },
	} {
		t.Run(field, func(t *testing.T) {
			b := newBench(t)
			c := b.check()
			machines := b.machines(5)
			b.silence(machines[0])
			b.options.Client = changedChecks{b.options.Client, func(spec *v1beta1.MachineHealthCheckSpec) {
				spec.MaxUnhealthy = ptr.To(intstr.FromString("100%"))
				change(spec)
			}}
			b.restart()
			b.advance(10 * time.Minute)
			b.wantCheck(c, v1beta1.ReasonInvalidConfiguration, field, 0, 0, 1)
			b.wantMarked(machines[0]) // The built-in policy marks the machine.
		})
	}
}

// Relevant changes and the end of a timeout trigger the controller.
//
// Rule: settled-health-no-write.
func TestControllerIsTriggered(t *testing.T) {
	b := newBench(t)
	b.clock.SetTime(time.Now())
	env.Manager(t, func(_ context.Context, mgr manager.Manager) error {
		o := b.options
		o.Client = client.NewNamespacedClient(mgr.GetClient(), b.namespace)
		o.Nodes = &healthcheck.Nodes{CachedReader: mgr.GetClient(), LiveReader: b.c}
		o.Clock, o.StableSince, o.Metrics, o.StopReason = clock.RealClock{}, nil, nil, nil
		return healthcheck.New(o).Wiring().Add(mgr, func(object client.Object, keys handler.EventHandler,
			changes ...predicate.Predicate) source.Source {
			return source.Kind(mgr.GetCache(), object, keys, changes...)
		})
	})
	c := b.check(func(c *v1beta1.MachineHealthCheck) { c.Spec.UnhealthyNodeConditions[0].Timeout.Duration = time.Second })
	machines := b.machines(3)
	await := func(what string, marked, healthy int32) {
		t.Helper()
		env.Await(t, b.c, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool, string) {
			var n int32
			for i := range l.Items {
				if meta.IsStatusConditionTrue(l.Items[i].Status.Conditions, v1beta1.ConditionRemediationRequested) {
					n++
				}
			}
			return n == marked, fmt.Sprintf("%d marked", n)
		}, client.InNamespace(b.namespace))
		env.Await(t, b.c, &v1beta1.MachineHealthCheckList{}, what, func(l *v1beta1.MachineHealthCheckList) (bool, string) {
			return len(l.Items) == 1 && l.Items[0].Status.CurrentHealthy == healthy, fmt.Sprintf("%+v", l.Items[0].Status)
		}, client.InNamespace(b.namespace))
	}
	await("three machines", 0, 3)
	b.silence(machines[0])
	await("a mark", 1, 2)
	b.annotate(machines[0], v1beta1.AnnotationSkipRemediation, "")
	await("no mark", 0, 2)
	b.annotate(machines[0], v1beta1.AnnotationSkipRemediation, nil)
	await("a mark again", 1, 2)
	is := &v1beta1.MachineHealthCheck{}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(c), is))
	is.Spec.Remediation.Type = v1beta1.RemediationNone
	b.must(b.c.Update(b.ctx(), is))
	await("no mark by a check that only counts", 0, 2)
	b.must(b.c.Delete(b.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machines[1].Status.NodeRef.Name}}))
	await("a node was deleted", 0, 1)
}
