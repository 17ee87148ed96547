// Package handover is the protocol between a MachineDeployment and its MachineSets to move machines from one set to another
// without replacing them.
//
// The deployment annotates the receiving set (machinist.dev/receive-from). Then one patch lowers the replicas of the other set
// and says where the difference goes (machinist.dev/move-to). From then on neither set deletes its surplus: the one hands it
// over, the other keeps it until the deployment has counted it. So the number of machines is the same before and after every
// step, even if a process dies in between.
package handover

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machinestate"
)

// Order is the value of the annotation machinist.dev/move-to.
type Order struct {
	// To is the name of the set that gets the machines.
	To string
	// Machines is how many at most; 0 takes the order back.
	Machines int32
	// Selected says that only machines may go that have the selection label.
	Selected bool
}

// onlySelected ends the value of an order for selected machines.
const onlySelected = "selected"

// OrderOf returns the order in a set's annotations; false if there is none. An invalid order has its whole value as To, a name
// that no set has.
func OrderOf(annotations map[string]string) (Order, bool) {
	value, ok := annotations[v1beta1.AnnotationMoveTo]
	if !ok {
		return Order{}, false
	}
	to, rest, _ := strings.Cut(value, ":")
	number, which, limited := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || to == "" || limited && which != onlySelected {
		return Order{To: ":" + value}, true
	}
	return Order{To: to, Machines: int32(n), Selected: limited}, true
}

// String returns the value of the annotation.
func (o Order) String() string {
	if o.Selected {
		return fmt.Sprintf("%s:%d:%s", o.To, o.Machines, onlySelected)
	}
	return fmt.Sprintf("%s:%d", o.To, o.Machines)
}

// Selected reports whether the machine has the label that selects it for an update in place.
func Selected(m *v1beta1.Machine) bool {
	_, selected := m.Labels[v1beta1.LabelSelectedForUpdate]
	return selected
}

// Updating reports whether the machine's instance may differ from its specification. A machine without the condition UpToDate
// is not updating: its provider has not reported yet.
func Updating(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration < m.Generation)
}

// UpdateRejected reports whether the provider rejected the update to the present specification, or the update failed.
func UpdateRejected(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration < m.Generation || !m.DeletionTimestamp.IsZero() {
		return false
	}
	switch c.Reason {
	case v1beta1.ReasonUnsupportedChange, v1beta1.ReasonUpdateError, v1beta1.ReasonUpdateTimeout:
		return true
	}
	return false
}

// Settled reports whether handing the machine over interrupts it: it is Ready and up to date.
func Settled(m *v1beta1.Machine) bool {
	return machinestate.Ready(m) && !Updating(m)
}
