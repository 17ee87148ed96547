package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/pkg/provider"
)

// ofASet gives a machine the labels and the owner reference that a MachineSet sets.
func ofASet(m *v1beta1.Machine) {
	m.Labels[v1beta1.LabelTemplateHash], m.Labels[v1beta1.LabelMachineSet], m.Labels["app"] = "abc", "web", "web"
	controls := true
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineSet",
		Name: "web", UID: "set", Controller: &controls}}
}

func (w *world) annotateWith(name, key, value string) {
	w.t.Helper()
	w.update(name, func(m *v1beta1.Machine) { set(&m.Annotations, key, value) })
}

func (w *world) request(name, reason string, status metav1.ConditionStatus) {
	w.t.Helper()
	m := w.get(name)
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionRemediationRequested,
		Status: status, Reason: reason, LastTransitionTime: metav1.Now()})
	if err := w.api.Status().Update(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantPreserved(name string, left time.Duration) *v1beta1.Machine {
	w.t.Helper()
	m := w.get(name)
	if m.Labels[v1beta1.LabelTemplateHash] != "" || m.Labels[v1beta1.LabelMachineSet] != "" ||
		metav1.GetControllerOf(m) != nil || m.Labels["app"] != "web" {
		w.t.Errorf("the machine still belongs to its set: %v %v", m.Labels, m.OwnerReferences)
	}
	until, err := preservation.EndTime(m)
	if err != nil || until.Sub(w.clock.Now().Add(left)).Abs() > time.Second {
		w.t.Errorf("the machine is preserved until %v (%v), want %s from now", until, err, left)
	}
	w.wantCondition(m, v1beta1.ConditionPreserved, metav1.ConditionTrue, v1beta1.ReasonPreserved)
	if node := w.getNode(nodeNameOf(w.namespace, name)); node != nil && !node.Spec.Unschedulable {
		w.t.Error("the node is not cordoned")
	}
	return m
}

// Rules preserve-on-request, preservation-ends-on-time: with the value "now", a machine is cordoned and removed from
// its MachineSet at once, in a separate write. The machine is deleted when its preservation ends, and not earlier.
func TestAMachineIsPreservedNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.effects.clear()
	result := w.reconcile("m")
	if writes := strings.Join(w.effects.writes(),
		", "); writes != "API Node patch, API Machine patch, API Machine patch status" {
		t.Errorf("wrote %s", writes)
	}
	if result.RequeueAfter > DefaultPreserveTimeout || result.RequeueAfter < DefaultPreserveTimeout-2*time.Second {
		t.Errorf("checks again after %s", result.RequeueAfter)
	}
	w.wantPhase(w.wantPreserved("m", DefaultPreserveTimeout), v1beta1.MachineRunning)
	w.step(DefaultPreserveTimeout - time.Minute)
	w.wantQuiet("m")
	w.step(time.Minute)
	w.reconcile("m")
	if m := w.get("m"); m.DeletionTimestamp.IsZero() {
		t.Fatal("the machine is not deleted although its time is over")
	}
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// Rule preserve-on-request: with the value "when-failed", a machine is preserved instead of being replaced.
func TestAMachineIsPreservedWhenItFails(t *testing.T) {
	t.Parallel()
	vanish := func(w *world) {
		w.cloud.Vanish(w.get("m").Spec.ProviderID)
		w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	}
	for name, c := range map[string]struct {
		spoil     func(*world)
		preserved bool
	}{
		"healthy":                   {func(*world) {}, false},
		"failed":                    {vanish, true},
		"to be replaced":            {func(w *world) { w.request("m", v1beta1.ReasonBuiltInPolicy, "True") }, true},
		"by an external remediator": {func(w *world) { w.request("m", v1beta1.ReasonExternalRemediation, "True") }, false},
		"retries exhausted": {func(w *world) { vanish(w); w.request("m", v1beta1.ReasonRetriesExhausted, "False") },
			false},
		"exempt from remediation": {func(w *world) { vanish(w); w.annotate("m", v1beta1.AnnotationSkipRemediation) }, false},
		"paused":                  {func(w *world) { vanish(w); w.annotate("m", v1beta1.AnnotationPaused) }, false},
		"of another type version": {func(w *world) {
			vanish(w)
			w.update("m", func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = "v9" })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m", ofASet)
			w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)
			c.spoil(w)
			for range 4 {
				w.step(min(w.reconcile("m").RequeueAfter, time.Minute))
			}
			m := w.get("m")
			if preservation.IsPreserved(m) != c.preserved {
				t.Fatalf("preserved: %t, want %t: %s", !c.preserved, c.preserved, summaryOf(m))
			}
			if node := w.getNode(nodeNameOf(w.namespace, "m")); node.Spec.Unschedulable != c.preserved {
				t.Errorf("cordoned: %t", node.Spec.Unschedulable)
			}
		})
	}
}

// Rule preserve-on-request: the failure of a machine is written to the status before the machine is preserved. The
// status write triggers a pass that preserves the machine, without an event of another object.
func TestAMachineThatFailsIsReconciledAgainAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet, func(m *v1beta1.Machine) {
		set(&m.Annotations, v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)
	})
	w.cloud.Vanish(w.get("m").Spec.ProviderID)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	w.step(w.cloud.Settle)
	w.step(w.reconcile("m").RequeueAfter)
	result := w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if preservation.IsPreserved(m) || result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
		t.Errorf("checks again after %s", result.RequeueAfter)
	}
	w.reconcile("m")
	w.wantPreserved("m", DefaultPreserveTimeout)
}

// Rule preserve-on-request: without an instance, there is nothing to inspect. A preserved machine gets no new instance.
func TestAMachineWithoutAnInstanceIsNotPreserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.cloud.Fail("Create", provider.Errorf(provider.ResourceExhausted, "no capacity"))
	w.createMachine("m", ofASet, func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPreserve, v1beta1.PreserveNow) })
	w.reconcile("m")
	if m := w.get("m"); preservation.IsPreserved(m) || metav1.GetControllerOf(m) == nil {
		t.Errorf("the machine was preserved: %v", m.Annotations)
	}
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, w.clock.Now().Add(time.Hour).Format(time.RFC3339))
	w.step(30 * time.Minute)
	w.effects.clear()
	w.reconcile("m")
	w.wantPreserved("m", 30*time.Minute)
	if calls := w.effects.calls(); len(calls) > 0 {
		t.Errorf("calls to the cloud: %q", calls)
	}
}

// Rule: preserved-machine-unchanged.
func TestPreservedMachineStaysUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.4" })
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	node.Spec.Unschedulable = false
	if err := w.api.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.effects.clear()
	w.reconcile("m")
	if calls := w.effects.calls(); len(calls) > 0 {
		t.Errorf("calls to the cloud: %q", calls)
	}
	w.wantPreserved("m", DefaultPreserveTimeout)
}

// Rule preservation-ends-on-time: an invalid time preserves the machine indefinitely.
func TestPreservationTimeCanBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.reconcile("m")
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, w.clock.Now().Add(200*time.Hour).Format(time.RFC3339))
	w.step(150 * time.Hour)
	w.reconcile("m")
	w.wantPreserved("m", 50*time.Hour)
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, "friday")
	w.step(1000 * time.Hour)
	w.events.take()
	w.reconcile("m")
	m := w.get("m")
	c := w.wantCondition(m, v1beta1.ConditionPreserved, metav1.ConditionTrue, v1beta1.ReasonInvalidConfiguration)
	if !strings.Contains(c.Message, `"friday"`) || !m.DeletionTimestamp.IsZero() || len(w.events.take()) != 1 {
		t.Errorf("deleted %v, message %q", m.DeletionTimestamp, c.Message)
	}
	w.wantRest("m")
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, w.clock.Now().Format(time.RFC3339))
	w.reconcile("m")
	if w.get("m").DeletionTimestamp.IsZero() {
		t.Error("the machine is not deleted although its time is over")
	}
}

// Rule preserved-machines-limited: the limit applies to the failed machines of each MachineSet or MachineDeployment.
// Above the limit, failed machines report this and are replaced. Machines with the value "now" are always preserved.
func TestPreservedFailedMachinesAreLimited(t *testing.T) {
	t.Parallel()
	ownedBy := func(change func(*v1beta1.Machine)) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) {
			ofASet(m)
			change(m)
		}
	}
	for name, owner := range map[string]func(*v1beta1.Machine){
		"a standalone set": ownedBy(func(*v1beta1.Machine) {}),
		"any set of a deployment": ownedBy(func(m *v1beta1.Machine) {
			m.Labels[v1beta1.LabelMachineDeployment], m.Labels[v1beta1.LabelMachineSet] = "web", "web-"+m.Name
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			fail := func(name string) {
				w.running(name, owner)
				w.annotateWith(name, v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)
				w.request(name, v1beta1.ReasonBuiltInPolicy, "True")
				w.reconcile(name)
			}
			for _, name := range []string{"a", "b", "c"} {
				fail(name)
				w.wantPreserved(name, DefaultPreserveTimeout)
			}
			w.events.take()
			fail("d")
			d := w.get("d")
			c := w.wantCondition(d, v1beta1.ConditionPreserved, metav1.ConditionFalse, v1beta1.ReasonTooManyPreserved)
			if preservation.IsPreserved(d) || preservation.MustPreserve(d) || !strings.Contains(c.Message, "--preserve-limit") {
				t.Errorf("preserved %t, due %t: %s", preservation.IsPreserved(d), preservation.MustPreserve(d), c.Message)
			}
			if w.getNode(nodeNameOf(w.namespace, "d")).Spec.Unschedulable {
				t.Error("the node is cordoned")
			}
			w.wantRest("d")
			w.annotateWith("d", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
			w.reconcile("d")
			w.wantPreserved("d", DefaultPreserveTimeout)

			if err := w.api.Delete(t.Context(), w.get("a")); err != nil {
				t.Fatal(err)
			}
			w.untilGone("a")
			fail("e")
			w.wantPreserved("e", DefaultPreserveTimeout)
		})
	}
}

// Rule preservation-ends-on-time: without both annotations, the machine becomes an ordinary machine without an owner,
// and its node accepts pods again.
func TestPreservationCanBeCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) {
		delete(m.Annotations, v1beta1.AnnotationPreserve)
		delete(m.Annotations, v1beta1.AnnotationPreservedUntil)
	})
	w.reconcile("m")
	for _, c := range w.get("m").Status.Conditions {
		if c.Type == v1beta1.ConditionPreserved {
			t.Errorf("the condition remains: %+v", c)
		}
	}
	if w.getNode(nodeNameOf(w.namespace, "m")).Spec.Unschedulable {
		t.Error("the node remains cordoned")
	}
	w.wantRest("m")
}

// Rule preserved-condition-says-why: an invalid or late request to preserve a machine is reported and does no harm. (If
// the admission policies are installed, the API server refuses invalid values.)
func TestInvalidPreservationRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet, func(m *v1beta1.Machine) {
		m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "a.example.com", Owner: "o"}}
	})
	invalid := w.get("m")
	set(&invalid.Annotations, v1beta1.AnnotationPreserve, "sometimes")
	p := &pass{Reconciler: w.process, original: invalid, machine: invalid, now: w.clock.Now()}
	w.events.take()
	for range 2 {
		if proceed, err := p.preserve(t.Context()); err != nil || proceed != next {
			t.Errorf("waits for %b, %v", proceed, err)
		}
	}
	c := w.wantCondition(invalid, v1beta1.ConditionPreserved, metav1.ConditionFalse, v1beta1.ReasonInvalidConfiguration)
	if events := w.events.take(); !strings.Contains(c.Message, `"sometimes"`) || len(events) != 1 {
		t.Errorf("the message is %q, events %q", c.Message, events)
	}
	w.delete("m")
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.reconcile("m")
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionPreserved, metav1.ConditionFalse, v1beta1.ReasonTooLate)
	if preservation.IsPreserved(m) {
		t.Error("a machine that is being deleted was preserved")
	}
}

// Rule preserved-machine-unchanged: no machine is replaced in an outage of the target cluster, so none is preserved.
func TestNothingIsPreservedInAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	w.watched().since = w.clock.Now()
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	if result := w.reconcile("m"); preservation.IsPreserved(w.get("m")) || result.RequeueAfter > targetPoll {
		t.Errorf("checks again after %s, annotations %v", result.RequeueAfter, w.get("m").Annotations)
	}
}
