// Package handover is what a MachineDeployment and its MachineSets agree upon when machines go from one set to another
// and stay what they are.
//
// The deployment marks the set that receives (machinist.dev/receive-from), then tells the other one by one patch to have
// fewer machines and where the difference goes (machinist.dev/move-to). From then on neither deletes what it has too many
// of: the one hands its surplus over, the other keeps it until the deployment has counted it. So the number of machines
// is the same before every step and after it, whoever dies in between.
package handover

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Order is the value of the annotation machinist.dev/move-to.
type Order struct {
	// To is the name of the set that gets the machines.
	To string
	// Machines is how many at most; 0 takes an order back.
	Machines int32
	// Selected says that only machines may go that somebody has selected.
	Selected bool
}

// onlySelected ends the value of an order for selected machines.
const onlySelected = "selected"

// OrderOf returns the order that a set's annotations give; false if they give none. One that cannot be read is an order
// to nobody: it has the whole value as a name, which no set has.
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

// Selected reports whether somebody has chosen the machine to be updated in place.
func Selected(m *v1beta1.Machine) bool {
	_, selected := m.Labels[v1beta1.LabelSelectedForUpdate]
	return selected
}

// Updating reports whether the machine's instance may not be what its specification asks for yet. One of which the
// provider has not said so far what it was made from is not.
func Updating(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration < m.Generation)
}

// Refused reports whether the update that the machine asks for was refused or failed, so that nothing comes of it for now.
// What was said of an earlier specification does not count.
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

// Settled reports whether handing the machine over takes something away: it is Ready and what it shall be.
func Settled(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) && !Updating(m)
}
