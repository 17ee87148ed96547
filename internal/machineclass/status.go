package machineclass

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/conditionlimit"
)

// transition is what a decision means to somebody who knew the one before.
type transition int

const (
	// same is no change; so is that a new class is valid.
	same transition = iota
	better
	worse
)

// statusOf returns the status that follows from a decision. It is equal to the old one where nothing is new.
func statusOf(class *v1beta1.MachineClass, v validation, now time.Time) (v1beta1.MachineClassStatus, transition) {
	status := *class.Status.DeepCopy()
	status.Conditions = conditionlimit.Class.Apply(status.Conditions)
	old := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
	ready := metav1.Condition{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.reason, Message: bounded(v.message),
		ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if v.reason == v1beta1.ReasonValid {
		ready.Status = metav1.ConditionTrue
	}
	change := same
	switch {
	case old == nil && ready.Status == metav1.ConditionTrue:
	case old == nil, old.Status != ready.Status, old.Reason != ready.Reason:
		change = worse
		if ready.Status == metav1.ConditionTrue {
			change = better
		}
	case v.code != "" && strings.HasPrefix(old.Message, string(v.code)+":"):
		// The same failure again: what differs in its text, such as the number of a request, is not worth a write.
		ready.Message = old.Message
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	status.ObservedGeneration = class.Generation
	switch {
	case v.capacity != nil:
		status.Capacity = v.capacity.Resources
		status.NodeInfo = &v1beta1.NodeInfo{
			Architecture:    v.capacity.Architecture,
			OperatingSystem: v.capacity.OperatingSystem,
			InstanceType:    v.capacity.InstanceType,
			Region:          v.capacity.Region,
			Zone:            v.capacity.Zone,
		}
	case v.reason == v1beta1.ReasonInvalidProviderSpec:
		// There will be no such Node. Every other failure may pass, and what was found out before still holds then.
		status.Capacity, status.NodeInfo = nil, nil
	}
	return status, change
}

// statusInUse returns the status of a class whose deletion waits, and whether that is new.
func statusInUse(class *v1beta1.MachineClass, users int, now time.Time) (status v1beta1.MachineClassStatus,
	begins bool) {
	status = *class.Status.DeepCopy()
	begins = !meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionDeleting)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonInUse, Message: inUse(users),
		ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now),
	})
	status.ObservedGeneration = class.Generation
	return status, begins
}

func inUse(users int) string {
	if users == 1 {
		return "Waiting for 1 Machine that uses the class."
	}
	return fmt.Sprintf("Waiting for %d Machines that use the class.", users)
}

// bounded keeps a driver's message within what is useful in a condition.
func bounded(message string) string {
	const most = 1024
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}
