package simulation

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
)

// The rules of stated reasons. A set states in events why it has deleted machines. Each statement must be true, and
// must permit the deletion. A set must state a reason for each deletion, unless the reconciliation fails.

// unstated is a deletion for which the reconciliation must still state a reason.
type unstated struct {
	machine string
	// surplus and broken contain the reasons that may be true for a deletion of a surplus machine or a replacement.
	surplus, broken []string
	// findings contains the rules that the deletion would break, by reason.
	findings map[string][]finding
}

const (
	scaledDownReason = "ScaleDown"
	deletedEvent     = "MachinesDeleted"
	remediatedEvent  = "MachinesRemediated"
)

// expectStatement records a deletion by a set.
func (o *oracle) expectStatement(c apiserver.Change, m *v1beta1.Machine) {
	f := o.world.top()
	set := o.sets[metav1.GetControllerOfNoCopy(m).UID]
	if f == nil || f.controller.table.Name != "machineset" || set == nil {
		return
	}
	u := unstated{machine: m.Name, findings: map[string][]finding{}}
	u.surplus = o.surplusReasons(m)
	for _, v := range o.believedVersions(m.UID) {
		if v == nil {
			continue
		}
		if v.Status.FailureReason != "" {
			u.broken = append(u.broken, string(v.Status.FailureReason))
		}
		for _, kind := range []string{v1beta1.ConditionRemediationRequested, v1beta1.ConditionInterruptionNotice} {
			if r := meta.FindStatusCondition(v.Status.Conditions, kind); r != nil && r.Status == metav1.ConditionTrue {
				u.broken = append(u.broken, r.Reason)
			}
		}
	}
	for _, reason := range u.surplus {
		if reason != scaledDownReason {
			u.findings[reason] = o.disruptionFindings(c, m, []v1beta1.DisruptionReason{v1beta1.DisruptionReason(reason)})
		}
	}
	f.unstated = append(f.unstated, u)
}

// surplusReasons returns the reasons for which the set may delete a machine without replacing a broken one.
func (o *oracle) surplusReasons(m *v1beta1.Machine) (reasons []string) {
	id := metav1.GetControllerOfNoCopy(m).UID
	marked := true
	for _, v := range o.believedVersions(m.UID) {
		if v == nil {
			continue
		}
		value, replace := v.Annotations[v1beta1.AnnotationReplace]
		marked = marked && replace
		if replace {
			reasons = append(reasons, string(reasonOfMark(value)))
		}
	}
	surely, maybe := o.isOutdated(id)
	if maybe {
		reasons = append(reasons, string(v1beta1.DisruptionRollout))
	}
	_, live := o.liveBetween(func(owner uid) bool { return owner == id })
	// A rollout lowers the replicas of an old set, so both reasons are true of a set that was outdated at some moment.
	if _, tooMany, left := o.scaleDownLeft(id, live); tooMany || left > 0 || maybe || !surely && !marked {
		reasons = append(reasons, scaledDownReason)
	}
	return reasons
}

var deletionStatement = regexp.MustCompile(`^(?:Deleted|Replacing) (?:machine (\S+) \(reason (\S+)\)|` +
	`\d+ machines \(reason (\S+)\): (.+?)(?: and (\d+) more)?)\.$`)

// checkStatement checks an event in which a set states the reason of deletions.
func (o *oracle) checkStatement(event, note string) {
	f := o.world.top()
	if f == nil || event != deletedEvent && event != remediatedEvent {
		return
	}
	parts := deletionStatement.FindStringSubmatch(note)
	if parts == nil {
		o.breach("reason", "an event states no reason: %s", note)
		return
	}
	names, reason := []string{parts[1]}, parts[2]
	if parts[1] == "" {
		names, reason = strings.Split(parts[4], ", "), parts[3]
	}
	for _, name := range names {
		i := slices.IndexFunc(f.unstated, func(u unstated) bool { return u.machine == name })
		if i < 0 {
			continue // The machine was already being deleted.
		}
		u := f.unstated[i]
		f.unstated = slices.Delete(f.unstated, i, i+1)
		o.judged["reason"]++
		possible := u.surplus
		if event == remediatedEvent {
			possible = u.broken
		}
		if !slices.Contains(possible, reason) {
			o.breach("reason", "%s states the reason %s for the deletion of machine %s, but only these can be true: %v", event,
				reason, name, possible)
		}
		for _, broken := range u.findings[reason] {
			o.breach(broken.rule, "%s", broken.text)
		}
	}
	if parts[5] != "" {
		f.unstated = nil // The event does not name all machines.
	}
}

// mustBeStated checks that a successful reconciliation has stated the reasons of its deletions.
func (o *oracle) mustBeStated(f *frame) {
	for _, u := range f.unstated {
		o.breach("reason", "the reconciliation of %s deleted machine %s without stating a reason", f.key, u.machine)
	}
}
