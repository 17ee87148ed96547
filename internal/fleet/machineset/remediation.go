package machineset

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

const (
	minRemediationBackoff = 10 * time.Second
	maxRemediationBackoff = 30 * time.Minute
)

// recoveryGrace is the time for which a set does not replace a machine that became Ready again. During this time, the
// health check can withdraw its request for remediation. After an outage, the set's cache may be updated before the
// health check's cache.
const recoveryGrace = time.Minute

func remediable(m *v1beta1.Machine) bool {
	return machinestate.IsLive(m) && (machinestate.ToBeReplaced(m) || machinestate.NeedsReboot(m)) &&
		!machinestate.ReplacementExempt(m) &&
		!machinestate.IsUnchangeable(m) &&
		!preservation.MustPreserve(m) && machinestate.UnlaunchableCondition(m) == nil
}

// remediationCandidates returns the machines that may be replaced, in the order of disruption.CompareBroken. wait is
// the time until the first recovered machine becomes a candidate, or zero.
func remediationCandidates(machines []*v1beta1.Machine, seen recoveries, now time.Time) (candidates []*v1beta1.Machine,
	wait time.Duration) {
	for _, m := range machines {
		if !remediable(m) {
			continue
		}
		if left := seen.graceLeft(m, now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		candidates = append(candidates, m)
	}
	slices.SortFunc(candidates, disruption.CompareBroken)
	return candidates, wait
}

// remediate plans the deletion of failed and unhealthy machines. Machines that lost their instance are always
// included, other machines only within maxInFlight and the budgets. While the API rejects new machines, failed
// machines stay, because they may recover and can be inspected. Machines that cannot be launched stop the creation of
// machines, but not the deletion of failed machines.
func (p *Plan) remediate(s State, active []*v1beta1.Machine) {
	candidates, wait := remediationCandidates(active, s.Recoveries, s.Now)
	if wait > 0 {
		p.waitFor(wait)
	}
	if len(candidates) == 0 {
		return
	}
	if p.FreezeReason = s.freezeReason(); p.FreezeReason.Reason != "" {
		p.requeueFrozen(s)
		return
	}
	// If the deployment creates the replacements, the checks before a creation do not apply.
	if !has(s.Set.Annotations, v1beta1.AnnotationNoCreate) {
		if p.CreationBlocked.Reason == v1beta1.ReasonTooManyMachines || s.unknownSchema().Reason != "" {
			return
		}
		if wait := s.NextCreation.Sub(s.Now); wait > 0 {
			p.waitFor(wait)
			return
		}
	}
	lost, others := splitLost(candidates)
	if s.FailureStreak.stopped() {
		var wait time.Duration
		if others, wait = s.FailureStreak.replaceAnyway(others, s.Now); wait > 0 {
			p.waitFor(wait)
		}
	}
	for _, m := range lost {
		wait := s.NextLost.Sub(s.Now)
		switch {
		case machinestate.HasVanished(m) && s.MaxInFlight <= 0:
		case machinestate.HasVanished(m) && wait > 0 && slices.Contains(s.LostReplacements, m.Name):
			p.BackingOff = true
			p.waitFor(wait)
		default:
			p.Remediate = append(p.Remediate, m)
		}
	}
	if len(others) == 0 || s.MaxInFlight <= s.InFlight {
		return
	}
	if wait := s.NextRemediation.Sub(s.Now); wait > 0 {
		p.BackingOff = true
		p.waitFor(wait)
		return
	}
	may, denied := p.ask(s, others, func(*v1beta1.Machine) v1beta1.DisruptionReason {
		return v1beta1.DisruptionRemediation
	})
	free := s.MaxInFlight - s.InFlight
	may = may[:min(len(may), free)]
	p.deny(denied[:min(len(denied), free-len(may))])
	for _, m := range may {
		if machinestate.NeedsReboot(m) {
			p.Reboot = append(p.Reboot, m)
		} else {
			p.Remediate = append(p.Remediate, m)
		}
	}
}

// instanceLost reports whether the instance is gone or the cloud is about to remove it. A machine without its instance
// cannot recover.
func instanceLost(m *v1beta1.Machine) bool {
	return machinestate.HasVanished(m) || machinestate.IsInterrupted(m) && !machinestate.HasFailed(m)
}

// splitLost separates the machines that lost their instance from the other candidates. Only the other candidates count
// against the budget.
func splitLost(candidates []*v1beta1.Machine) (lost, others []*v1beta1.Machine) {
	for _, m := range candidates {
		if instanceLost(m) {
			lost = append(lost, m)
		} else {
			others = append(others, m)
		}
	}
	return lost, others
}

// recovery describes a machine that is Ready again although a health check requested its remediation. The transition
// times of the two conditions come from different clocks.
type recovery struct {
	uid           types.UID
	marked, ready int64
}

// recoveries maps each recovery to the time at which this process first saw it, by its own clock.
type recoveries map[recovery]time.Time

// recoveryOf returns the machine's recovery: the machine is Ready although a health check has requested its
// replacement. began is when the machine became Ready or the request was made, whichever is later. recovered is false
// for all other machines. A request by the annotation machinist.dev/remediate does not depend on health, so such a
// machine never counts as recovered.
func recoveryOf(m *v1beta1.Machine) (r recovery, began time.Time, recovered bool) {
	if machinestate.HasFailed(m) || machinestate.IsInterrupted(m) ||
		machinestate.RemediationReason(m) == v1beta1.ReasonRemediateAnnotation {
		return recovery{}, time.Time{}, false
	}
	mark := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if mark == nil || ready == nil || ready.Status != metav1.ConditionTrue {
		return recovery{}, time.Time{}, false
	}
	began = ready.LastTransitionTime.Time
	if began.Before(mark.LastTransitionTime.Time) {
		began = mark.LastTransitionTime.Time
	}
	return recovery{m.UID, mark.LastTransitionTime.Unix(), ready.LastTransitionTime.Unix()}, began, true
}

// refresh keeps the recoveries that still exist and adds new recoveries. A recovery with a time in the future counts
// as new, because the clock was set back.
func (seen recoveries) refresh(machines []*v1beta1.Machine, now time.Time) recoveries {
	var left recoveries
	for _, m := range machines {
		r, _, recovered := recoveryOf(m)
		if !recovered {
			continue
		}
		at, known := seen[r]
		if !known || at.After(now) {
			at = now
		}
		if left == nil {
			left = recoveries{}
		}
		left[r] = at
	}
	return left
}

// graceLeft returns how long a recovered machine must still not be replaced. The grace period starts when this process
// first observes that the machine is Ready again. If the conditions are much older than possible clock differences, the
// grace period is over. Otherwise a process that often restarts would never replace the machine.
func (seen recoveries) graceLeft(m *v1beta1.Machine, now time.Time) time.Duration {
	r, began, recovered := recoveryOf(m)
	if !recovered {
		return 0
	}
	at, known := seen[r]
	if !known {
		at = now
	}
	return min(at.Add(recoveryGrace).Sub(now), began.Add(recoveryGrace+clockDifference).Sub(now))
}

// clockDifference is the maximum difference between the clocks of two hosts.
const clockDifference = 15 * time.Minute

// remediationLimit returns maxInFlight as a number of machines. A percentage is rounded up to at least 1, except for
// 0%. An invalid value means the default.
func remediationLimit(r v1beta1.MachineRemediation, replicas int32) int {
	value := r.MaxInFlightOrDefault()
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(replicas), true)
	if err != nil || n < 0 {
		return v1beta1.DefaultMaxInFlight
	}
	if n == 0 && value.String() != "0" && value.String() != "0%" {
		return 1
	}
	return n
}

// Replacements holds the replacements of a set that are in progress. Each entry is the name of the new machine, or ""
// until it exists.
//
// Replacements of vanished machines are kept in a separate list, because they do not count against the budget.
//
// Replacements exist only in memory. After a restart, every machine that is not available yet counts as a replacement
// (see Resume), so the budget is never exceeded.
type Replacements []string

// Resume returns the initial replacements for a set that this process observes for the first time. Each machine that is
// missing or not available yet counts as one replacement.
func Resume(machines []*v1beta1.Machine, replicas int, minReadySeconds int32, now time.Time) Replacements {
	var in Replacements
	lives := 0
	for _, m := range machines {
		if !machinestate.IsLive(m) {
			continue
		}
		lives++
		starting := machinestate.IsStarting(m) || machinestate.IsRunning(m) && machinestate.IsReady(m) &&
			!machinestate.IsAvailable(m, minReadySeconds, now)
		if starting && !machinestate.ToBeReplaced(m) && machinestate.UnlaunchableCondition(m) == nil {
			in = append(in, m.Name)
		}
	}
	if len(machines) > 0 {
		for range replicas - lives {
			in = append(in, "")
		}
	}
	return in
}

// Refresh returns the replacements that are still in progress. The result recovered is true if a replacement has become
// available.
func (r Replacements) Refresh(machines []*v1beta1.Machine, replicas int, minReadySeconds int32,
	now time.Time) (left Replacements, recovered bool) {
	if len(r) == 0 {
		return nil, false // The common case.
	}
	byName := make(map[string]*v1beta1.Machine, len(r))
	for _, name := range r {
		byName[name] = nil
	}
	lives := 0
	for _, m := range machines {
		if !machinestate.IsLive(m) {
			continue
		}
		lives++
		if _, wanted := byName[m.Name]; wanted {
			byName[m.Name] = m
		}
	}
	missing := replicas - lives
	for _, name := range r {
		m := byName[name]
		switch {
		case m == nil && missing > 0:
			// The replacement was not created yet, or it was deleted. The next new machine takes its place.
			left = append(left, "")
			missing--
		case m == nil: // Replicas were lowered, so no machine is missing any more.
		case isRebootInFlight(m):
			left = append(left, name)
		case machinestate.IsAvailable(m, minReadySeconds, now):
			recovered = true
		default:
			recovered = recovered || machinestate.IsRunning(m)
			left = append(left, name)
		}
	}
	return left, recovered
}

// InFlight counts the replacements in progress for the limit MaxInFlight. A replacement whose new machine is broken
// too does not count. Otherwise the limit could prevent the deletion of this broken machine forever.
func (r Replacements) InFlight(machines []*v1beta1.Machine) int {
	n := len(r)
	if n == 0 {
		return 0
	}
	for _, m := range machines {
		if remediable(m) && slices.Contains(r, m.Name) {
			n--
		}
	}
	return n
}

// Begin adds a replacement for a machine that was deleted in order to be replaced.
func (r Replacements) Begin(victim string) Replacements {
	return append(r.without(victim), "")
}

func (r Replacements) without(name string) Replacements {
	if at := slices.Index(r, name); at >= 0 {
		return slices.Delete(slices.Clone(r), at, at+1)
	}
	return r
}

func (r Replacements) unassigned() (n int) {
	for _, name := range r {
		if name == "" {
			n++
		}
	}
	return n
}

// Assign adds the names of created machines to the replacements that do not name a machine yet.
func (r Replacements) Assign(created []string) Replacements {
	r = slices.Clone(r)
	for _, name := range created {
		at := slices.Index(r, "")
		if at < 0 {
			break
		}
		r[at] = name
	}
	return r
}

type backoff struct {
	failures int
	until    time.Time
}

func (b *backoff) fail(now time.Time, least, most time.Duration) {
	b.failures++
	b.until = now.Add(delay(b.failures, least, most))
}

// delay returns the wait after the given number of consecutive failures. Each failure after the first doubles the wait,
// up to a limit.
func delay(failures int, least, most time.Duration) time.Duration {
	d := least
	for range failures - 1 {
		if d *= 2; d >= most {
			return most
		}
	}
	return d
}
