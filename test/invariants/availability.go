package invariants

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Available reports whether a machine has been Ready for minReadySeconds and is not being deleted.
func Available(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && ready != nil && ready.Status == metav1.ConditionTrue &&
		!now.Before(ready.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second))
}

// Version is one state in the history of a machine. A version ends at the position of the next version.
type Version struct {
	Position  int64
	Available bool
	// OwnEnd is true if Machinist itself, and not another client, made the machine unavailable in this version.
	OwnEnd bool
}

// AvailableSince reports whether a machine counts as available for the decision of a process that has seen all changes
// before a position in the history. The argument since is this position. A machine that another client made unavailable
// later still counts, because the deciding process may not know this yet. versionAt returns a version by index.
// AvailableSince reads the n versions from the last one to the first one.
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
