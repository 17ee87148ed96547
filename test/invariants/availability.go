package invariants

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Available reports whether a machine counts as available: it is not being deleted, and it has been Ready for
// minReadySeconds.
func Available(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && ready != nil && ready.Status == metav1.ConditionTrue &&
		!now.Before(ready.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second))
}

// Version is the state of a machine from a position on, until the next version.
type Version struct {
	Position  int64
	Available bool
	// OwnEnd is true for a version by which the judged processes themselves ended the machine's availability.
	OwnEnd bool
}

// AvailableSince reports whether a machine is available, or was available at any time after a position until
// something other than the judged processes ended its availability. The processes know what they ended themselves,
// and learn of all other changes later. The function reads the n versions, which at returns, from the last one back.
func AvailableSince(n int, at func(int) Version, since int64) bool {
	for i := n - 1; i >= 0; i-- {
		v := at(i)
		if v.Available {
			return true
		}
		if v.Position <= since || v.OwnEnd {
			return false
		}
	}
	return false
}
