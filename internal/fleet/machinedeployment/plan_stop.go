package machinedeployment

import (
	"fmt"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// A rolling update stops before all machines are of the newest revision, because of rollingUpdate.partition or
// rollingUpdate.pauseAfter. Both limit how many machines of the newest revision the deployment wants. The other replicas
// stay on old revisions: those sets replace their failed machines, and get additional machines if they have too few.

// mostOfNewest returns the highest number of machines of the newest revision that partition and pauseAfter permit.
func (s State) mostOfNewest() int32 {
	most := max(0, s.Replicas-s.Partition)
	if s.PauseAfter > 0 {
		most = min(most, s.PauseAfter)
	}
	return most
}

// isStopping reports whether partition or pauseAfter keeps machines of the present old revisions. Without an old
// machine, there is nothing to keep.
func (s State) isStopping() bool {
	return s.CurrentIndex >= 0 && s.mostOfNewest() < s.Replicas && s.oldReplicas() > 0
}

func (s State) oldReplicas() (n int32) {
	for i, set := range s.Sets {
		if s.isOld(i) && !set.BeingDeleted {
			n += set.Replicas
		}
	}
	return n
}

// hasExcess reports whether old sets have more machines than stay on old revisions.
func (s State) hasExcess() bool { return s.oldReplicas() > s.Replicas-s.mostOfNewest() }

// staying returns how many machines each old set keeps. The oldest revision keeps its machines first, because a newer
// one may be a revision whose rollout was given up.
func (s State) staying() []int32 {
	stay := make([]int32, len(s.Sets))
	if !s.isStopping() {
		return stay
	}
	left := s.Replicas - s.mostOfNewest()
	for i, set := range s.Sets {
		if s.isOld(i) && !set.BeingDeleted {
			stay[i] = min(set.Replicas, left)
			left -= stay[i]
		}
	}
	return stay
}

// wantedOfNewest returns how many machines of the newest revision the rollout wants now. If the limit was lowered below
// the present number, the present machines stay, but no further machine is created.
func (d *draft) wantedOfNewest() int32 {
	if !d.isStopping() {
		return d.Replicas
	}
	most := d.mostOfNewest()
	if d.hasExcess() {
		return most
	}
	return min(d.Replicas-d.oldReplicas(), max(most, d.Sets[d.CurrentIndex].Replicas))
}

// growStaying creates missing machines in old sets that have fewer machines than stay on old revisions.
func (d *draft) growStaying() {
	var old []int
	total := d.oldReplicas()
	for i, set := range d.Sets {
		if d.isOld(i) && !set.BeingDeleted && set.Replicas > 0 {
			old = append(old, i)
		}
	}
	n := min(d.Replicas-d.mostOfNewest()-total, d.Replicas-total-d.Sets[d.CurrentIndex].Replicas, d.capacity())
	for k, part := range share(n, d.replicasOf(old)) {
		d.grow(old[k], d.Sets[old[k]].Replicas+part, "stays on its revision")
	}
}

// limitNewest changes how n machines are divided among the sets, so that the newest set gets at least low and at most
// high of them. The other sets share the rest.
func (d *draft) limitNewest(sets []int, parts []int32, n, low, high int32) {
	newest := slices.Index(sets, d.CurrentIndex)
	if newest < 0 {
		return
	}
	limited := min(max(parts[newest], low), max(0, high), n)
	if !d.hasExcess() {
		limited = min(n, max(0, high))
	}
	weights := d.replicasOf(sets)
	weights[newest] = 0
	copy(parts, share(n-limited, weights))
	parts[newest] = limited
}

// stopReason returns the reason of the condition Progressing if partition or pauseAfter leaves nothing to replace now,
// or "".
func (s State) stopReason() string {
	switch {
	case !s.mayRollOut() || !s.isStopping() || s.hasExcess():
		return ""
	case s.PauseAfter > 0 && s.PauseAfter < s.Replicas-s.Partition:
		return v1beta1.ReasonWaitingForPromotion
	}
	return v1beta1.ReasonPartitionReached
}

// whyStopped returns the value of Plan.WaitMessage if partition or pauseAfter stops the rollout.
func (d *draft) whyStopped() string {
	var why string
	old := wording.Count(d.oldReplicas(), "machine")
	if d.stopReason() == v1beta1.ReasonWaitingForPromotion {
		why = fmt.Sprintf("pauseAfter stops the rollout, with %s of an old revision left", old)
		if !d.PauseEnds.IsZero() {
			why += fmt.Sprintf("; the rollout continues at %s if the new machines stay available",
				d.PauseEnds.UTC().Format(time.RFC3339))
		}
	} else {
		why = fmt.Sprintf("partition keeps %s on old revisions; to update more machines, lower "+
			"spec.strategy.rollingUpdate.partition", old)
	}
	var marked int32
	for _, set := range d.Sets {
		marked += set.MarkedForReplacement
	}
	if marked > 0 {
		why += fmt.Sprintf("; %s marked for replacement must wait until no old revision is left",
			wording.Count(marked, "machine"))
	}
	return why
}
