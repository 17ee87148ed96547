package machineset

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machinestate"
)

const (
	minRemediationBackoff = 10 * time.Second
	maxRemediationBackoff = 30 * time.Minute
)

// withdrawal is how long whoever marked a machine has to take that back when it becomes Ready. Marks are set and taken back
// from other caches than the set's, and after an outage all of them come up at once.
const recoveryGrace = time.Minute

// remediationCandidates returns the machines that failed or were found unhealthy and may be replaced, newest first: what
// broke most recently was never of use, or of use for the shortest time. Those that recovered since they were marked may
// be after a wait, which is zero where there are none.
func remediationCandidates(machines []*v1beta1.Machine, seen recoveries, now time.Time) (candidates []*v1beta1.Machine, wait time.Duration) {
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
	slices.SortFunc(candidates, func(a, b *v1beta1.Machine) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return candidates, wait
}

// lostForSure reports whether the machine is lost whatever is done, so that nothing is saved by replacing it later: its
// instance is gone, or about to be taken away.
func instanceLost(m *v1beta1.Machine) bool {
	return machinestate.Vanished(m) || machinestate.Interrupted(m) && !machinestate.Failed(m)
}

// lostFirst returns those of the candidates that are lost for sure, and the others. Only the others use up budget.
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

// recovery is that a machine is Ready although a check has marked it: since when it is either, by the clocks of two hosts.
type recovery struct {
	uid        types.UID
	marked, up int64
}

// recoveries are when this process first saw each recovery of a set's machines, by its own clock.
type recoveries map[recovery]time.Time

// recoveryOf returns the recovery of a machine, and when the later of its two parts began; false if there is none. What a
// person asks for is no matter of health.
func recoveryOf(m *v1beta1.Machine) (r recovery, began time.Time, recovered bool) {
	if machinestate.Failed(m) || machinestate.Interrupted(m) || machinestate.RemediationReason(m) == v1beta1.ReasonRemediateAnnotation {
		return recovery{}, time.Time{}, false
	}
	mark := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	up := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if mark == nil || up == nil || up.Status != metav1.ConditionTrue {
		return recovery{}, time.Time{}, false
	}
	began = up.LastTransitionTime.Time
	if began.Before(mark.LastTransitionTime.Time) {
		began = mark.LastTransitionTime.Time
	}
	return recovery{m.UID, mark.LastTransitionTime.Unix(), up.LastTransitionTime.Unix()}, began, true
}

// follow returns the recoveries that last, and those that are new as of now. On a clock that was set back they are new.
func (seen recoveries) follow(machines []*v1beta1.Machine, now time.Time) recoveries {
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

// wellAgain returns for how much longer a machine is not replaced since it is Ready although a check has marked it; zero
// or less if it is not so. That time counts from when this process saw both, since two hosts wrote down when each began. A
// process that never lasts so long goes by these times when they leave no doubt.
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

// clockDifference is by how much the clocks of two hosts may differ.
const clockDifference = 15 * time.Minute

// remediationLimit resolves the maxInFlight of a deployment, or of a set alone: a percentage of replicas is rounded up, and
// it is at least 1 unless written 0. What cannot be read counts as the default.
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

// Replacements are the remediations of a set that are in flight, each by the name of the machine that replaces the one
// deleted, or "" until there is one.
//
// Those of machines whose instance vanished are kept apart: they use up no budget, and only whether they come to run matters.
//
// They live in memory. After a restart every machine that is coming up counts as one (see Resume): the budget may then
// be used more slowly, never exceeded.
type Replacements []string

// Resume returns the replacements of a set that was not observed before.
func Resume(machines []*v1beta1.Machine, replicas int, minReadySeconds int32, now time.Time) Replacements {
	var in Replacements
	lives := 0
	for _, m := range machines {
		if !live(m) {
			continue
		}
		lives++
		starting := comingUp(m) || running(m) && ready(m) && !machinestate.Available(m, minReadySeconds, now)
		if starting && !machinestate.ToBeReplaced(m) && machinestate.Unlaunchable(m) == nil {
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

// Settle returns the replacements that are still in flight. recovered is true if one of them came to run.
func (r Replacements) Settle(machines []*v1beta1.Machine, replicas int, minReadySeconds int32, now time.Time) (left Replacements, recovered bool) {
	byName := make(map[string]*v1beta1.Machine, len(r))
	for _, name := range r {
		byName[name] = nil
	}
	lives := 0
	for _, m := range machines {
		if !live(m) {
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
			// Not made yet, or gone again: the next machine made takes its place.
			left = append(left, "")
			missing--
		case m == nil: // Nothing is missing any more, since replicas fell.
		case machinestate.Available(m, minReadySeconds, now):
			recovered = true
		default:
			recovered = recovered || running(m)
			left = append(left, name)
		}
	}
	return left, recovered
}

// InFlight counts the replacements that use up budget. One that is itself to be replaced does not: its turn may come.
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

// Begin notes that a machine was deleted to be replaced.
func (r Replacements) Begin(victim string) Replacements {
	return append(r.without(victim), "")
}

// without returns the replacements without the one of that name.
func (r Replacements) without(name string) Replacements {
	if at := slices.Index(r, name); at >= 0 {
		return slices.Delete(slices.Clone(r), at, at+1)
	}
	return r
}

// blank counts the replacements that are not made yet.
func (r Replacements) blank() (n int) {
	for _, name := range r {
		if name == "" {
			n++
		}
	}
	return n
}

// Assign notes machines that were made.
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

// backoff is how long a set waits between two remediations while none of its replacements comes to run.
type backoff struct {
	failures int
	until    time.Time
}

func (b *backoff) fail(now time.Time, least, most time.Duration) {
	b.failures++
	b.until = now.Add(delay(b.failures, least, most))
}

// delay doubles with every failure, from least to most.
func delay(failures int, least, most time.Duration) time.Duration {
	d := least
	for range failures - 1 {
		if d *= 2; d >= most {
			return most
		}
	}
	return d
}
