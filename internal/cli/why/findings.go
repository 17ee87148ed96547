package why

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// ClassReady is an argument of MeaningOf for the condition Ready of a MachineClass. Some of its reasons have another
// meaning for a Machine.
const ClassReady = "MachineClass"

func (e *explanation) addClass(first *metav1.Condition) {
	if first == nil || e.Machine.DeletionTimestamp != nil || e.Machine.Spec.ClassRef == nil {
		return
	}
	if first.Type == v1beta1.ConditionRegistered || first.Reason == v1beta1.ReasonJoinClusterTimeout {
		e.addJoinBlocked()
		return
	}
	if first.Type != v1beta1.ConditionLaunched && first.Type != v1beta1.ConditionUpToDate &&
		first.Type != v1beta1.ConditionReady {
		return
	}
	about := "machineclass/" + e.Machine.Spec.ClassRef.Name
	if e.ClassMissing {
		if first.Reason != v1beta1.ReasonClassNotFound {
			m := MeaningOf("", v1beta1.ReasonClassNotFound)
			e.add(Finding{Object: about, Reason: v1beta1.ReasonClassNotFound, Description: m.Explanation,
				NextStep: m.NextStep, Instructions: m.Instructions})
		}
		return
	}
	if e.Class == nil || e.classDeleting() {
		return
	}
	ready := meta.FindStatusCondition(e.Class.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse {
		m := MeaningOf(ClassReady, ready.Reason)
		e.add(Finding{
			Object: about, Condition: v1beta1.ConditionReady, Reason: ready.Reason, Description: m.Explanation,
			Message:   ready.Message,
			StartTime: inUTC(ready.LastTransitionTime.Time), NextStep: m.NextStep, Instructions: m.Instructions,
		})
	}
}

func (e *explanation) addJoinBlocked() {
	if e.Class == nil {
		return
	}
	if c := meta.FindStatusCondition(e.Class.Status.Conditions, v1beta1.ConditionJoinBlocked); c != nil {
		m := MeaningOf(c.Type, c.Reason)
		e.add(Finding{Object: "machineclass/" + e.Class.Name, Condition: c.Type, Reason: c.Reason, Description: m.Explanation,
			Message: c.Message, StartTime: inUTC(c.LastTransitionTime.Time), NextStep: m.NextStep, Instructions: m.Instructions})
	}
}

// addReplacement explains how a failed or unhealthy machine will be replaced, and what prevents that.
func (e *explanation) addReplacement(first *metav1.Condition) {
	if first == nil || e.Machine.DeletionTimestamp != nil {
		return
	}
	switch {
	case first.Type == failedCondition, first.Type == v1beta1.ConditionRemediationRequested,
		first.Type == v1beta1.ConditionInterruptionNotice:
	case first.Reason == v1beta1.ReasonWaitingForReadinessGates:
		return // Readiness gates cause no replacement.
	case first.Type == v1beta1.ConditionNodeHealthy, first.Reason == v1beta1.ReasonNodeGone:
		e.addPolicy(first)
	default:
		return
	}
	m := e.Machine
	// If a policy prevents the replacement of the machine, the main finding must not say that the machine is replaced.
	addPrevented := func(f Finding) {
		if e.findings[e.main].NextStep = ""; first.Type == v1beta1.ConditionNodeHealthy {
			e.findings[e.main].NextStep = "The Node may recover."
		}
		e.add(f)
	}
	if c := e.condition(v1beta1.ConditionRemediationRequested); c != nil && c.Reason == v1beta1.ReasonRetriesExhausted &&
		first.Type == failedCondition {
		addPrevented(e.conditionFinding(c))
	}
	if _, skip := m.Annotations[v1beta1.AnnotationSkipRemediation]; skip {
		addPrevented(Finding{
			Object: e.about, Reason: RemediationSkipped, Description: "The annotation " + v1beta1.AnnotationSkipRemediation +
				" exempts the machine from replacement.",
			Instructions: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "-",
		})
	}
	if owner := metav1.GetControllerOf(m); owner == nil {
		addPrevented(Finding{Object: e.about, Reason: NoOwner, Description: "No set owns the machine, so it is not replaced.",
			Instructions: "If you do not need the machine any more, delete it: kubectl delete machines.machinist.dev NAME"})
		return
	}
	e.addFreezes()
	if first.Type == v1beta1.ConditionInterruptionNotice {
		return // Budgets do not apply to this replacement.
	}
	if e.Set != nil {
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionScalingUp); c != nil &&
			c.Reason == v1beta1.ReasonBackingOff {
			e.add(fleetFinding("machineset/"+e.Set.Name, e.Set.Namespace, c))
		}
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionReplicaFailure); c != nil &&
			c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacementsFailing {
			addPrevented(fleetFinding("machineset/"+e.Set.Name, e.Set.Namespace, c))
		}
	}
	const do = "Raise spec.remediation.maxInFlight, or delete the machine: kubectl delete machines.machinist.dev NAME"
	switch {
	case e.Deployment != nil && replacesNone(e.Deployment.Spec.Remediation):
		addPrevented(Finding{Object: "machinedeployment/" + e.Deployment.Name, Reason: NoBudget,
			Description: "The deployment replaces no machines: spec.remediation.maxInFlight is 0.", Instructions: do})
	case e.Set != nil && metav1.GetControllerOf(e.Set) == nil && replacesNone(e.Set.Spec.Remediation):
		addPrevented(Finding{Object: "machineset/" + e.Set.Name, Reason: NoBudget,
			Description: "The set replaces no machines: spec.remediation.maxInFlight is 0.", Instructions: do})
	}
}

func (e *explanation) addDisruptionDenied() {
	d := e.Denial
	if d == nil {
		return
	}
	f := Finding{
		Object: "machinedisruptionbudget/" + d.Budget, Reason: DisruptionDenied,
		Description:  "The machine is not replaced yet: " + d.Explanation + ".",
		NextStep:     "The machine is replaced when the budget allows another disruption, or when a window of the budget opens or closes.",
		Instructions: "Wait, raise maxDisrupted of the budget, or delete the machine: kubectl delete machines.machinist.dev NAME",
	}
	f.NextStepTime = inUTC(d.EndTime)
	if d.Budget == "" {
		f.Object, f.NextStep = e.about, "The machine is replaced when the annotation is removed or expires."
		f.Instructions = "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationDoNotDisrupt + "-"
	}
	e.add(f)
}

// replacesNone reports whether failed and unhealthy machines are not replaced.
func replacesNone(r v1beta1.MachineRemediation) bool {
	limit := r.MaxInFlightOrDefault()
	return limit.String() == "0" || limit.String() == "0%"
}

// addPolicy explains the health policy of an unhealthy machine, and what prevents the policy from requesting a
// replacement.
func (e *explanation) addPolicy(first *metav1.Condition) {
	nodeGone := first.Reason == v1beta1.ReasonNodeGone
	ends := "The Node may recover. "
	if nodeGone {
		ends = "A kubelet registers its Node only when it starts. "
	}
	if len(e.Checks) == 0 {
		ends += "No MachineHealthCheck selects the machine, so the built-in policy of the manager requests its replacement"
		if nodeGone {
			ends += " at once."
		} else {
			ends += " after --health-timeout (10 minutes by default)."
		}
		e.findings[e.main].NextStep = ends
		e.addTooManyUnhealthy()
		return
	}
	names := make([]string, len(e.Checks))
	for i, check := range e.Checks {
		names[i] = check.Name
	}
	checks := "MachineHealthCheck " + names[0] + " decides"
	if len(names) > 1 {
		checks = "The MachineHealthChecks " + strings.Join(names, ", ") + " decide"
	}
	e.findings[e.main].NextStep = ends + checks + " whether the machine is replaced."
	for i := range e.Checks {
		if f := checkFinding(&e.Checks[i]); f != nil {
			e.add(*f)
		}
	}
}

// addTooManyUnhealthy adds a finding if the built-in policy stops because of too many unhealthy machines. The policy
// does not report the number of unhealthy machines in a condition, so addTooManyUnhealthy counts these machines itself.
func (e *explanation) addTooManyUnhealthy() {
	unhealthy := 0
	for i := range e.UncheckedMachines {
		if c := Blocking(&e.UncheckedMachines[i]); c != nil && (c.Type == v1beta1.ConditionNodeHealthy &&
			c.Reason != v1beta1.ReasonWaitingForReadinessGates ||
			c.Type == failedCondition ||
			c.Reason == v1beta1.ReasonNodeGone) {
			unhealthy++
		}
	}
	limit := max(1, len(e.UncheckedMachines)*defaultMaxUnhealthy/100)
	if unhealthy <= limit {
		return
	}
	m := MeaningOf("", v1beta1.ReasonTooManyUnhealthy)
	e.findings[e.main].NextStep = "The Node may recover."
	e.add(Finding{Object: e.about, Reason: v1beta1.ReasonTooManyUnhealthy, NextStep: m.NextStep,
		Instructions: m.Instructions,
		Description: fmt.Sprintf("The built-in policy of the manager replaces no machine, because %d of the %d machines in the namespace that no MachineHealthCheck selects are unhealthy. With the default value of --health-max-unhealthy, at most %d of them may be unhealthy.",
			unhealthy, len(e.UncheckedMachines), limit)})
}

const defaultMaxUnhealthy = 40

// checkFinding returns what prevents a health check from requesting replacements, or nil.
func checkFinding(check *v1beta1.MachineHealthCheck) *Finding {
	for _, kind := range []string{v1beta1.ConditionRemediationAllowed, v1beta1.ConditionRemediationTemplateReady} {
		if c := meta.FindStatusCondition(check.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			f := fleetFinding("machinehealthcheck/"+check.Name, check.Namespace, c)
			return &f
		}
	}
	return nil
}

// addFreezes adds the freezes of the deployment and the set. If the deployment and the set are frozen for the same
// reason, only the freeze of the deployment is added.
func (e *explanation) addFreezes() {
	deploymentReason := ""
	if e.Deployment != nil {
		if c := meta.FindStatusCondition(e.Deployment.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
			c.Status == metav1.ConditionTrue {
			deploymentReason = c.Reason
			e.add(fleetFinding("machinedeployment/"+e.Deployment.Name, e.Deployment.Namespace, c))
		}
	}
	if e.Set != nil {
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
			c.Status == metav1.ConditionTrue && c.Reason != deploymentReason {
			e.add(fleetFinding("machineset/"+e.Set.Name, e.Set.Namespace, c))
		}
	}
}

// addOwnerAndFinalizers adds findings about the preservation of the machine, a deleted owner, an unprocessed change,
// and finalizers of other controllers.
func (e *explanation) addOwnerAndFinalizers() {
	m := e.Machine
	if c := e.condition(v1beta1.ConditionPreserved); c != nil && c.Status == metav1.ConditionFalse {
		e.add(e.conditionFinding(c))
	}
	if m.DeletionTimestamp == nil {
		if e.Set != nil && e.Set.DeletionTimestamp != nil {
			e.add(deletingOwner("machineset/"+e.Set.Name, e.Set))
		}
		if m.Status.ObservedGeneration < m.Generation && len(m.Status.Conditions) > 0 {
			e.add(Finding{Object: e.about, Reason: ReasonUnobserved,
				Description: "The provider process has not processed the last change of the machine's specification yet.",
				NextStep:    "If the provider process runs, it processes the change within seconds."})
		}
		return
	}
	others := e.otherFinalizers()
	if len(others) == 0 {
		return
	}
	f := Finding{
		Object: e.about, Reason: OtherFinalizers, Description: "Finalizers of other controllers also keep the object: " +
			finalizerNames(m, others) + ".",
		NextStep:     "The object is deleted when the owners of these finalizers have removed them.",
		Instructions: "Find out what each finalizer is for before you remove it yourself.",
	}
	if len(others) == len(m.Finalizers) {
		f.Description = "Only finalizers of other controllers still keep the object: " + finalizerNames(m, others) + "."
		f.StartTime = inUTC(m.DeletionTimestamp.Time)
		e.findings = nil
	}
	e.add(f)
}
