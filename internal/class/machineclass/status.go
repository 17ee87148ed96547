package machineclass

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/preflight"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/wording"
)

type transition int

const (
	// unchanged is also the transition of a first validation that finds no problem.
	unchanged transition = iota
	better
	worse
)

func statusOf(class *v1beta1.MachineClass, v validation, now time.Time) (v1beta1.MachineClassStatus, transition) {
	status := *class.Status.DeepCopy()
	status.Conditions = conditionlimit.Class.Apply(status.Conditions)
	old := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
	ready := metav1.Condition{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.reason, Message: wording.Shorten(v.message),
		ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if v.reason == v1beta1.ReasonValid {
		ready.Status = metav1.ConditionTrue
	}
	change := unchanged
	switch {
	case old == nil && ready.Status == metav1.ConditionTrue:
	case old == nil, old.Status != ready.Status, old.Reason != ready.Reason:
		change = worse
		if ready.Status == metav1.ConditionTrue {
			change = better
		}
	case v.code != "" && strings.HasPrefix(old.Message, string(v.code)+":"):
		// Do not write the status if only the text of the same failure differs, for example by the ID of a request.
		ready.Message = old.Message
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	if v.userData != nil {
		status.UserDataHash = v.userData.hash
		v.userData.report(class, &status.Conditions, now)
	}
	reason, message := joinBlocked(v.joins)
	warn(class, &status.Conditions, now, v1beta1.ConditionJoinBlocked, reason, message)
	if v.account != nil {
		status.Account = v.account.name
		warn(class, &status.Conditions, now, v1beta1.ConditionAccountChanged, v1beta1.ReasonMachinesDiffer,
			v.account.changed(class))
	}
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
		// No Node can exist for a class with an invalid spec. Other failures may be temporary, so earlier results stay
		// valid.
		status.Capacity, status.NodeInfo = nil, nil
	}
	return status, change
}

// statusInDeletion returns the status of a class that is being deleted, and whether its reason is new. Such a class is
// not Ready, even if it still serves its Machines.
func statusInDeletion(class *v1beta1.MachineClass, d deletion, now time.Time) (status v1beta1.MachineClassStatus,
	isNew bool) {
	status = *class.Status.DeepCopy()
	old := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionDeleting)
	isNew = old == nil || old.Status != metav1.ConditionTrue || old.Reason != d.reason
	for _, c := range []metav1.Condition{
		{Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue, Reason: d.reason},
		{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonClassDeleting},
	} {
		c.Message, c.ObservedGeneration, c.LastTransitionTime = d.message, class.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	status.ObservedGeneration = class.Generation
	return status, isNew
}

// joinBlocked returns the reason and the message of the condition JoinBlocked. The reason is that of the first finding,
// and the message contains all findings. Without findings, reason and message are empty.
func joinBlocked(findings []preflight.Finding) (reason, message string) {
	var messages []string
	for _, f := range findings {
		reason, messages = cmp.Or(reason, f.Reason), append(messages, f.Text())
	}
	return reason, strings.Join(messages, " ")
}

func warn(class *v1beta1.MachineClass, conditions *[]metav1.Condition, now time.Time, kind, reason, message string) {
	if message != "" {
		meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason,
			Message: wording.Shorten(message), ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now)})
	} else if meta.FindStatusCondition(*conditions, kind) != nil {
		meta.RemoveStatusCondition(conditions, kind)
	}
}
