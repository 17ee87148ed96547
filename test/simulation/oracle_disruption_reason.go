package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// The manager states why it deletes a machine only after the deletion, and not at all if it crashes. At the deletion,
// the oracle derives the possible reasons from the requests of users, and from the actual and allowed number of
// machines, as far as the manager can know them. oracle_statement.go compares the statement with them.

// reasonsToDelete returns the possible reasons for the deletion of a machine, if budgets limit all of them.
// If the reason may be a scale-down or the loss of the instance, reasonsToDelete returns an empty list.
func (o *oracle) reasonsToDelete(m *v1beta1.Machine) (reasons []v1beta1.DisruptionReason) {
	id := metav1.GetControllerOfNoCopy(m).UID
	set := o.sets[id]
	if set == nil {
		return nil
	}
	versions := o.believedVersions(m.UID)
	every := func(is func(*v1beta1.Machine) bool) bool {
		return !slices.ContainsFunc(versions, func(v *v1beta1.Machine) bool { return v == nil || !is(v) })
	}
	some := func(is func(*v1beta1.Machine) bool) bool {
		return slices.ContainsFunc(versions, func(v *v1beta1.Machine) bool { return v == nil || is(v) })
	}
	if some(func(v *v1beta1.Machine) bool { return annotated(v, v1beta1.AnnotationDeleteMachine) || interrupted(v) }) {
		return nil
	}
	mostReplicas, leastReplicas := set.BoundsSince(o.seenRevisions()["MachineSet"])
	leastLive, mostLive := o.liveBetween(func(owner uid) bool { return owner == id })
	if broken := func(v *v1beta1.Machine) bool {
		return requested(v) || v.Status.Phase == v1beta1.MachineFailed
	}; leastLive <= mostReplicas && some(broken) {
		reasons = append(reasons, v1beta1.DisruptionRemediation)
	}
	if mostLive <= leastReplicas {
		return reasons
	}
	// The reasons below apply only if the set has more machines than replicas.
	if o.scaledDown(id, mostLive) {
		return nil
	}
	toBeReplaced := func(v *v1beta1.Machine) bool { return annotated(v, v1beta1.AnnotationReplace) }
	switch surely, maybe := o.isOutdated(id); {
	case every(toBeReplaced):
		for _, v := range versions {
			if reason := reasonOfMark(v.Annotations[v1beta1.AnnotationReplace]); !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	case some(toBeReplaced), maybe && !surely, !maybe:
		return nil
	}
	if _, maybe := o.isOutdated(id); maybe {
		reasons = append(reasons, v1beta1.DisruptionRollout)
	}
	return reasons
}

// The values of the annotation machinist.dev/replace with which a set marks a machine.
const (
	expiredMark   = "expired"
	rebalanceMark = "rebalance"
)

// reasonOfMark returns the reason of the disruption of a machine with the given mark. All other marks are requests of
// users.
func reasonOfMark(mark string) v1beta1.DisruptionReason {
	switch mark {
	case expiredMark:
		return v1beta1.DisruptionExpiry
	case rebalanceMark:
		return v1beta1.DisruptionRebalance
	}
	return v1beta1.DisruptionReplace
}

// liveBetween returns the minimum and maximum number of live machines in some sets. The result covers all versions of
// the machines that the current reconciliation may have read.
func (o *oracle) liveBetween(of func(set uid) bool) (least, most int) {
	for id := range o.history {
		surely, maybe := true, false
		for _, v := range o.believedVersions(id) {
			live := version{machine: v}.belongsTo(of) && v.DeletionTimestamp.IsZero()
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

// scaledDown reports whether a machine may be deleted because of a scale-down, or because there are more machines than
// a rollout allows. A scale-down then permits one deletion less. live is the number of live machines of the set.
func (o *oracle) scaledDown(set uid, live int) bool {
	id, tooMany, left := o.scaleDownLeft(set, live)
	if tooMany {
		return true
	}
	if o.scaleDowns[id] = left; left > 0 {
		o.scaleDowns[id]--
		return true
	}
	return false
}

// scaleDownLeft returns how many machines may still be deleted because users have scaled down the owner of a set.
// tooMany is true if the owner has more machines than a rollout allows.
func (o *oracle) scaleDownLeft(set uid, live int) (id uid, tooMany bool, left int) {
	owner, kind := o.deployments[o.sets[set].Controller], "MachineDeployment"
	id = o.sets[set].Controller
	if owner == nil {
		owner, kind, id = o.sets[set], "MachineSet", set
	} else {
		_, live = o.liveBetween(func(of uid) bool { return o.sets[of] != nil && o.sets[of].Controller == id })
	}
	replicas, most := lowestBounds(owner, o.seenRevisions()[kind])
	if kind == "MachineSet" {
		most++ // For a replacement.
	}
	return id, live > most, min(o.scaleDowns[id], max(0, live-replicas))
}

// lowestBounds returns the lowest replicas and the lowest maximum in all versions on which a decision may be based.
func lowestBounds(owner *invariants.Owner, since int64) (replicas, most int) {
	replicas, most = owner.LastBounds().Replicas, owner.LastBounds().MaxLive
	for i, v := range owner.Versions {
		if i+1 == len(owner.Versions) || owner.Versions[i+1].Position > since {
			replicas, most = min(replicas, v.Replicas), min(most, v.MaxLive)
		}
	}
	return replicas, most
}

// followScaleDown records by how many machines users have scaled down. A scale-up reduces this number.
func (o *oracle) followScaleDown(c apiserver.Change) {
	if c.Actor == Manager || c.Actor == Manager+FormerSuffix || c.Old == nil {
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
		o.scaleDowns[c.New.GetUID()] = max(0, o.scaleDowns[c.New.GetUID()]+by)
	}
}

// isOutdated reports whether a set belongs to an old revision of its deployment. If the manager must know this,
// surely is true. If the manager may know this, maybe is true.
func (o *oracle) isOutdated(id uid) (surely, maybe bool) {
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

// longUnhealthy is how long an unhealthy machine must have been marked before it takes precedence over other
// disruptions. The manager must know the mark.
const longUnhealthy = 3 * time.Minute

// mayTakeLastSlot checks that a machine does not use up a budget while an unhealthy machine waits for it. The check
// requires that exactly one budget applies to the machine.
func (o *oracle) mayTakeLastSlot(c apiserver.Change, m *v1beta1.Machine, b *v1beta1.MachineDisruptionBudget,
	reasons []v1beta1.DisruptionReason, budgets int) (findings []finding) {
	if budgets > 1 || slices.Contains(reasons, v1beta1.DisruptionRemediation) ||
		o.world.clockSteadySince(o.leaderSince()) < longUnhealthy {
		return nil
	}
	for _, x := range o.machines {
		if x.UID == m.UID || !x.DeletionTimestamp.IsZero() || !o.canRunPods(x) || o.isDisrupted(x) || !requested(x) ||
			annotated(x, v1beta1.AnnotationDoNotDisrupt) || !o.selects(b, x) {
			continue
		}
		marked := meta.FindStatusCondition(x.Status.Conditions, v1beta1.ConditionRemediationRequested)
		node, known := o.world.safety.nodes[x.Status.NodeRef.UID]
		if !known || node.healthy || o.world.clockSteadySince(marked.LastTransitionTime.Time) < longUnhealthy ||
			o.world.clockSteadySince(o.world.lastFault) < longUnhealthy {
			continue
		}
		findings = append(findings, finding{"order", fmt.Sprintf(
			"%s disrupted machine %s (%v) before the unhealthy machine %s, which has waited since %s", c.Actor,
			m.Name, reasons, x.Name, marked.LastTransitionTime.Sub(epoch))})
	}
	return findings
}
