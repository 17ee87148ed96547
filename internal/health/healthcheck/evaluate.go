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

// Health is how a machine fares.
type Health string

const (
	// Healthy has nothing in the way.
	Healthy Health = "healthy"
	// Unhealthy was in trouble for longer than its policy allows.
	Unhealthy Health = "unhealthy"
	// Unknown is being made or changed, or is in trouble and may recover.
	Unknown Health = "unknown"
)

// Evaluation is the judgement of one machine.
type Evaluation struct {
	Health Health
	// InTrouble says of one that is Unknown that it counts as one of those that are not well. One that is Unhealthy
	// always is.
	InTrouble bool
	// Why says for people what is wrong. It stays the same while that lasts.
	Why string
	// RecheckAfter is when the decision changes although nothing else does; zero is never.
	RecheckAfter time.Duration
}

// Evaluate judges a machine by a policy. node is the one that the machine refers to, nil where that is gone. A clock
// runs from when this process observed what is wrong, since the times of conditions are by the clocks of others. None
// runs from before clock.Since: an outage, or the time in which nobody watched, is not the machine's fault. Evaluate
// notes in clock.Seen what it observes for the first time. A Node that was deleted needs no clock.
func Evaluate(p Policy, m *v1beta1.Machine, node *corev1.Node, now time.Time, clock Clock) Evaluation {
	switch {
	case machinestate.Failed(m):
		return Evaluation{Health: Unhealthy, InTrouble: true, Why: fmt.Sprintf("The machine failed: %s.",
			m.Status.FailureReason)}
	case interrupted(m):
		return Evaluation{Health: Unknown} // What is wrong is known, and its owner replaces it without being asked.
	case changing(m, now, clock) > 0:
		return Evaluation{Health: Unknown, RecheckAfter: changing(m, now, clock)}
	case m.Status.NodeRef == nil:
		return p.starting(m, now, clock)
	case node == nil || m.Status.NodeRef.UID != "" && node.UID != m.Status.NodeRef.UID:
		return nodeGone(m)
	}
	return p.node(node, now, clock)
}

// interrupted reports whether the cloud has announced that it takes the machine's instance away.
func interrupted(m *v1beta1.Machine) bool {
	return machinestate.Interrupted(m)
}

// changing returns for how long from now on an update excuses a node that does not work.
func changing(m *v1beta1.Machine, now time.Time, clock Clock) time.Duration {
	replacing := m.Status.Launch != nil && m.Status.Launch.Step == v1beta1.LaunchStepReplacing
	if m.Status.Phase != v1beta1.MachineUpdating && !replacing {
		return 0
	}
	began := clock.Since
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionFalse {
		began = c.LastTransitionTime.Time
	}
	return max(0, clock.left(m.Spec.Timeouts.UpdateOrDefault(), Signal{UID: m.UID, Type: v1beta1.ConditionUpToDate,
		Began: began}, now))
}

// starting judges a machine that has no Node.
func (p Policy) starting(m *v1beta1.Machine, now time.Time, clock Clock) Evaluation {
	if m.Status.Phase == v1beta1.MachineAvailable {
		return Evaluation{Health: Healthy} // There is no target cluster.
	}
	began := m.CreationTimestamp.Time
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); c != nil {
		if c.Status != metav1.ConditionTrue && !trying(c.Reason) {
			return Evaluation{Health: Unknown} // It was refused, or waits for its turn: another one would fare no better.
		}
		if c.LastTransitionTime.After(began) {
			began = c.LastTransitionTime.Time
		}
	}
	if p.Startup <= 0 || p.Startup >= m.Spec.Timeouts.CreationOrDefault() {
		return Evaluation{Health: Unknown} // Its own controller makes it Failed in time.
	}
	if left := clock.left(p.Startup, Signal{UID: m.UID, Type: v1beta1.ConditionLaunched, Began: began}, now); left > 0 {
		return Evaluation{Health: Unknown, RecheckAfter: left}
	}
	return Evaluation{Health: Unhealthy, InTrouble: true, Why: fmt.Sprintf("There is no Node %s after the launch began.",
		p.Startup)}
}

// neverLaunched reports whether the cloud has not given the machine an instance: it refuses to, or has none to give.
// That says nothing about the health of other machines. An instance that does not join is another matter: where many
// do not, the cluster that they are to join may be what is broken.
func neverLaunched(m *v1beta1.Machine) bool {
	switch {
	case m.Status.NodeRef != nil:
		return false
	case machinestate.Failed(m):
		return m.Status.FailureReason == v1beta1.FailureCreateError ||
			m.Status.FailureReason == v1beta1.FailureInsufficientResources
	}
	return m.Spec.ProviderID == ""
}

// trying reports whether the reason of Launched is one of a launch under way.
func trying(reason string) bool {
	switch reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return true
	}
	return false
}

// nodeGone judges a machine whose Node was deleted while its instance may live. A kubelet that runs does not register
// again, so there is nothing to wait for. The machine's controller confirms the deletion at the API server first, which
// changes the condition Registered.
func nodeGone(m *v1beta1.Machine) Evaluation {
	v := Evaluation{Health: Unknown, InTrouble: true, Why: fmt.Sprintf("Node %s is gone.", m.Status.NodeRef.Name)}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRegistered); c != nil &&
		c.Reason == v1beta1.ReasonNodeGone {
		v.Health = Unhealthy
	}
	return v
}

// node judges a machine by its Node.
func (p Policy) node(node *corev1.Node, now time.Time, clock Clock) Evaluation {
	v := Evaluation{Health: Healthy}
	for _, wrong := range p.Conditions {
		status, at, reason := conditionOf(node, wrong.Type)
		if status != wrong.Status {
			continue
		}
		left := clock.left(wrong.Timeout.Duration, Signal{UID: node.UID, Type: string(wrong.Type), Status: string(status),
			Began: at}, now)
		if v.Health == Healthy || left <= 0 {
			v.Why = fmt.Sprintf("Condition %s of node %s (%s) is %s: %s.", wrong.Type, node.Name, node.UID, status, reason)
		}
		v.InTrouble = true
		if left <= 0 {
			v.Health, v.RecheckAfter = Unhealthy, 0
			return v
		}
		v.Health = Unknown
		if v.RecheckAfter == 0 || left < v.RecheckAfter {
			v.RecheckAfter = left
		}
	}
	return v
}

// conditionOf returns a condition of a node. A kubelet that never reported whether it is ready is not known to be.
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

// ready reports whether the Node that the machine refers to is there and Ready.
func ready(m *v1beta1.Machine, node *corev1.Node) bool {
	if node == nil || m.Status.NodeRef.UID != "" && node.UID != m.Status.NodeRef.UID {
		return false
	}
	status, _, _ := conditionOf(node, corev1.NodeReady)
	return status == corev1.ConditionTrue
}
