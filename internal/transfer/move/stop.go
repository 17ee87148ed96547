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

// stop stops the source from acting on the fleet, and returns when its processes have confirmed that.
func (m *Move) stop(ctx context.Context) error {
	if err := m.await(ctx, m.freezeAll); err != nil {
		return err
	}
	return m.await(ctx, m.pauseMachines)
}

// freezeAll freezes all sets and deployments. It returns the objects for which the manager has not confirmed the freeze
// yet.
func (m *Move) freezeAll(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.objects {
		if f.sharedKeys[keyOf(o)] || o.GetDeletionTimestamp() != nil {
			continue
		}
		switch o.GetKind() {
		case "Machine":
		case "MachineSet", "MachineDeployment":
			if destinationOf(o) != m.DestinationID {
				if err := m.patchSource(ctx, o, m.markFrozen); err != nil {
					return nil, err
				}
			}
			if !conditionIsTrue(o, v1beta1.ConditionFrozen) {
				waiting = append(waiting, fmt.Sprintf("machinist-manager of the source to confirm the freeze of %s "+
					"(condition Frozen)", nameOf(o)))
			}
		default:
			if destinationOf(o) != m.DestinationID {
				if err := m.patchSource(ctx, o, func(o *object) { mark(o, movingTo, m.DestinationID) }); err != nil {
					return nil, err
				}
			}
		}
	}
	return waiting, nil
}

// markFrozen freezes a set or deployment with the label of the move. If a user has frozen the object, markFrozen keeps
// the user's label. If the manager has frozen the object because it has too many machines, markFrozen replaces the
// label, because the manager could end this freeze automatically.
func (m *Move) markFrozen(o *object) {
	mark(o, movingTo, m.DestinationID)
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if value, found := labels[v1beta1.LabelFreeze]; !found || value == v1beta1.ReasonOvershoot {
		labels[v1beta1.LabelFreeze] = v1beta1.FreezeMoving
		o.SetLabels(labels)
	}
}

// pauseMachines pauses each Machine without unfinished work. It returns the Machines with unfinished work, and the
// Machines for which the provider has not confirmed the pause yet.
func (m *Move) pauseMachines(ctx context.Context) (waiting []string, err error) {
	f, err := m.gather(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range f.ofKinds("Machine") {
		machine, err := machineOf(o)
		switch {
		case err != nil:
			return nil, err
		case isMoved(o):
		case destinationOf(o) == m.DestinationID && !machinestate.IsPaused(machine) && o.GetDeletionTimestamp() != nil:
			waiting = append(waiting, unfinishedReason(machine))
		case destinationOf(o) == m.DestinationID && !machinestate.IsPaused(machine):
			return nil, resumedError(o)
		case destinationOf(o) == m.DestinationID:
			if !conditionIsTrue(o, v1beta1.ConditionPaused) {
				waiting = append(waiting, waitForPause(o))
			}
		case unfinishedReason(machine) != "":
			waiting = append(waiting, unfinishedReason(machine))
		default:
			if err := m.patchSource(ctx, o, func(o *object) {
				mark(o, movingTo, m.DestinationID)
				mark(o, v1beta1.AnnotationPaused, "")
			}); err != nil {
				return nil, err
			}
			waiting = append(waiting, waitForPause(o))
		}
	}
	return waiting, nil
}

func waitForPause(o *object) string {
	return "the provider of the source to confirm the pause of " + nameOf(o) + " (condition Paused)"
}

// resumedError returns the error for a Machine that another client has unpaused during the move.
func resumedError(o *object) error {
	return fmt.Errorf("the pause of %s ended during the move, so the source may act on the instance of this Machine: set "+
		"the annotation %s again", nameOf(o), v1beta1.AnnotationPaused)
}

// unfinishedReason returns why a Machine may not be paused yet, or "". The source must finish its work, and the spec
// must match the instance, because the destination copies the spec.
func unfinishedReason(m *v1beta1.Machine) string {
	why := ""
	switch {
	case !m.DeletionTimestamp.IsZero():
		why = "is being deleted"
	case m.Status.FailureReason != "":
		why = "has failed: delete it"
	case m.Spec.ProviderID == "" || m.Status.Instance == nil:
		why = "has no instance yet. If the Machine never gets an instance, delete it: its set creates another Machine in " +
			"the destination"
	case m.CreateHandle() != "":
		why = "has an instance that the cloud is still creating"
	case m.Retrying():
		why = "has an instance for which the cloud has no capacity, and which is being deleted"
	case m.IsReplacing(), m.IsAdopting(), handover.Updating(m):
		why = "is not up to date with its specification"
	default:
		return ""
	}
	return fmt.Sprintf("Machine %s/%s, which %s", m.Namespace, m.Name, why)
}

// patchSource patches an object of the source. It returns a conflict error if another client has changed the object.
func (m *Move) patchSource(ctx context.Context, o *object, change func(*object)) error {
	changed := o.DeepCopy()
	change(changed)
	err := m.Source.Patch(ctx, changed, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("in the source: change %s: %w", nameOf(o), err)
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

func messageOf(m *v1beta1.Machine, kind string) string {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}
