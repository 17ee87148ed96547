package capacity

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// MinWait and MaxWait are the shortest and the longest time between the refusal of an instance and the next probe.
const (
	MinWait = time.Minute
	MaxWait = 30 * time.Minute
)

// furthestAhead is the maximum plausible time until a probe. Any client that may write the status of a class can
// write a later capacityRetryTime, which is ignored.
const furthestAhead = MaxWait + 5*time.Minute

// State is what is known about the capacity for a class. The zero value means that the cloud has capacity.
type State struct {
	// Exhausted is true if the cloud has no capacity.
	Exhausted bool
	// Since is the time of the first refusal, and RetryTime the time of the next probe.
	Since, RetryTime time.Time
}

// StateOf returns what the status of the class says about its capacity.
func StateOf(class *v1beta1.MachineClass) State {
	c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionCapacityAvailable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return State{}
	}
	s := State{Exhausted: true, Since: c.LastTransitionTime.Time}
	if class.Status.CapacityRetryTime != nil {
		s.RetryTime = class.Status.CapacityRetryTime.Time
	}
	return s
}

// Wait returns the time until the next probe. The result is zero if the cloud has capacity, or if a machine may
// probe.
func (s State) Wait(now time.Time) time.Duration {
	left := s.RetryTime.Sub(now)
	if !s.Exhausted || left > furthestAhead {
		return 0
	}
	return max(left, 0)
}

// nextRetry returns the time of the next probe after a refusal. The longer the cloud has had no capacity, the longer
// is the wait.
func (s State) nextRetry(now time.Time) time.Time {
	wait := MinWait
	if s.Exhausted {
		wait = min(max(now.Sub(s.Since), MinWait), MaxWait)
	}
	return now.Add(wait)
}

// refused returns the status of the class after the cloud has refused an instance. The result is nil if the status
// does not change, because the refusal was expected.
func refused(class *v1beta1.MachineClass, answer string, now time.Time) *v1beta1.MachineClassStatus {
	known := StateOf(class)
	if known.Wait(now) > 0 {
		return nil
	}
	status := class.Status.DeepCopy()
	status.CapacityRetryTime = &metav1.Time{Time: known.nextRetry(now).Truncate(time.Second)}
	message := "The cloud has no capacity for " + instancesOf(class) + ". One machine tries again after " +
		status.CapacityRetryTime.UTC().Format(time.RFC3339) + ". Last answer of the cloud: " + answer
	meta.SetStatusCondition(&status.Conditions, condition(class, metav1.ConditionFalse,
		v1beta1.ReasonInsufficientResources, message, now))
	return status
}

// found returns the status of the class after an instance was created although the class was exhausted. The result
// is nil if the class is not exhausted.
func found(class *v1beta1.MachineClass, now time.Time) *v1beta1.MachineClassStatus {
	if !StateOf(class).Exhausted {
		return nil
	}
	status := class.Status.DeepCopy()
	status.CapacityRetryTime = nil
	meta.SetStatusCondition(&status.Conditions, condition(class, metav1.ConditionTrue, v1beta1.ReasonCapacityFound,
		"The cloud has capacity for "+instancesOf(class)+" again.", now))
	return status
}

func condition(class *v1beta1.MachineClass, value metav1.ConditionStatus, reason, message string,
	now time.Time) metav1.Condition {
	return metav1.Condition{Type: v1beta1.ConditionCapacityAvailable, Status: value, Reason: reason,
		Message: message, ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now)}
}

// instancesOf describes the instances of the class as far as the provider knows their type and zone.
func instancesOf(class *v1beta1.MachineClass) string {
	info := class.Status.NodeInfo
	if info == nil || info.InstanceType == "" {
		return "instances of this class"
	}
	out := "instances of type " + info.InstanceType
	switch {
	case info.Zone != "":
		out += " in zone " + info.Zone
	case info.Region != "":
		out += " in region " + info.Region
	}
	return out
}
