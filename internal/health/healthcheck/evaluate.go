package healthcheck

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Health is one of the values below.
type Health string

const (
	// HealthHealthy means that nothing is wrong.
	HealthHealthy Health = "healthy"
	// HealthUnhealthy means that a problem has lasted longer than the policy allows.
	HealthUnhealthy Health = "unhealthy"
	// HealthUnknown means that the machine is starting or changing, or may still recover from a problem.
	HealthUnknown Health = "unknown"
)

// Evaluation says whether a machine is healthy according to a policy, and why not.
type Evaluation struct {
	Health Health
	// InTrouble means that the machine has a problem, even if the timeout has not passed and the machine is not
	// replaced yet. InTrouble is true for all machines whose Health is HealthUnhealthy, and for some machines whose
	// Health is HealthUnknown.
	InTrouble bool
	// Explanation is a description of the problem for users. The text does not change while the problem lasts.
	Explanation string
	// RecheckAfter is the time until the result may change without an event, because a timeout ends. Zero means never.
	RecheckAfter time.Duration
}

// Evaluate checks a machine against a policy. node is the Node that the machine refers to, or nil if it does not exist.
//
// A timeout starts when this process observes the problem, because transition times come from other clocks. A timeout
// never starts before clock.EarliestStart: neither an outage nor a time without a leader is the machine's fault. If
// the Node was deleted, the machine is unhealthy at once, without a timeout. Evaluate records new observations in
// clock.Observations.
func Evaluate(p Policy, m *v1beta1.Machine, node *corev1.Node, now time.Time, clock Clock) Evaluation {
	return p.afterReboot(p.evaluate(m, node, now, clock), m, now, clock)
}

func (p Policy) evaluate(m *v1beta1.Machine, node *corev1.Node, now time.Time, clock Clock) Evaluation {
	switch {
	case machinestate.IsStopped(m) && !machinestate.HasVanished(m):
		return Evaluation{Health: HealthUnknown} // Machinist stops or starts the instance.
	case machinestate.HasFailed(m):
		return Evaluation{Health: HealthUnhealthy, InTrouble: true, Explanation: fmt.Sprintf("The machine failed: %s.",
			m.Status.FailureReason)}
	case interrupted(m):
		return Evaluation{Health: HealthUnknown} // The owner replaces the machine without a request.
	case updateTimeLeft(m, now, clock) > 0:
		return Evaluation{Health: HealthUnknown, RecheckAfter: updateTimeLeft(m, now, clock)}
	}
	if power := m.Status.Power; power != nil {
		// The Node was not Ready while the instance was stopped.
		clock.EarliestStart = latest(clock.EarliestStart, power.Since.Time)
		clock.LastInterruption = latest(clock.LastInterruption, power.Since.Time)
	}
	var v Evaluation
	switch {
	case m.Status.NodeRef == nil && m.Status.Phase == v1beta1.MachineUnhealthy:
		v = p.evaluateStopped(m, now, clock)
	case m.Status.NodeRef == nil:
		v = p.evaluateStarting(m, now, clock)
	case node == nil || m.Status.NodeRef.UID != "" && node.UID != m.Status.NodeRef.UID:
		v = nodeGone(m)
	default:
		v = p.evaluateNode(node, now, clock)
	}
	p.addMachineConditions(&v, m, now, clock)
	return v
}

// addMachineConditions adds the conditions of a machine to its evaluation. Conditions of a machine without an instance
// are ignored, because a replacement cannot be launched either.
func (p Policy) addMachineConditions(v *Evaluation, m *v1beta1.Machine, now time.Time, clock Clock) {
	if m.Spec.ProviderID == "" {
		return
	}
	for _, wrong := range p.MachineConditions {
		c := meta.FindStatusCondition(m.Status.Conditions, wrong.Type)
		if c == nil || c.Status != wrong.Status {
			continue
		}
		v.add(wrong.Timeout.Duration, Signal{UID: m.UID, Type: c.Type, Status: string(c.Status),
			StartTime: c.LastTransitionTime.Time},
			fmt.Sprintf("Condition %s of machine %s is %s: %s.", c.Type, m.Name, c.Status, c.Reason), now, clock)
	}
}

// add adds a problem to an evaluation. The first problem whose timeout has passed explains why a machine is unhealthy.
func (v *Evaluation) add(timeout time.Duration, problem Signal, explanation string, now time.Time, clock Clock) {
	left := clock.timeLeft(timeout, problem, now)
	v.InTrouble = true
	switch {
	case v.Health == HealthUnhealthy:
	case left <= 0:
		v.Health, v.RecheckAfter, v.Explanation = HealthUnhealthy, 0, explanation
	default:
		v.Health = HealthUnknown
		if v.Explanation == "" {
			v.Explanation = explanation
		}
		if v.RecheckAfter == 0 || left < v.RecheckAfter {
			v.RecheckAfter = left
		}
	}
}

func interrupted(m *v1beta1.Machine) bool {
	return machinestate.IsInterrupted(m)
}

func updateTimeLeft(m *v1beta1.Machine, now time.Time, clock Clock) time.Duration {
	replacing := m.Status.Launch != nil && m.Status.Launch.Step == v1beta1.LaunchStepReplacing
	if m.Status.Phase != v1beta1.MachineUpdating && !replacing {
		return 0
	}
	began := clock.EarliestStart
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		began = c.LastTransitionTime.Time
	}
	return max(0, clock.timeLeft(m.Spec.Timeouts.UpdateOrDefault(), Signal{UID: m.UID, Type: v1beta1.ConditionUpToDate,
		StartTime: began}, now))
}

func (p Policy) evaluateStarting(m *v1beta1.Machine, now time.Time, clock Clock) Evaluation {
	if m.Status.Phase == v1beta1.MachineAvailable {
		return Evaluation{Health: HealthHealthy} // The installation has no target cluster.
	}
	began := m.CreationTimestamp.Time
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		if c.Status != metav1.ConditionTrue && !launching(c.Reason) {
			// The launch has failed. A replacement would have the same problem, so the machine is not replaced.
			return Evaluation{Health: HealthUnknown}
		}
		if c.LastTransitionTime.After(began) {
			began = c.LastTransitionTime.Time
		}
	}
	if p.Startup <= 0 || p.Startup >= m.Spec.Timeouts.CreationOrDefault() {
		return Evaluation{Health: HealthUnknown} // The machine's controller sets the phase Failed after timeouts.creation.
	}
	if left := clock.timeLeft(p.Startup, Signal{UID: m.UID, Type: v1beta1.ConditionLaunched, StartTime: began},
		now); left > 0 {
		return Evaluation{Health: HealthUnknown, RecheckAfter: left}
	}
	return Evaluation{Health: HealthUnhealthy, InTrouble: true, Explanation: fmt.Sprintf("The machine has no Node %s after its launch began.",
		p.Startup)}
}

// evaluateStopped evaluates a machine without a target cluster whose instance is stopped. The policy's timeout for a
// silent kubelet applies, because a stopped instance with a Node would have one.
func (p Policy) evaluateStopped(m *v1beta1.Machine, now time.Time, clock Clock) Evaluation {
	v := Evaluation{Health: HealthUnknown}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	for _, wrong := range p.Conditions {
		if c == nil || wrong.Type != corev1.NodeReady || wrong.Status != corev1.ConditionUnknown {
			continue
		}
		stop := Signal{UID: m.UID, Type: c.Type, Status: string(c.Status), StartTime: c.LastTransitionTime.Time}
		v.add(wrong.Timeout.Duration, stop, fmt.Sprintf("Machine %s is not Ready: %s.", m.Name, c.Reason), now, clock)
	}
	return v
}

// neverLaunched reports whether the cloud refused to create an instance or had no capacity. A machine without an
// instance does not mean that the cluster is broken, in contrast to an instance that does not join.
func neverLaunched(m *v1beta1.Machine) bool {
	switch {
	case m.Status.NodeRef != nil:
		return false
	case machinestate.HasFailed(m):
		return m.Status.FailureReason == v1beta1.FailureCreateError ||
			m.Status.FailureReason == v1beta1.FailureInsufficientResources
	}
	return m.Spec.ProviderID == ""
}

func launching(reason string) bool {
	switch reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return true
	}
	return false
}

// nodeGone evaluates a machine whose Node was deleted. A running kubelet does not create its Node again, so there is no
// timeout. The condition Registered shows the deletion after a live read has confirmed it.
func nodeGone(m *v1beta1.Machine) Evaluation {
	v := Evaluation{Health: HealthUnknown, InTrouble: true, Explanation: fmt.Sprintf("Node %s was deleted.",
		m.Status.NodeRef.Name)}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRegistered); c != nil &&
		c.Reason == v1beta1.ReasonNodeGone {
		v.Health = HealthUnhealthy
	}
	return v
}

func (p Policy) evaluateNode(node *corev1.Node, now time.Time, clock Clock) Evaluation {
	v := Evaluation{Health: HealthHealthy}
	for _, wrong := range p.Conditions {
		status, at, reason := conditionOf(node, wrong.Type)
		if status != wrong.Status {
			continue
		}
		v.add(wrong.Timeout.Duration, Signal{UID: node.UID, Type: string(wrong.Type), Status: string(status),
			StartTime: at},
			fmt.Sprintf("Condition %s of node %s (%s) is %s: %s.", wrong.Type, node.Name, node.UID, status, reason),
			now, clock)
	}
	return v
}

// conditionOf returns a condition of a node. A Ready condition that the kubelet never reported is Unknown.
func conditionOf(node *corev1.Node, kind corev1.NodeConditionType) (status corev1.ConditionStatus, at time.Time,
	reason string) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == kind {
			return c.Status, c.LastTransitionTime.Time, c.Reason
		}
	}
	if kind == corev1.NodeReady {
		return corev1.ConditionUnknown, node.CreationTimestamp.Time, "NeverReported"
	}
	return "", time.Time{}, ""
}

func ready(m *v1beta1.Machine, node *corev1.Node) bool {
	if node == nil || m.Status.NodeRef.UID != "" && node.UID != m.Status.NodeRef.UID {
		return false
	}
	status, _, _ := conditionOf(node, corev1.NodeReady)
	return status == corev1.ConditionTrue
}
