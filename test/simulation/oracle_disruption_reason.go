package simulation

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// Why the manager deletes a machine is not written anywhere. It follows from how many there are and may be, as far as
// the manager could know that, and from what people have asked for.

// reasonsToDelete returns the reasons for one of which the manager may have deleted a machine, all of which have to ask
// budgets. It returns none if there is one that has not: people want fewer machines, or the instance is lost anyway.
func (o *oracle) reasonsToDelete(m *v1beta1.Machine) (reasons []v1beta1.DisruptionReason) {
	id := metav1.GetControllerOfNoCopy(m).UID
	set := o.sets[id]
	if set == nil {
		return nil
	}
	versions := o.believed(m.UID)
	every := func(is func(*v1beta1.Machine) bool) bool {
		return !slices.ContainsFunc(versions, func(v *v1beta1.Machine) bool { return v == nil || !is(v) })
	}
	some := func(is func(*v1beta1.Machine) bool) bool {
		return slices.ContainsFunc(versions, func(v *v1beta1.Machine) bool { return v == nil || is(v) })
	}
	if some(func(v *v1beta1.Machine) bool { return annotated(v, v1beta1.AnnotationDeleteMachine) || interrupted(v) }) {
		return nil
	}
	mostReplicas, leastReplicas := set.Within(o.seen()["MachineSet"])
	leastLive, mostLive := o.liveBetween(func(owner uid) bool { return owner == id })
	if broken := func(v *v1beta1.Machine) bool {
		return requested(v) || v.Status.Phase == v1beta1.MachineFailed
	}; leastLive <= mostReplicas && some(broken) {
		reasons = append(reasons, v1beta1.DisruptionRemediation)
	}
	if mostLive <= leastReplicas {
		return reasons
	}
	// There may be too many in the set.
	if o.scaledDown(id, mostLive) {
		return nil
	}
	exchanged := func(v *v1beta1.Machine) bool { return annotated(v, v1beta1.AnnotationReplace) }
	switch surely, maybe := o.outdated(id); {
	case every(exchanged):
		for _, v := range versions {
			reason := v1beta1.DisruptionReplace
			if v.Annotations[v1beta1.AnnotationReplace] == expiredMark {
				reason = v1beta1.DisruptionExpiry
			}
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	case some(exchanged), maybe && !surely, !maybe:
		return nil
	}
	if _, maybe := o.outdated(id); maybe {
		reasons = append(reasons, v1beta1.DisruptionRollout)
	}
	return reasons
}

// expiredMark is the value of the annotation on machines that are replaced because of their age.
const expiredMark = "expired"

// liveBetween returns how many machines of some sets are not being deleted, at least and at most by what may be known.
func (o *oracle) liveBetween(of func(set uid) bool) (least, most int) {
	for id := range o.history {
		surely, maybe := true, false
		for _, v := range o.believed(id) {
			live := version{machine: v}.of(of) && v.DeletionTimestamp.IsZero()
			surely, maybe = surely && live, maybe || live
		}
		if surely {
			least++
		}
		if maybe {
			most++
		}
	}
	return least, most
}

// scaledDown reports whether a machine may go because people want fewer, or since there are more than a rollout may
// have, and takes note of that. live is how many the set has.
func (o *oracle) scaledDown(set uid, live int) bool {
	owner, kind := o.deployments[o.sets[set].Controller], "MachineDeployment"
	id := o.sets[set].Controller
	if owner == nil {
		owner, kind, id = o.sets[set], "MachineSet", set
	} else {
		_, live = o.liveBetween(func(of uid) bool { return o.sets[of] != nil && o.sets[of].Controller == id })
	}
	replicas, most := leastOf(owner, o.seen()[kind])
	if kind == "MachineSet" {
		most++ // For an exchange.
	}
	if live > most {
		return true
	}
	if o.owed[id] = min(o.owed[id], max(0, live-replicas)); o.owed[id] > 0 {
		o.owed[id]--
		return true
	}
	return false
}

// leastOf returns the least replicas of versions of an owner that may be known, and the least number of machines that
// there may be.
func leastOf(owner *invariants.Owner, since int64) (replicas, most int) {
	replicas, most = owner.Last().Replicas, owner.Last().Most
	for i, v := range owner.Versions {
		if i+1 == len(owner.Versions) || owner.Versions[i+1].Position > since {
			replicas, most = min(replicas, v.Replicas), min(most, v.Most)
		}
	}
	return replicas, most
}

// followScaleDown takes note that people want fewer machines than before, or more again.
func (o *oracle) followScaleDown(c apiserver.Change) {
	if c.Actor == Manager || c.Actor == Manager+Former || c.Old == nil {
		return
	}
	by := 0
	switch after := c.New.(type) {
	case *v1beta1.MachineDeployment:
		by = invariants.Replicas(c.Old.(*v1beta1.MachineDeployment).Spec.Replicas) - invariants.Replicas(after.Spec.Replicas)
	case *v1beta1.MachineSet:
		by = invariants.Replicas(c.Old.(*v1beta1.MachineSet).Spec.Replicas) - invariants.Replicas(after.Spec.Replicas)
	}
	if by != 0 {
		o.owed[c.New.GetUID()] = max(0, o.owed[c.New.GetUID()]+by)
	}
}

// outdated reports whether a set surely, or maybe, is of an old revision of its deployment, by what may be known.
func (o *oracle) outdated(id uid) (surely, maybe bool) {
	var own []int64
	least, most := int64(-1), int64(-1)
	for _, versions := range believedVersions[*v1beta1.MachineSet](o, "MachineSet") {
		lowest, highest := int64(-1), int64(-1)
		for i, set := range versions {
			revision := int64(-1)
			if set != nil {
				owner := metav1.GetControllerOfNoCopy(set)
				if owner == nil || owner.UID != o.sets[id].Controller {
					continue
				}
				revision, _ = strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
				if set.UID == id {
					own = append(own, revision)
					continue
				}
				if !set.DeletionTimestamp.IsZero() {
					revision = -1
				}
			}
			if i == 0 {
				lowest = revision
			}
			lowest, highest = min(lowest, revision), max(highest, revision)
		}
		least, most = max(least, lowest), max(most, highest)
	}
	if len(own) == 0 {
		return false, true
	}
	return slices.Max(own) < least, slices.Min(own) < most
}

// longBroken is how long a machine must be replaced, and everybody knows, until nothing else may go before it.
const longBroken = 3 * time.Minute

// mayGoFirst judges that a machine takes the last place in a budget which a broken machine waits for. That is only
// judged where there is one budget.
func (o *oracle) mayGoFirst(c apiserver.Change, m *v1beta1.Machine, b *v1beta1.MachineDisruptionBudget,
	reasons []v1beta1.DisruptionReason, budgets int) {
	if budgets > 1 || slices.Contains(reasons, v1beta1.DisruptionRemediation) ||
		o.world.clockSteadySince(o.leading()) < longBroken {
		return
	}
	for _, x := range o.machines {
		if x.UID == m.UID || !x.DeletionTimestamp.IsZero() || !o.serves(x) || o.isDisrupted(x) || !requested(x) ||
			annotated(x, v1beta1.AnnotationDoNotDisrupt) || !o.selects(b, x) {
			continue
		}
		marked := meta.FindStatusCondition(x.Status.Conditions, v1beta1.ConditionRemediationRequested)
		node, known := o.world.safety.nodes[x.Status.NodeRef.UID]
		if !known || node.well || o.world.clockSteadySince(marked.LastTransitionTime.Time) < longBroken ||
			o.world.clockSteadySince(o.world.lastFault) < longBroken {
			continue
		}
		o.breach("order", "%s disrupted machine %s (%v), and machine %s waits since %s, which is broken", c.Actor, m.Name,
			reasons, x.Name, marked.LastTransitionTime.Sub(epoch))
	}
}
