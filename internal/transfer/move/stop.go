package move

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// stop has the source do nothing about the fleet any more, and returns when its processes show that they know.
func (m *Move) stop(ctx context.Context) error {
	if err := m.await(ctx, m.freeze); err != nil {
		return err
	}
	return m.await(ctx, m.pause)
}

// freeze stops what makes machines, and names what has yet to show it.
func (m *Move) freeze(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.objects {
		if f.shared[keyOf(o)] || o.GetDeletionTimestamp() != nil {
			continue
		}
		switch o.GetKind() {
		case "Machine":
		case "MachineSet", "MachineDeployment":
			if moving(o) != m.To {
				if err := m.change(ctx, o, m.frozen); err != nil {
					return nil, err
				}
			}
			if !conditionIsTrue(o, v1beta1.ConditionFrozen) {
				waiting = append(waiting, fmt.Sprintf("%s, which has to be Frozen by machinist-manager of the source", nameOf(o)))
			}
		default:
			if moving(o) != m.To {
				if err := m.change(ctx, o, func(o *object) { mark(o, movingTo, m.To) }); err != nil {
					return nil, err
				}
			}
		}
	}
	return waiting, nil
}

// frozen freezes an owner. A freeze by a person stays as it is, one for safety could end by itself.
func (m *Move) frozen(o *object) {
	mark(o, movingTo, m.To)
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if value, found := labels[v1beta1.LabelFreeze]; !found || value == v1beta1.ReasonOvershoot {
		labels[v1beta1.LabelFreeze] = v1beta1.FreezeMoving
		o.SetLabels(labels)
	}
}

// pause pauses each Machine as soon as nothing is under way with it, and names those that have yet to show it.
func (m *Move) pause(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.of("Machine") {
		machine, err := machineOf(o)
		switch {
		case err != nil:
			return nil, err
		case moved(o):
		case moving(o) == m.To && !machinestate.Paused(machine) && o.GetDeletionTimestamp() != nil:
			waiting = append(waiting, unsettled(machine))
		case moving(o) == m.To && !machinestate.Paused(machine):
			return nil, resumed(o)
		case moving(o) == m.To:
			if !conditionIsTrue(o, v1beta1.ConditionPaused) {
				waiting = append(waiting, unpaused(o))
			}
		case unsettled(machine) != "":
			waiting = append(waiting, unsettled(machine))
		default:
			if err := m.change(ctx, o, func(o *object) {
				mark(o, movingTo, m.To)
				mark(o, v1beta1.AnnotationPaused, "")
			}); err != nil {
				return nil, err
			}
			waiting = append(waiting, unpaused(o))
		}
	}
	return waiting, nil
}

func unpaused(o *object) string {
	return nameOf(o) + ", which has to be Paused by the provider's process of the source"
}

// resumed is the error where somebody ended the pause of a Machine on its way.
func resumed(o *object) error {
	return fmt.Errorf("the pause of %s was ended while it is moved, and the source may act on its instance: set the "+
		"annotation %s again", nameOf(o), v1beta1.AnnotationPaused)
}

// unsettled names a Machine with which something is under way, or about which the destination would not know all: it
// takes the instance for what the Machine declares. It returns "" for others.
func unsettled(m *v1beta1.Machine) string {
	why := ""
	switch {
	case !m.DeletionTimestamp.IsZero():
		why = "is being deleted"
	case m.Status.FailureReason != "":
		why = "has failed: delete it"
	case m.Spec.ProviderID == "" || m.Status.Instance == nil:
		why = "has no instance yet. If it gets none, delete it: its set makes another one at the destination"
	case m.Retrying():
		why = "has an instance that the cloud has no capacity for, which is being removed"
	case m.Replacing(), m.Adopting(), handover.Updating(m):
		why = "is not up to date with its specification"
	default:
		return ""
	}
	return fmt.Sprintf("Machine %s/%s, which %s", m.Namespace, m.Name, why)
}

// change writes a change of an object of the source, unless somebody changed it meanwhile: that is a conflict.
func (m *Move) change(ctx context.Context, o *object, change func(*object)) error {
	changed := o.DeepCopy()
	change(changed)
	err := m.Source.Patch(ctx, changed, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil // Nothing is left to change.
	case err != nil:
		return fmt.Errorf("at the source: change %s: %w", nameOf(o), err)
	}
	o.Object = changed.Object
	return nil
}

func conditionIsTrue(o *object, kind string) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}

// messageOf returns what a condition of a Machine says, "" without one.
func messageOf(m *v1beta1.Machine, kind string) string {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}
