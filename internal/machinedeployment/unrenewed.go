package machinedeployment

import (
	"fmt"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/wording"
)

// unrenewed says that instances are older than spec.rolloutAfter and stay so; empty if there are none. With strategy InPlace
// machines change hands for the revision that it makes, and nothing of it is for the provider to change: who asked for new
// instances has to know that there will be none.
func (v *view) unrenewed() string {
	if v.state.Strategy != v1beta1.StrategyInPlace || v.rolloutAfter.IsZero() {
		return ""
	}
	var old int32
	for _, of := range v.machines {
		for _, m := range of {
			if m.DeletionTimestamp.IsZero() && launchedBefore(m, v.rolloutAfter) {
				old++
			}
		}
	}
	if old == 0 {
		return ""
	}
	return fmt.Sprintf("nothing renews %s made before spec.rolloutAfter: with strategy InPlace it reaches only what is made later", wording.Count(old, "machine"))
}

// launchedBefore reports whether the machine's instance is older than that; if it was replaced, the last one counts.
func launchedBefore(m *v1beta1.Machine, t time.Time) bool {
	if in := m.Status.Instance; in != nil && in.LaunchTime != nil && !in.LaunchTime.Time.Before(t) {
		return false
	}
	return m.CreationTimestamp.Time.Before(t)
}
