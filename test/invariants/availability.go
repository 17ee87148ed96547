package invariants

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Available reports whether a machine is available: it is not being deleted, and it has been Ready for minReadySeconds.
func Available(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && ready != nil && ready.Status == metav1.ConditionTrue &&
		!now.Before(ready.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second))
}

// Version is one version of a machine. A version starts at a position and ends at the position of the next version.
type Version struct {
	Position  int64
	Available bool
	// OwnEnd is true if the machine stopped being available in this version, and the processes that are checked caused
	// this.
	OwnEnd bool
}

// AvailableSince reports whether a machine counts as available for a decision. The decision is based on everything
// that happened before the position since. The machine counts if it is available. The machine also counts if it
// was available at any later time, and another client then ended its availability. The processes that are checked
// know their own changes immediately, but learn of other changes later. The function versionAt returns the version
// with a given index. AvailableSince reads the n versions from the last one to the first one.
func AvailableSince(n int, versionAt func(int) Version, since int64) bool {
	for i := n - 1; i >= 0; i-- {
		v := versionAt(i)
		if v.Available {
			return true
		}
		if v.Position <= since || v.OwnEnd {
			return false
		}
	}
	return false
}
