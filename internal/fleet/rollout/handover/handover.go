// Package handover is the protocol between a MachineDeployment and its MachineSets to move machines from one set to
// another without replacing them.
//
// The deployment annotates the receiving set (machinist.dev/receive-from). Then one patch lowers the replicas of the
// other set and says where the difference goes (machinist.dev/move-to). From then on neither set deletes its surplus:
// the one hands it over, the other keeps it until the deployment has counted it. So the number of machines is the
// same before and after every step, even if a process dies in between.
package handover

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
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

// OrderOf returns the order in a set's annotations; false if there is none. An invalid order has its whole value as
// To, a name that no set has.
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

// Ordered returns the deployment's order to the set; false if there is none. A set without a deployment ignores all
// annotations of a hand-over, because no controller would ever remove them.
func Ordered(set *v1beta1.MachineSet) (Order, bool) {
	if !ofDeployment(set) {
		return Order{}, false
	}
	return OrderOf(set.Annotations)
}

// Receives reports whether other sets of the deployment may hand machines over to the set.
func Receives(set *v1beta1.MachineSet) bool {
	_, receives := set.Annotations[v1beta1.AnnotationReceiveFrom]
	return receives && ofDeployment(set)
}

// ReceivesFrom reports whether a set receives the machines that the other hands over.
func ReceivesFrom(to, from *v1beta1.MachineSet) bool {
	a, b := metav1.GetControllerOfNoCopy(to), metav1.GetControllerOfNoCopy(from)
	return a != nil && b != nil && a.UID == b.UID && to.UID != from.UID && to.DeletionTimestamp.IsZero() &&
		to.Annotations[v1beta1.AnnotationReceiveFrom] == from.Name
}

func ofDeployment(set *v1beta1.MachineSet) bool {
	owner := metav1.GetControllerOfNoCopy(set)
	return owner != nil && owner.Kind == "MachineDeployment"
}

// Annotate writes the order to a set, and the name of the set that it receives machines from, into its annotations.
// Either may be empty.
func Annotate(set *v1beta1.MachineSet, order Order, receiveFrom string) {
	delete(set.Annotations, v1beta1.AnnotationMoveTo)
	delete(set.Annotations, v1beta1.AnnotationReceiveFrom)
	if set.Annotations == nil && (order.To != "" || receiveFrom != "") {
		set.Annotations = map[string]string{}
	}
	if order.To != "" {
		set.Annotations[v1beta1.AnnotationMoveTo] = order.String()
	}
	if receiveFrom != "" {
		set.Annotations[v1beta1.AnnotationReceiveFrom] = receiveFrom
	}
}

// Selected reports whether the machine has the label that selects it for an update in place.
func Selected(m *v1beta1.Machine) bool {
	_, selected := m.Labels[v1beta1.LabelSelectedForUpdate]
	return selected
}

// Updating reports whether the machine's instance may differ from its specification. A machine without the condition
// UpToDate is not updating: its provider has not reported yet.
func Updating(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration < m.Generation)
}

// UpdateRejected reports whether the provider rejected the update to the present specification, or the update failed.
func UpdateRejected(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration < m.Generation ||
		!m.DeletionTimestamp.IsZero() {
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
