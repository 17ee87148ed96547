package why

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// ClassReady is the condition Ready as a class has it, where its reasons mean something else than for a machine.
const ClassReady = "MachineClass"

// class adds what is wrong with the class, where the machine needs it now.
func (e *explanation) class(first *metav1.Condition) {
	if first == nil || e.Machine.DeletionTimestamp != nil || e.Machine.Spec.ClassRef == nil {
		return
	}
	if first.Type == v1beta1.ConditionRegistered || first.Reason == v1beta1.ReasonJoinClusterTimeout {
		e.joinBlocked()
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
			e.add(Finding{About: about, Reason: v1beta1.ReasonClassNotFound, What: m.Explanation, Ends: m.Ends, Do: m.Do})
		}
		return
	}
	if e.Class == nil || e.classLeaves() {
		return
	}
	ready := meta.FindStatusCondition(e.Class.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse {
		m := MeaningOf(ClassReady, ready.Reason)
		e.add(Finding{
			About: about, Condition: v1beta1.ConditionReady, Reason: ready.Reason, What: m.Explanation, Message: ready.Message,
			Since: at(ready.LastTransitionTime.Time), Ends: m.Ends, Do: m.Do,
		})
	}
}

// joinBlocked adds what keeps all machines of the class from joining.
func (e *explanation) joinBlocked() {
	if e.Class == nil {
		return
	}
	if c := meta.FindStatusCondition(e.Class.Status.Conditions, v1beta1.ConditionJoinBlocked); c != nil {
		m := MeaningOf(c.Type, c.Reason)
		e.add(Finding{About: "machineclass/" + e.Class.Name, Condition: c.Type, Reason: c.Reason, What: m.Explanation,
			Message: c.Message, Since: at(c.LastTransitionTime.Time), Ends: m.Ends, Do: m.Do})
	}
}

// repair adds what will become of a machine that failed or is unhealthy: who replaces it, and what stops that.
func (e *explanation) repair(first *metav1.Condition) {
	if first == nil || e.Machine.DeletionTimestamp != nil {
		return
	}
	switch {
	case first.Type == failed, first.Type == v1beta1.ConditionRemediationRequested,
		first.Type == v1beta1.ConditionInterruptionNotice:
	case first.Type == v1beta1.ConditionNodeHealthy, first.Reason == v1beta1.ReasonNodeGone:
		e.policy(first)
	default:
		return
	}
	m := e.Machine
	// stopped is for what keeps the machine from being replaced, whatever was said of that before.
	stopped := func(f Finding) {
		if e.findings[e.main].Ends = ""; first.Type == v1beta1.ConditionNodeHealthy {
			e.findings[e.main].Ends = "It may recover."
		}
		e.add(f)
	}
	if c := e.condition(v1beta1.ConditionRemediationRequested); c != nil && c.Reason == v1beta1.ReasonRetriesExhausted &&
		first.Type == failed {
		stopped(e.plain(c))
	}
	if _, skip := m.Annotations[v1beta1.AnnotationSkipRemediation]; skip {
		stopped(Finding{
			About: e.about, Reason: RemediationSkipped, What: "It is exempt from replacement by the annotation " +
				v1beta1.AnnotationSkipRemediation + ".",
			Do: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "-",
		})
	}
	if owner := metav1.GetControllerOf(m); owner == nil {
		stopped(Finding{About: e.about, Reason: NoOwner, What: "No set owns it, so nobody replaces it.",
			Do: "Delete it when it is of no use: kubectl delete machines.machinist.dev NAME"})
		return
	}
	e.frozen()
	if first.Type == v1beta1.ConditionInterruptionNotice {
		return // No budget holds it back.
	}
	if e.Set != nil {
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionScalingUp); c != nil &&
			c.Reason == v1beta1.ReasonBackingOff {
			e.add(fleetFinding("machineset/"+e.Set.Name, c))
		}
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionReplicaFailure); c != nil &&
			c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacementsFailing {
			stopped(fleetFinding("machineset/"+e.Set.Name, c))
		}
	}
	const do = "Raise it, or delete the machine: kubectl delete machines.machinist.dev NAME"
	switch {
	case e.Deployment != nil && replacesNone(e.Deployment.Spec.Remediation):
		stopped(Finding{About: "machinedeployment/" + e.Deployment.Name, Reason: NoBudget,
			What: "Its deployment replaces no machines: spec.remediation.maxInFlight is 0.", Do: do})
	case e.Set != nil && metav1.GetControllerOf(e.Set) == nil && replacesNone(e.Set.Spec.Remediation):
		stopped(Finding{About: "machineset/" + e.Set.Name, Reason: NoBudget,
			What: "Its set replaces no machines: spec.remediation.maxInFlight is 0.", Do: do})
	}
}

// denied adds which budget does not let the machine be replaced, or that it is exempt.
func (e *explanation) denied() {
	d := e.Denied
	if d == nil {
		return
	}
	f := Finding{
		About: "machinedisruptionbudget/" + d.Budget, Reason: DisruptionDenied, What: "It is not replaced yet: " + d.Why + ".",
		Ends: "It goes on when the budget has room, or the window changes.", Until: at(d.Until),
		Do: "Wait, raise maxDisrupted of the budget, or delete the machine: kubectl delete machines.machinist.dev NAME",
	}
	if d.Budget == "" {
		f.About, f.Ends = e.about, "It goes on when the annotation is gone, or its time is past."
		f.Do = "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationDoNotDisrupt + "-"
	}
	e.add(f)
}

// replacesNone reports whether an owner replaces no failed or unhealthy machines.
func replacesNone(r v1beta1.MachineRemediation) bool {
	limit := r.MaxInFlightOrDefault()
	return limit.String() == "0" || limit.String() == "0%"
}

// policy says which policy judges an unhealthy machine, and whether it may act.
func (e *explanation) policy(first *metav1.Condition) {
	begin := "It may recover. If it does not, "
	if first.Reason == v1beta1.ReasonNodeGone {
		begin = "A kubelet registers its node only when it starts. "
	}
	ends := &e.findings[e.main].Ends
	if len(e.Checks) == 0 {
		*ends = begin + "the manager's own policy has it replaced, after 10 minutes unless the manager's flags say otherwise: no MachineHealthCheck selects it."
		if first.Reason == v1beta1.ReasonNodeGone {
			*ends = begin + "The manager's own policy has the machine replaced at once: no MachineHealthCheck selects it."
		}
		e.tooManyUnwell()
		return
	}
	names := make([]string, len(e.Checks))
	for i, check := range e.Checks {
		names[i] = check.Name
	}
	*ends = begin + "it is judged by MachineHealthCheck " + strings.Join(names, ", ") + "."
	if first.Reason == v1beta1.ReasonNodeGone {
		*ends = begin + "The machine is judged by MachineHealthCheck " + strings.Join(names, ", ") + "."
	}
	for i := range e.Checks {
		if f := checkFinding(&e.Checks[i]); f != nil {
			e.add(*f)
		}
	}
}

// tooManyUnwell says that the manager's own policy replaces nothing, because so many of the machines that it judges are
// not well. It has no object of its own whose condition would say that.
func (e *explanation) tooManyUnwell() {
	unwell := 0
	for i := range e.Unchecked {
		if c := Blocking(&e.Unchecked[i]); c != nil && (c.Type == v1beta1.ConditionNodeHealthy || c.Type == failed ||
			c.Reason == v1beta1.ReasonNodeGone) {
			unwell++
		}
	}
	limit := max(1, len(e.Unchecked)*defaultMaxUnhealthy/100)
	if unwell <= limit {
		return
	}
	m := MeaningOf("", v1beta1.ReasonTooManyUnhealthy)
	e.findings[e.main].Ends = "It may recover."
	e.add(Finding{About: e.about, Reason: v1beta1.ReasonTooManyUnhealthy, Ends: m.Ends, Do: m.Do,
		What: fmt.Sprintf("The manager's own policy replaces none of them: of the %d machines of the namespace that no MachineHealthCheck selects, %d are not well, and it stops at more than %d, unless --health-max-unhealthy says otherwise.",
			len(e.Unchecked), unwell, limit)})
}

// defaultMaxUnhealthy is v1beta1.DefaultMaxUnhealthy in percent.
const defaultMaxUnhealthy = 40

// checkFinding says what keeps a health check from having machines replaced, nil if nothing does.
func checkFinding(check *v1beta1.MachineHealthCheck) *Finding {
	c := meta.FindStatusCondition(check.Status.Conditions, v1beta1.ConditionRemediationAllowed)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	f := fleetFinding("machinehealthcheck/"+check.Name, c)
	return &f
}

// frozen adds the freezes of set and deployment, once where they have the same reason.
func (e *explanation) frozen() {
	var said []string
	if e.Deployment != nil {
		if c := meta.FindStatusCondition(e.Deployment.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
			c.Status == metav1.ConditionTrue {
			said = append(said, c.Reason)
			e.add(fleetFinding("machinedeployment/"+e.Deployment.Name, c))
		}
	}
	if e.Set != nil {
		if c := meta.FindStatusCondition(e.Set.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
			c.Status == metav1.ConditionTrue && !slices.Contains(said, c.Reason) {
			e.add(fleetFinding("machineset/"+e.Set.Name, c))
		}
	}
}

// others adds what holds the object itself.
func (e *explanation) others() {
	m := e.Machine
	if c := e.condition(v1beta1.ConditionPreserved); c != nil && c.Status == metav1.ConditionFalse {
		e.add(e.plain(c))
	}
	if m.DeletionTimestamp == nil {
		if e.Set != nil && e.Set.DeletionTimestamp != nil {
			e.add(deletingOwner("machineset/"+e.Set.Name, e.Set))
		}
		if m.Status.ObservedGeneration < m.Generation && len(m.Status.Conditions) > 0 {
			e.add(Finding{About: e.about, Reason: Unobserved,
				What: "Its specification changed, and no process has said yet that it acted upon that.",
				Ends: "It does within seconds where the provider's process is running."})
		}
		return
	}
	others := e.otherFinalizers()
	if len(others) == 0 {
		return
	}
	f := Finding{
		About: e.about, Reason: OtherFinalizers, What: "Finalizers of other controllers hold the object, too: " +
			finalizerNames(m, others) + ".",
		Ends: "The object is deleted when their owners have removed them.",
		Do:   "Find out what each is for before you remove it by hand.",
	}
	if len(others) == len(m.Finalizers) {
		f.What = "Machinist no longer holds it, but finalizers of other controllers do: " + finalizerNames(m, others) + "."
		f.Since = at(m.DeletionTimestamp.Time)
		e.findings = nil
	}
	e.add(f)
}
