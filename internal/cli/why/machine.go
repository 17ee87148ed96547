package why

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Explain says what a machine waits for. What stands in its way comes first, then what will become of it, and what else
// holds it up. Of a machine that waits for nothing, and of which nothing else is wrong, it says just that.
func Explain(f Facts) []Finding {
	e := explanation{Facts: f, about: "machine/" + f.Machine.Name}
	e.add(e.unserved()...)
	e.main = len(e.findings)
	blocking, open := Blocking(f.Machine), append(e.certificate(), unowned(f)...)
	if blocking == nil {
		e.settled(len(open) > 0)
	} else {
		e.add(e.wayOut(blocking, e.blocked(blocking)))
	}
	e.secondary(blocking)
	e.class(blocking)
	e.repair(blocking)
	e.denied()
	e.add(open...)
	e.others()
	return e.findings
}

type explanation struct {
	Facts
	about    string
	findings []Finding
	// main is the index of the finding about what the machine waits for first of all.
	main int
}

func (e *explanation) add(more ...Finding) {
	for _, f := range more {
		f.Do = e.named(f.Do)
		e.findings = append(e.findings, f)
	}
}

// named puts the machine into a command.
func (e *explanation) named(do string) string {
	node := "NODE"
	if ref := e.Machine.Status.NodeRef; ref != nil {
		node = ref.Name
	}
	return strings.NewReplacer("NAME", e.Machine.Name+" -n "+e.Machine.Namespace, "NODE", node).Replace(do)
}

func (e *explanation) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(e.Machine.Status.Conditions, kind)
}

// blocked is the finding about what the machine waits for.
func (e *explanation) blocked(c *metav1.Condition) Finding {
	f := e.plain(c)
	timeouts, until := e.Machine.Spec.Timeouts, time.Time{}
	next := e.nextTry()
	switch {
	case c.Type == failed || c.Type == v1beta1.ConditionPaused || c.Type == v1beta1.ConditionRemediationRequested:
	case c.Type == v1beta1.ConditionInterruptionNotice:
		if t := e.Machine.Status.InterruptionTime; t != nil {
			until = t.Time
		}
	case c.Type == v1beta1.ConditionPreserved:
		until, _ = time.Parse(time.RFC3339, e.Machine.Annotations[v1beta1.AnnotationPreservedUntil])
	case c.Type == v1beta1.ConditionDeleting:
		f.Message = e.hooks(c)
		if drained := e.condition(v1beta1.ConditionDrained); drained != nil && isDrain(c.Reason) {
			until = drained.LastTransitionTime.Add(timeouts.DrainOrDefault())
			f.Ends = strings.TrimSpace(f.Ends + " Before the deadline pods that are left are deleted.")
		}
		if last := e.Machine.Status.LastOperation; last != nil && last.Type == v1beta1.OperationDelete && last.Code != "" {
			until = next
		}
	case c.Type == v1beta1.ConditionUpToDate:
		if last := e.Machine.Status.LastOperation; c.Reason == v1beta1.ReasonUpdating && last != nil &&
			last.Type == v1beta1.OperationUpdate && last.LastUpdateTime != nil {
			until = last.LastUpdateTime.Add(timeouts.UpdateOrDefault())
			f.Ends = "It goes on when that is done; after the time given it is said to take too long."
		}
		if c.Reason == v1beta1.ReasonUpdateError {
			until = next
		}
	case c.Type == v1beta1.ConditionLaunched && c.Reason == v1beta1.ReasonInvalidConfiguration && !next.IsZero():
		m := refusedByProvider()
		f.What, f.Ends, f.Do = m.Explanation, m.Ends, m.Do
		until = next
	case joins(c):
		// Time to join begins anew when Launched changes; the target cluster's absences are left out, which only the process
		// knows.
		began := e.Machine.CreationTimestamp.Time
		if launched := e.condition(v1beta1.ConditionLaunched); launched != nil && launched.LastTransitionTime.After(began) {
			began = launched.LastTransitionTime.Time
		}
		until = began.Add(timeouts.CreationOrDefault())
		f.Ends = strings.TrimSpace(f.Ends +
			" If it is not Running by then it is Failed; time in which its cluster is unreachable does not count.")
		if c.Type == v1beta1.ConditionLaunched && next.After(e.Now) {
			f.Ends += fmt.Sprintf(" The next try is due at %s.", stamp(next))
		}
	}
	if until.After(e.Now) {
		f.Until = at(until)
	}
	if last := e.Machine.Status.LastOperation; last != nil && last.Attempts > 0 &&
		last.State != v1beta1.OperationSucceeded {
		tries := "once"
		if last.Attempts > 1 {
			tries = fmt.Sprintf("%d times in a row", last.Attempts)
		}
		f.Message = strings.TrimSpace(fmt.Sprintf("%s (%s failed %s, with %s.)", f.Message, last.Type, tries, last.Code))
	}
	return f
}

// nextTry is when a call of the cloud that failed is tried again, zero if no try is due.
func (e *explanation) nextTry() time.Time {
	if last := e.Machine.Status.LastOperation; last != nil && last.NextTryTime != nil {
		return last.NextTryTime.Time
	}
	return time.Time{}
}

// joins says whether the creation timeout runs while a machine waits for this.
func joins(c *metav1.Condition) bool {
	switch c.Reason {
	case v1beta1.ReasonProvisioning, v1beta1.ReasonInsufficientResources, v1beta1.ReasonProviderUnavailable,
		v1beta1.ReasonCreateFailed,
		v1beta1.ReasonCredentialsRefused:
		return c.Type == v1beta1.ConditionLaunched
	case v1beta1.ReasonWaitingForNode, v1beta1.ReasonWaitingForStartupTaints:
		return c.Type == v1beta1.ConditionRegistered
	}
	return false
}

// hooks says of a deletion what it waits for, with hooks as they are now.
func (e *explanation) hooks(c *metav1.Condition) string {
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

// settled says that a machine waits for nothing, unless something else is still open.
func (e *explanation) settled(open bool) {
	f := Finding{About: e.about, Condition: v1beta1.ConditionReady, Reason: v1beta1.ReasonMachineReady,
		What: "It waits for nothing: it is a Ready node and what its specification asks for."}
	if e.Machine.Status.Phase == v1beta1.MachineAvailable {
		f.What = "It waits for nothing: its instance runs, there is no cluster for it to join, and it is what its specification asks for."
	}
	switch {
	case e.Denied != nil:
		f.What = "It works, and will be replaced."
	case open:
		f.What = "Its instance runs and is what its specification asks for, but something else is wrong."
	}
	if ready := e.condition(v1beta1.ConditionReady); ready != nil {
		f.Since = at(ready.LastTransitionTime.Time)
	}
	e.add(f)
}

// certificate says that a certificate request of the machine's kubelet is left pending.
func (e *explanation) certificate() []Finding {
	c := e.condition(v1beta1.ConditionCertificateApproved)
	if c == nil || c.Status != metav1.ConditionFalse || e.Machine.DeletionTimestamp != nil {
		return nil
	}
	return []Finding{e.plain(c)}
}

// secondary adds what else is not as it should be, behind the first thing that is waited for.
func (e *explanation) secondary(first *metav1.Condition) {
	if first == nil {
		return
	}
	kinds := []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy,
		v1beta1.ConditionUpToDate}
	if e.Machine.DeletionTimestamp != nil {
		kinds = []string{v1beta1.ConditionNodeHealthy}
		if c := e.condition(v1beta1.ConditionDrainExtended); c != nil && c.Status == metav1.ConditionTrue &&
			isDrain(first.Reason) {
			e.add(e.plain(c))
		}
	}
	for _, kind := range kinds {
		c := e.condition(kind)
		// The first step that is not done says enough: those after it wait for it.
		if c == nil || c.Status == metav1.ConditionTrue || c.Type == first.Type || c.Reason == first.Reason {
			continue
		}
		f := e.plain(c)
		if first.Type == failed {
			f.Ends, f.Do = "", "" // It is how it came to fail.
		}
		e.add(f)
		return
	}
}

// plain is the finding about a condition for which nothing more is known than what it says.
func (e *explanation) plain(c *metav1.Condition) Finding {
	m := MeaningOf(c.Type, c.Reason)
	return Finding{
		About: e.about, Condition: c.Type, Reason: c.Reason, What: m.Explanation, Message: c.Message,
		Since: at(c.LastTransitionTime.Time), Ends: m.Ends, Do: m.Do,
	}
}
