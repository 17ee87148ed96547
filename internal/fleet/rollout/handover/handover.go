// Package handover defines how a MachineDeployment and its MachineSets move machines from one set to another without
// replacing them.
//
// The deployment first annotates the receiving set with machinist.dev/receive-from. Then the deployment patches the
// other set: lower replicas, and the annotation machinist.dev/move-to, which is the order to hand over the surplus.
// While the sets have these annotations, neither set deletes its surplus machines. The old set hands machines over,
// and the receiving set keeps them until the deployment has raised its replicas. A process may stop between any two
// steps without a change in the number of machines.
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

// Order is the parsed value of the annotation machinist.dev/move-to.
type Order struct {
	// Receiver contains the name of the set that receives the machines.
	Receiver string
	// Machines is the maximum number of machines to hand over. 0 means that the order is canceled.
	Machines int32
	// OnlySelected is true if only machines with the selection label may be handed over.
	OnlySelected bool
	// OnlyKept is true if only machines whose class belongs to the receiver's placement may be handed over. Their
	// instances do not change.
	OnlyKept bool
}

const (
	onlySelected = "selected"
	onlyKept     = "kept"
)

// OrderOf returns the order in the annotation move-to, or false if there is none. If the value of the annotation is
// invalid, the field Receiver contains a colon and the value. No set can have such a name.
func OrderOf(annotations map[string]string) (Order, bool) {
	value, ok := annotations[v1beta1.AnnotationMoveTo]
	if !ok {
		return Order{}, false
	}
	to, rest, _ := strings.Cut(value, ":")
	number, which, limited := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || to == "" || limited && which != onlySelected && which != onlyKept {
		return Order{Receiver: ":" + value}, true
	}
	return Order{Receiver: to, Machines: int32(n), OnlySelected: which == onlySelected, OnlyKept: which == onlyKept}, true
}

// String returns the value of the annotation move-to for this order.
func (o Order) String() string {
	switch {
	case o.OnlySelected:
		return fmt.Sprintf("%s:%d:%s", o.Receiver, o.Machines, onlySelected)
	case o.OnlyKept:
		return fmt.Sprintf("%s:%d:%s", o.Receiver, o.Machines, onlyKept)
	}
	return fmt.Sprintf("%s:%d", o.Receiver, o.Machines)
}

// Ordered returns the order in the set's annotation move-to, or false if the set must not hand machines over. A set
// without a deployment ignores the annotations, because no controller would remove them.
func Ordered(set *v1beta1.MachineSet) (Order, bool) {
	if !ofDeployment(set) {
		return Order{}, false
	}
	return OrderOf(set.Annotations)
}

// Receives is true if other sets of the deployment may hand machines over to this set.
func Receives(set *v1beta1.MachineSet) bool {
	_, receives := set.Annotations[v1beta1.AnnotationReceiveFrom]
	return receives && ofDeployment(set)
}

// ReceivesFrom reports whether the set receiver may receive machines of the set source. The condition is that both
// sets belong to the same deployment, and that the receiver's annotation receive-from names the source.
func ReceivesFrom(receiver, source *v1beta1.MachineSet) bool {
	a, b := metav1.GetControllerOfNoCopy(receiver), metav1.GetControllerOfNoCopy(source)
	return a != nil && b != nil && a.UID == b.UID && receiver.UID != source.UID &&
		receiver.DeletionTimestamp.IsZero() && receiver.Annotations[v1beta1.AnnotationReceiveFrom] == source.Name
}

func ofDeployment(set *v1beta1.MachineSet) bool {
	owner := metav1.GetControllerOfNoCopy(set)
	return owner != nil && owner.Kind == "MachineDeployment"
}

// Annotate writes the annotations move-to and receive-from of a set. If a value is empty, the annotation is removed.
func Annotate(set *v1beta1.MachineSet, order Order, receiveFrom string) {
	delete(set.Annotations, v1beta1.AnnotationMoveTo)
	delete(set.Annotations, v1beta1.AnnotationReceiveFrom)
	if set.Annotations == nil && (order.Receiver != "" || receiveFrom != "") {
		set.Annotations = map[string]string{}
	}
	if order.Receiver != "" {
		set.Annotations[v1beta1.AnnotationMoveTo] = order.String()
	}
	if receiveFrom != "" {
		set.Annotations[v1beta1.AnnotationReceiveFrom] = receiveFrom
	}
}

// IsSelected reports whether the machine is selected for an update in place.
func IsSelected(m *v1beta1.Machine) bool {
	_, selected := m.Labels[v1beta1.LabelSelectedForUpdate]
	return selected
}

// Updating reports whether the instance may differ from the machine's spec. Without the condition UpToDate, the
// provider has not reported yet, and the machine does not count as updating.
func Updating(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration < m.Generation)
}

// UpdateRejected reports whether the provider rejected the update to the current spec, or the update failed.
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

// Interrupts reports whether a hand-over would interrupt pods. After the hand-over, the machine is updated in place. If
// the machine is Ready and up to date now, the update interrupts its pods.
func Interrupts(m *v1beta1.Machine) bool {
	return machinestate.IsReady(m) && !Updating(m)
}
