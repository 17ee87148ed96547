package timeline

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// create returns the steps from the creation of the machine until its phase was Running for the first time. It returns
// nil if none of these steps is recorded any more.
func create(o Facts) *track {
	m, t := o.Machine, begin(Create, o.Machine.CreationTimestamp.Time)
	if m.DeletionTimestamp != nil && !everRan(m) {
		t.addUnknown("The machine was deleted before it was Running.")
		t.addStep(m.DeletionTimestamp.Time, Step{Name: "Launch and join", WaitedFor: "the instance and its Node",
			EndedBy: "metadata.deletionTimestamp"})
		return t
	}
	if _, replaced := replacedInstance(o); replaced && m.DeletionTimestamp == nil {
		return nil // All recorded times belong to the new instance.
	}
	if n := m.LaunchAttempt(); n > 1 {
		t.addUnknown("The instance was created by attempt %d. Only events show when the earlier attempts ended.", n)
	}
	t.addSteps(o)
	return t
}

func (t *track) addSteps(o Facts) {
	launched, ran := o.trueSince(v1beta1.ConditionLaunched), o.firstRan(t)
	if launched.IsZero() {
		t.addCurrentStep(o, "Launch", v1beta1.ConditionLaunched)
		return
	}
	if !ran.IsZero() && launched.After(ran) {
		t.addUnknown("The time at which the instance was created is no longer recorded: Launched changed again at %s.",
			formatTime(launched))
	} else {
		t.addLaunch(o, launched)
	}
	registered := o.trueSince(v1beta1.ConditionRegistered)
	switch node := o.Node; {
	case o.noTarget():
	case node != nil && !node.CreationTimestamp.IsZero() && !node.CreationTimestamp.After(orNow(ran, o.Now)):
		if !t.addStep(node.CreationTimestamp.Time, Step{Name: "Boot",
			WaitedFor: "the instance to boot and its kubelet to join", EndedBy: "metadata.creationTimestamp of the Node"}) {
			t.addUnknown("The Node is older than the instance: the clocks of the clusters differ, or the instance was adopted.")
		}
		if ready := readySince(node); !ready.IsZero() && !ready.After(orNow(ran, o.Now)) {
			t.addStep(ready, Step{Name: "Node Ready", WaitedFor: "the kubelet to report Ready",
				EndedBy: "condition Ready of the Node"})
		} else if !ran.IsZero() {
			t.addUnknown("The time at which the Node first became Ready is no longer recorded.")
		}
	case !registered.IsZero() && !registered.After(orNow(ran, o.Now)):
		t.addStep(registered, Step{Name: "Join", WaitedFor: waitsForJoin, EndedBy: "condition Registered"})
		t.addUnknown("The Node was not read, so boot, join and readiness of the kubelet are one step.")
	}
	if ran.IsZero() {
		name := "Join"
		if !registered.IsZero() || o.Node != nil {
			name = "Initialise"
		}
		t.addCurrentStep(o, name, v1beta1.ConditionRegistered)
		return
	}
	last := Step{Name: "Initialise", WaitedFor: "spec.node to be applied, and startup taints to be removed",
		EndedBy: "status.lastOperation"}
	switch {
	case o.noTarget():
		last.Name, last.WaitedFor = "Boot", "the instance to run"
	case !t.has("Join") && !t.has("Boot"):
		last.Name, last.WaitedFor = "Join", waitsForJoin
	}
	if ran.After(t.end()) || len(t.steps) == 0 {
		t.addStep(ran, last)
	}
}

const (
	waitsForJoin   = "the instance to boot, and its kubelet to join and to become Ready"
	waitsForLaunch = "a slot for the creation, the class, the Secrets, and the cloud to "
)

// addLaunch adds the step that ended when the condition Launched became True. If the cloud reports a plausible start
// time of the instance, addLaunch adds two steps instead: one before the start time, and one after it.
func (t *track) addLaunch(o Facts, launched time.Time) {
	if i := o.Machine.Status.Instance; i != nil && i.LaunchTime != nil && i.LaunchTime.After(t.end()) &&
		i.LaunchTime.Time.Before(launched) {
		t.addStep(i.LaunchTime.Time, Step{Name: "Cloud call",
			WaitedFor: waitsForLaunch + "accept the creation",
			EndedBy:   "status.instance.launchTime, by the clock of the cloud"})
		t.addStep(launched, Step{Name: "Instance", WaitedFor: "the cloud to create the instance",
			EndedBy: "condition Launched"})
		return
	}
	t.addStep(launched, Step{Name: "Cloud call", WaitedFor: waitsForLaunch + "create the instance",
		EndedBy: "condition Launched"})
}

// addCurrentStep adds the step in progress. The explanation of the step comes from the first obstacle of the machine.
// If nothing blocks the machine, the explanation comes from the condition of the given type.
func (t *track) addCurrentStep(o Facts, name, kind string) {
	c := why.Blocking(o.Machine)
	if c == nil {
		c = o.condition(kind)
	}
	if c == nil {
		c = &metav1.Condition{Type: kind, Reason: v1beta1.ReasonPending}
	}
	s := blockedStep(name, c)
	if last := o.Machine.Status.LastOperation; last != nil && last.Attempts > 0 && last.Code != "" {
		s.Message = fmt.Sprintf("%s (%s failed %d times in a row. The last error code is %s.)", s.Message, last.Type,
			last.Attempts, last.Code)
	}
	t.endWithOngoing(s)
}

// firstRan returns the time at which the machine first became Running. It returns zero if the machine was never
// Running. If the time is no longer recorded, firstRan returns a later time and adds a sentence about this to
// t.unknown.
func (o Facts) firstRan(t *track) time.Time {
	m := o.Machine
	if last := m.Status.LastOperation; last != nil && last.Type == v1beta1.OperationCreate &&
		last.State == v1beta1.OperationSucceeded && last.LastUpdateTime != nil {
		return last.LastUpdateTime.Time
	}
	if !everRan(m) {
		return time.Time{}
	}
	for _, kind := range []string{v1beta1.ConditionNodeHealthy, v1beta1.ConditionReady, v1beta1.ConditionRegistered,
		v1beta1.ConditionLaunched} {
		if since := o.trueSince(kind); !since.IsZero() {
			t.addUnknown("The time at which the machine first became Running is no longer recorded. Instead, the timeline shows the last change of the condition %s.",
				kind)
			return since
		}
	}
	t.addUnknown("The time at which the machine first became Running is no longer recorded.")
	return m.CreationTimestamp.Time
}

func everRan(m *v1beta1.Machine) bool {
	switch m.Status.Phase {
	case v1beta1.MachineRunning, v1beta1.MachineAvailable, v1beta1.MachineUnhealthy:
		return true
	case v1beta1.MachineUpdating, v1beta1.MachineDeleting:
		return m.Status.NodeRef != nil
	}
	return false
}

func (o Facts) noTarget() bool {
	c := o.condition(v1beta1.ConditionRegistered)
	return c != nil && c.Reason == v1beta1.ReasonNoTargetCluster
}

// readySince returns when the Node became Ready, or zero.
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
