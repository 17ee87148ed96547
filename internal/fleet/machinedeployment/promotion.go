package machinedeployment

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// promotion says which of partition and pauseAfter no longer stop the rollout of the newest revision. The set of the
// revision records the promotion in an annotation, because the machines and the annotation of the deployment may change
// later.
type promotion string

const (
	notPromoted promotion = ""
	// promoted ends pauseAfter. rolledBack ends pauseAfter and partition.
	promoted   promotion = "promoted"
	rolledBack promotion = "rolled-back"
)

// readPromotion reads the promotion of the newest revision. If the set of an earlier revision becomes the newest again
// and still has machines besides those of another set, the rollout undoes an unfinished rollout. Then the machines of
// the unwanted revision must not stay.
func (v *view) readPromotion(d *v1beta1.MachineDeployment) {
	if d.Spec.Strategy.Partition() == 0 && d.Spec.Strategy.PauseAfter() == nil {
		return
	}
	if v.currentIndex >= 0 {
		set := v.sets[v.currentIndex]
		value, recorded := set.Annotations[v1beta1.AnnotationPromoted]
		switch {
		case revisionOf(set) != v.number:
			if set.ReplicasOrDefault() > 0 && v.othersHaveReplicas() {
				v.promotion = rolledBack
			}
		case value == string(rolledBack):
			v.promotion = rolledBack
		case recorded:
			v.promotion = promoted
		}
	}
	if v.promotion == notPromoted && d.Annotations[v1beta1.AnnotationPromoteRevision] == strconv.FormatInt(v.number, 10) {
		v.promotion = promoted
	}
}

func (v *view) othersHaveReplicas() bool {
	for i, set := range v.sets {
		if i != v.currentIndex && set.DeletionTimestamp.IsZero() && set.ReplicasOrDefault() > 0 {
			return true
		}
	}
	return false
}

// readLimits sets the limits of partition and pauseAfter. If the time of pauseAfter is over, the revision is promoted.
// requeueAfter is the time until then, or 0 if only a promotion or another event ends the pause.
func (v *view) readLimits(d *v1beta1.MachineDeployment, now time.Time) (requeueAfter time.Duration) {
	if v.promotion == rolledBack {
		return 0
	}
	v.state.Partition = min(d.Spec.Strategy.Partition(), v.state.Replicas)
	pause := d.Spec.Strategy.PauseAfter()
	if pause == nil {
		return 0
	}
	v.state.PauseAfter = max(1, pause.Machines)
	pausing := v.state.isStopping()
	if v.promotion == notPromoted && pausing && pause.Duration != nil {
		if since, ok := v.newestAvailableSince(d.Spec.MinReadySeconds, v.state.PauseAfter); ok {
			ends := since.Add(pause.Duration.Duration)
			if left := ends.Sub(now); left > 0 {
				v.state.PauseEnds = ends
				return min(left, pause.Duration.Duration)
			}
			v.promotion = promoted
		}
	}
	if v.promotion == promoted {
		v.state.PauseAfter, v.endsPause = 0, pausing
	}
	return 0
}

// newestAvailableSince returns since when all machines of the newest revision are available. It returns false if one of
// them is not available, or if there are fewer than the given number. The times come from the machines, so they survive
// a restart, and an interruption starts the time again.
func (v *view) newestAvailableSince(minReadySeconds, least int32) (since time.Time, ok bool) {
	newest := v.state.Sets[v.currentIndex]
	if newest.Available < max(least, newest.Live, newest.Replicas) {
		return time.Time{}, false
	}
	for _, m := range v.machines[v.sets[v.currentIndex].UID] {
		ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if !machinestate.IsLive(m) || ready == nil {
			continue
		}
		if at := ready.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second); at.After(since) {
			since = at
		}
	}
	return since, true
}

// recordPromotion records the promotion in the set of the newest revision. Call it before the set gets the number of
// the revision: the record of an earlier revision is removed.
func (v *view) recordPromotion(set *v1beta1.MachineSet) {
	if revisionOf(set) != v.number {
		delete(set.Annotations, v1beta1.AnnotationPromoted)
	}
	switch {
	case v.promotion == rolledBack:
		annotate(set, v1beta1.AnnotationPromoted, string(rolledBack))
	case v.endsPause:
		annotate(set, v1beta1.AnnotationPromoted, "")
	}
}
