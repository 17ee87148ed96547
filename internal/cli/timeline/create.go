package timeline

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// create is the way from the creation of the machine until it first ran, nil if nothing of it is recorded any more.
func create(o Observed) *track {
	m, t := o.Machine, begin(Create, o.Machine.CreationTimestamp.Time)
	if m.DeletionTimestamp != nil && !joined(m) {
		t.notKnown("It was deleted before it ran.")
		t.until(m.DeletionTimestamp.Time, Step{Name: "Launch and join", WaitedFor: "its instance and its node",
			EndedBy: "metadata.deletionTimestamp"})
		return t
	}
	if _, replaced := replacedInstance(o); replaced && m.DeletionTimestamp == nil {
		return nil // What is recorded is of the new instance.
	}
	if n := m.LaunchAttempt(); n > 1 {
		t.notKnown("The instance is that of attempt %d. When the attempts before it ended, only events report.", n)
	}
	t.comeUp(o)
	return t
}

// comeUp lays the steps from the wish for an instance until the machine runs.
func (t *track) comeUp(o Observed) {
	launched, ran := o.since(v1beta1.ConditionLaunched), o.firstRan(t)
	if launched.IsZero() {
		t.waits(o, "Launch", v1beta1.ConditionLaunched)
		return
	}
	if !ran.IsZero() && launched.After(ran) {
		t.notKnown("When its instance was there first is not recorded any more: Launched changed at %s again.",
			stamp(launched))
	} else {
		t.launch(o, launched)
	}
	registered := o.since(v1beta1.ConditionRegistered)
	switch node := o.Node; {
	case o.noTarget():
	case node != nil && !node.CreationTimestamp.IsZero() && !node.CreationTimestamp.After(orNow(ran, o.Now)):
		if !t.until(node.CreationTimestamp.Time, Step{Name: "Boot",
			WaitedFor: "the instance to boot and its kubelet to join", EndedBy: "metadata.creationTimestamp of the Node"}) {
			t.notKnown("The Node is older than the instance: the clocks of the clusters differ, or it was taken over.")
		}
		if ready := readySince(node); !ready.IsZero() && !ready.After(orNow(ran, o.Now)) {
			t.until(ready, Step{Name: "Node Ready", WaitedFor: "the kubelet to report Ready",
				EndedBy: "condition Ready of the Node"})
		} else if !ran.IsZero() {
			t.notKnown("When the Node was Ready first is not recorded any more.")
		}
	case !registered.IsZero() && !registered.After(orNow(ran, o.Now)):
		t.until(registered, Step{Name: "Join", WaitedFor: "the instance to boot, its kubelet to join and to be Ready",
			EndedBy: "condition Registered"})
		t.notKnown("Its Node was not read, so boot, joining and readiness of the kubelet are one step.")
	}
	if ran.IsZero() {
		name := "Join"
		if !registered.IsZero() || o.Node != nil {
			name = "Initialise"
		}
		t.waits(o, name, v1beta1.ConditionRegistered)
		return
	}
	last := Step{Name: "Initialise", WaitedFor: "the node template, and startup taints to be taken off",
		EndedBy: "status.lastOperation"}
	switch {
	case o.noTarget():
		last.Name, last.WaitedFor = "Boot", "the instance to run"
	case !t.has("Join") && !t.has("Boot"):
		last.Name, last.WaitedFor = "Join", "the instance to boot, its kubelet to join and to be Ready"
	}
	if ran.After(t.at()) || len(t.steps) == 0 {
		t.until(ran, last)
	}
}

// launch lays the steps until the instance is recorded. The cloud's own time splits it, if it fits.
func (t *track) launch(o Observed, launched time.Time) {
	if i := o.Machine.Status.Instance; i != nil && i.LaunchTime != nil && i.LaunchTime.After(t.at()) &&
		i.LaunchTime.Time.Before(launched) {
		t.until(i.LaunchTime.Time, Step{Name: "Cloud call",
			WaitedFor: "its turn, its class and Secrets, and the cloud to accept the instance",
			EndedBy:   "status.instance.launchTime, by the cloud's clock"})
		t.until(launched, Step{Name: "Instance", WaitedFor: "the cloud to make the instance",
			EndedBy: "condition Launched"})
		return
	}
	t.until(launched, Step{Name: "Cloud call",
		WaitedFor: "its turn, its class and Secrets, and the cloud to make the instance", EndedBy: "condition Launched"})
}

// waits lays the step in which the machine is now. name and kind are of the step that has not ended.
func (t *track) waits(o Observed, name, kind string) {
	c := why.Blocking(o.Machine)
	if c == nil {
		c = o.condition(kind)
	}
	if c == nil {
		c = &metav1.Condition{Type: kind, Reason: v1beta1.ReasonPending}
	}
	s := blocked(name, c)
	if last := o.Machine.Status.LastOperation; last != nil && last.Attempts > 0 && last.Code != "" {
		s.Message = fmt.Sprintf("%s (%s failed %d times in a row, with %s.)", s.Message, last.Type, last.Attempts, last.Code)
	}
	t.goesOn(s)
}

// firstRan returns when the machine first ran, zero if it has not.
func (o Observed) firstRan(t *track) time.Time {
	m := o.Machine
	if last := m.Status.LastOperation; last != nil && last.Type == v1beta1.OperationCreate &&
		last.State == v1beta1.OperationSucceeded && last.LastUpdateTime != nil {
		return last.LastUpdateTime.Time
	}
	if !joined(m) {
		return time.Time{}
	}
	for _, kind := range []string{v1beta1.ConditionNodeHealthy, v1beta1.ConditionReady, v1beta1.ConditionRegistered,
		v1beta1.ConditionLaunched} {
		if since := o.since(kind); !since.IsZero() {
			t.notKnown("When it ran first is not recorded any more. The end is that of the last change of %s.", kind)
			return since
		}
	}
	t.notKnown("When it ran first is not recorded any more.")
	return m.CreationTimestamp.Time
}

// joined reports whether the machine ran at some time.
func joined(m *v1beta1.Machine) bool {
	switch m.Status.Phase {
	case v1beta1.MachineRunning, v1beta1.MachineAvailable, v1beta1.MachineUnhealthy:
		return true
	case v1beta1.MachineUpdating, v1beta1.MachineDeleting:
		return m.Status.NodeRef != nil
	}
	return false
}

func (o Observed) noTarget() bool {
	c := o.condition(v1beta1.ConditionRegistered)
	return c != nil && c.Reason == v1beta1.ReasonNoTargetCluster
}

// readySince returns since when the Node is Ready, zero if it is not.
func readySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func orNow(t, now time.Time) time.Time {
	if t.IsZero() {
		return now
	}
	return t
}
