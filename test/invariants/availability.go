package invariants

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// IsAvailable reports whether a machine has been Ready for minReadySeconds and is not being deleted.
func IsAvailable(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && ready != nil && ready.Status == metav1.ConditionTrue &&
		!now.Before(ready.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second))
}

// Version is the state of a machine between two of its changes. A version is valid from its position until the position
// of the next version.
type Version struct {
	Position  int64
	Available bool
	// OwnEnd is true if the machine became unavailable in this version because of a write of Machinist.
	OwnEnd bool
}

// AvailableSince reports whether a process may treat a machine as available. The process has seen all changes before
// the position since. A machine that another client made unavailable later still counts, because the deciding process
// may not know this yet. versionAt returns a version by index. AvailableSince reads the n versions from the last one to
// the first one.
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
