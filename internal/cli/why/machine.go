package why

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Explain returns findings that explain what a machine waits for. The first finding is about the first obstacle.
// Further findings describe other problems of the machine, and its replacement. For a machine without a problem,
// Explain returns one finding, which says that the machine waits for nothing.
func Explain(f Facts) []Finding {
	e := explanation{Facts: f, about: "machine/" + f.Machine.Name}
	e.add(e.providerNotRunning()...)
	e.main = len(e.findings)
	blocking, problems := Blocking(f.Machine), append(e.otherProblems(), unownedFindings(f)...)
	if blocking == nil {
		e.addNothingBlocks(len(problems) > 0)
	} else {
		e.add(e.correctAdvice(blocking, e.blockingFinding(blocking)))
	}
	e.addUnfinishedStep(blocking)
	e.addClass(blocking)
	e.addReplacement(blocking)
	e.addDisruptionDenied()
	e.add(problems...)
	e.addOwnerAndFinalizers()
	return e.findings
}

type explanation struct {
	Facts
	about    string
	findings []Finding
	main     int
}

func (e *explanation) add(more ...Finding) {
	for _, f := range more {
		f.Instructions = e.fillInNames(f.Instructions)
		e.findings = append(e.findings, f)
	}
}

// fillInNames inserts the machine, its Node and its deployment or set into commands.
func (e *explanation) fillInNames(do string) string {
	do = fillIn(do, e.about, e.Machine.Namespace)
	switch {
	case e.Deployment != nil:
		do = fillIn(do, "machinedeployment/"+e.Deployment.Name, e.Deployment.Namespace)
	case e.Set != nil:
		do = fillIn(do, "machineset/"+e.Set.Name, e.Set.Namespace)
	}
	if ref := e.Machine.Status.NodeRef; ref != nil {
		do = strings.ReplaceAll(do, "node NODE", "node "+ref.Name)
	}
	return do
}

func (e *explanation) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(e.Machine.Status.Conditions, kind)
}

func (e *explanation) blockingFinding(c *metav1.Condition) Finding {
	f := e.conditionFinding(c)
	timeouts, until := e.Machine.Spec.Timeouts, time.Time{}
	next := e.nextTry()
	switch {
	case c.Type == failedCondition || c.Type == v1beta1.ConditionPaused || c.Type == v1beta1.ConditionRemediationRequested:
	case c.Type == v1beta1.ConditionInterruptionNotice:
		if t := e.Machine.Status.InterruptionTime; t != nil {
			until = t.Time
		}
	case c.Type == v1beta1.ConditionPreserved:
		until, _ = time.Parse(time.RFC3339, e.Machine.Annotations[v1beta1.AnnotationPreservedUntil])
	case c.Type == v1beta1.ConditionDeleting:
		f.Description = strings.TrimSpace(f.Description + " " + describeDeletion(e.DeletionReason))
		f.Message = e.deletionMessage(c)
		if drained := e.condition(v1beta1.ConditionDrained); drained != nil && isDrain(c.Reason) {
			until = drained.LastTransitionTime.Add(timeouts.DrainOrDefault())
			f.NextStep = strings.TrimSpace(f.NextStep + " Shortly before the deadline, Machinist deletes the remaining pods.")
		}
		if last := e.Machine.Status.LastOperation; last != nil && last.Type == v1beta1.OperationDelete && last.Code != "" {
			until = next
		}
	case c.Type == v1beta1.ConditionUpToDate:
		if last := e.Machine.Status.LastOperation; c.Reason == v1beta1.ReasonUpdating && last != nil &&
			last.Type == v1beta1.OperationUpdate && last.LastUpdateTime != nil {
			until = last.LastUpdateTime.Add(timeouts.UpdateOrDefault())
			f.NextStep = "Machinist continues when the update is done. If it takes longer than timeouts.update, the condition UpToDate reports that."
		}
		if c.Reason == v1beta1.ReasonUpdateError {
			until = next
		}
	case c.Type == v1beta1.ConditionLaunched && c.Reason == v1beta1.ReasonInvalidConfiguration && !next.IsZero():
		m := refusedByProvider()
		f.Description, f.NextStep, f.Instructions = m.Explanation, m.NextStep, m.Instructions
		until = next
	case creationTimeoutRuns(c), c.Reason == v1beta1.ReasonWaitingForReadinessGates && machinestate.IsStarting(e.Machine):
		// The timeout restarts when Launched changes. The computed time is an estimate, because only the provider
		// knows about outages of the target cluster, which stop the timeout.
		if e.Machine.IsAwaitingCapacity() && c.Type == v1beta1.ConditionLaunched {
			m := awaitingCapacity()
			f.Description, f.NextStep, f.Instructions = m.Explanation, m.NextStep, m.Instructions
		}
		began := e.Machine.CreationTimestamp.Time
		launched, launch := e.condition(v1beta1.ConditionLaunched), e.Machine.Status.Launch
		switch {
		case c.Type == v1beta1.ConditionLaunched && launch != nil && launch.NoCapacitySince != nil:
			began = launch.NoCapacitySince.Time
		case launched != nil && launched.LastTransitionTime.After(began):
			began = launched.LastTransitionTime.Time
		}
		until = began.Add(timeouts.CreationOrDefault())
		f.NextStep = strings.TrimSpace(f.NextStep +
			" If the machine is not Running within timeouts.creation, it becomes Failed. Time during which the target cluster is unreachable does not count.")
		if c.Type == v1beta1.ConditionLaunched && next.After(e.Now) {
			f.NextStep += fmt.Sprintf(" The next try is at %s.", formatTime(next))
		}
	}
	if until.After(e.Now) {
		f.NextStepTime = inUTC(until)
	}
	if last := e.Machine.Status.LastOperation; last != nil && last.Attempts > 0 &&
		last.State != v1beta1.OperationSucceeded {
		tries := "once"
		if last.Attempts > 1 {
			tries = fmt.Sprintf("%d times in a row", last.Attempts)
		}
		f.Message = strings.TrimSpace(fmt.Sprintf("%s (%s failed %s. The last error code is %s.)", f.Message, last.Type, tries,
			last.Code))
	}
	return f
}

// nextTry returns when a failed call to the cloud will be retried, or zero.
func (e *explanation) nextTry() time.Time {
	if last := e.Machine.Status.LastOperation; last != nil && last.NextTryTime != nil {
		return last.NextTryTime.Time
	}
	return time.Time{}
}

// creationTimeoutRuns reports whether the time for which a machine waits for the condition counts towards
// spec.timeouts.creation.
func creationTimeoutRuns(c *metav1.Condition) bool {
	switch c.Reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed, v1beta1.ReasonCredentialsRefused:
		return c.Type == v1beta1.ConditionLaunched
	case v1beta1.ReasonWaitingForNode, v1beta1.ReasonWaitingForStartupTaints:
		return c.Type == v1beta1.ConditionRegistered
	}
	return false
}

// describeDeletion returns a sentence about the reason for which a set has deleted the machine.
func describeDeletion(reason string) string {
	switch reason {
	case "":
		return ""
	case machineset.ScaleDownReason:
		return "The set deleted the machine because it had more machines than replicas."
	case string(v1beta1.DisruptionRollout):
		return "The set deleted the machine because a rollout replaces its revision."
	case string(v1beta1.DisruptionReplace):
		return "The set deleted the machine because its replacement was requested by annotation."
	case string(v1beta1.DisruptionExpiry):
		return "The set deleted the machine because it exceeded expireAfter."
	}
	return fmt.Sprintf("The set deleted the machine in order to replace it (reason %s).", reason)
}

// deletionMessage describes what a deletion waits for. If the deletion waits for hooks, the message lists the remaining
// hooks. During a drain, the message comes from the condition Drained.
func (e *explanation) deletionMessage(c *metav1.Condition) string {
	var hooks []v1beta1.LifecycleHook
	switch c.Reason {
	case v1beta1.ReasonWaitingForPreDrainHook:
		hooks = e.Machine.Spec.LifecycleHooks.PreDrain
	case v1beta1.ReasonWaitingForPreTerminateHook:
		hooks = e.Machine.Spec.LifecycleHooks.PreTerminate
	}
	if len(hooks) > 0 {
		names := make([]string, len(hooks))
		for i, h := range hooks {
			names[i] = fmt.Sprintf("%s (owned by %s)", h.Name, h.Owner)
		}
		return "Waiting for " + strings.Join(names, ", ") + "."
	}
	if drained := e.condition(v1beta1.ConditionDrained); drained != nil && isDrain(c.Reason) && drained.Message != "" {
		return drained.Message
	}
	return c.Message
}

// addNothingBlocks adds the finding for a machine that does not wait. If the machine has problems, the finding says so.
func (e *explanation) addNothingBlocks(hasProblems bool) {
	f := Finding{Object: e.about, Condition: v1beta1.ConditionReady, Reason: v1beta1.ReasonMachineReady,
		Description: "The machine waits for nothing: it is a Ready Node and matches its specification."}
	if e.Machine.Status.Phase == v1beta1.MachineAvailable {
		f.Description = "The machine waits for nothing: its instance runs and matches the specification, and there is no target cluster to join."
	}
	switch {
	case e.Denial != nil:
		f.Description = "The machine works, and will be replaced."
	case hasProblems:
		f.Description = "The instance runs and matches the specification of the machine, but there is another problem."
	}
	if ready := e.condition(v1beta1.ConditionReady); ready != nil {
		f.StartTime = inUTC(ready.LastTransitionTime.Time)
	}
	e.add(f)
}

// otherProblems returns findings for conditions that do not affect the condition Ready.
func (e *explanation) otherProblems() (findings []Finding) {
	for _, kind := range []string{v1beta1.ConditionCertificateApproved, v1beta1.ConditionOwned} {
		if c := e.condition(kind); c != nil && c.Status == metav1.ConditionFalse && e.Machine.DeletionTimestamp == nil {
			findings = append(findings, e.conditionFinding(c))
		}
	}
	return findings
}

// addUnfinishedStep adds the first incomplete step, unless it is the obstacle that was already reported.
func (e *explanation) addUnfinishedStep(first *metav1.Condition) {
	if first == nil {
		return
	}
	kinds := []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy,
		v1beta1.ConditionUpToDate}
	if e.Machine.DeletionTimestamp != nil {
		kinds = []string{v1beta1.ConditionNodeHealthy}
		if c := e.condition(v1beta1.ConditionDrainExtended); c != nil && c.Status == metav1.ConditionTrue &&
			isDrain(first.Reason) {
			e.add(e.conditionFinding(c))
		}
	}
	for _, kind := range kinds {
		c := e.condition(kind)
		if c == nil || c.Status == metav1.ConditionTrue || c.Type == first.Type || c.Reason == first.Reason {
			continue
		}
		f := e.conditionFinding(c)
		if first.Type == failedCondition {
			f.NextStep, f.Instructions = "", "" // The step explains the failure, but the machine no longer waits for the step.
		}
		e.add(f)
		return
	}
}

func (e *explanation) conditionFinding(c *metav1.Condition) Finding {
	m := MeaningOf(c.Type, c.Reason)
	return Finding{
		Object: e.about, Condition: c.Type, Reason: c.Reason, Description: m.Explanation, Message: c.Message,
		StartTime: inUTC(c.LastTransitionTime.Time), NextStep: m.NextStep, Instructions: m.Instructions,
	}
}
