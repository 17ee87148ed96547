package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/wording"
)

// DefaultPreserveTimeout is the default of Options.PreserveTimeout.
const DefaultPreserveTimeout = 96 * time.Hour

// DefaultPreserveLimit is the default of Options.PreserveLimit.
const DefaultPreserveLimit = 3

type preservationStep struct{ *pass }

// run preserves a Machine for inspection, and deletes the Machine when its preservation is over. All decisions depend
// only on the Machine itself, so a crash at any point does no harm. The Node is cordoned before the MachineSet replaces
// the Machine.
func (s *preservationStep) run(ctx context.Context) (progress, error) {
	m := s.machine
	switch {
	case preservation.Preserved(m):
		if machinestate.Paused(m) || s.unsupportedSchema(m) != "" {
			return next, nil
		}
		if preservation.NeverBegan(m, s.now) {
			return next, s.refusePast(ctx)
		}
	case preservation.Due(m):
		if s.outage() {
			s.requeueIn(targetPoll) // No machine is replaced during an outage.
			return next, nil
		}
	default:
		s.notPreserved()
		return next, nil
	}
	if within, err := s.withinLimit(ctx); err != nil {
		return onError, err
	} else if !within {
		return next, nil
	}
	until, err := preservation.Until(s.machine)
	if err != nil {
		message := "The machine is preserved and will not be deleted automatically: " + err.Error() + "."
		if s.setCondition(v1beta1.ConditionPreserved, true, v1beta1.ReasonInvalidConfiguration, message) {
			s.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		}
		return next, nil
	}
	left := until.Sub(s.now)
	if left <= 0 {
		return onMachine, s.deleteExpired(ctx)
	}
	s.requeueIn(left)
	message := fmt.Sprintf("The machine was removed from its set. It is preserved until %s and then deleted.",
		until.UTC().Format(time.RFC3339))
	if s.setCondition(v1beta1.ConditionPreserved, true, v1beta1.ReasonPreserved, message) {
		s.note(v1beta1.ReasonPreserved, "Preserve", message)
	}
	return next, nil
}

// withinLimit cordons the Node of the Machine and removes the Machine from its MachineSet. If too many Machines of the
// owner are preserved after a failure, withinLimit changes nothing and returns false. Otherwise, a fleet whose machines
// all fail would be kept for days, which is expensive. A lock ensures that the Machines of one owner are counted one
// after another.
func (s *preservationStep) withinLimit(ctx context.Context) (bool, error) {
	m := s.machine
	if !preservation.Preserved(m) && m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
		defer s.states.preserving.Lock(m.Namespace + "/" + preservation.Origin(m))()
		n, err := s.countPreserved(ctx)
		if err != nil {
			return false, err
		}
		if n >= s.PreserveLimit {
			message := fmt.Sprintf("The machine is replaced and not preserved, because at most %s of %s may be preserved after a failure (--preserve-limit), and %d are preserved already.",
				wording.Count(s.PreserveLimit, "machine"), preservation.Origin(m), n)
			if s.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooManyPreserved, message) {
				s.warn(v1beta1.ReasonTooManyPreserved, "Preserve", message)
			}
			return false, nil
		}
	}
	if err := s.cordon(ctx); err != nil {
		return false, err
	}
	return true, s.leaveSet(ctx)
}

// countPreserved returns the number of Machines of the same owner that are preserved because they failed. The cache
// includes this process's own writes.
func (s *preservationStep) countPreserved(ctx context.Context) (n int, err error) {
	list := &v1beta1.MachineList{}
	if err := s.Client.List(ctx, list, client.InNamespace(s.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list preserved machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if preservation.Preserved(m) && m.DeletionTimestamp.IsZero() && preservation.SameOrigin(m, s.machine) &&
			m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
			n++
		}
	}
	return n, nil
}

// leaveSet removes the Machine from its MachineSet and records the end of the preservation in one patch.
func (s *preservationStep) leaveSet(ctx context.Context) error {
	m := s.machine
	_, hash := m.Labels[v1beta1.LabelTemplateHash]
	_, owned := m.Labels[v1beta1.LabelMachineSet]
	if preservation.Preserved(m) && !hash && !owned && metav1.GetControllerOfNoCopy(m) == nil {
		return nil
	}
	return s.patchMachine(ctx, func(m *v1beta1.Machine) {
		if owner := m.Labels[v1beta1.LabelMachineSet]; owner != "" {
			set(&m.Annotations, v1beta1.AnnotationPreservedFrom, owner)
		}
		delete(m.Labels, v1beta1.LabelTemplateHash)
		delete(m.Labels, v1beta1.LabelMachineSet)
		m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Controller != nil && *o.Controller
		})
		if !preservation.Preserved(m) {
			set(&m.Annotations, v1beta1.AnnotationPreservedUntil, s.now.Add(s.PreserveTimeout).UTC().Format(time.RFC3339))
		}
	})
}

// refusePast removes the annotation if it names a past time and the Machine was never preserved. Otherwise, a typing
// error would delete a machine that works.
func (s *preservationStep) refusePast(ctx context.Context) error {
	message := fmt.Sprintf("Removed the annotation %s=%.64s: the time is in the past, and the machine was not preserved. "+
		"Set a later time, or delete the machine.", v1beta1.AnnotationPreservedUntil,
		s.machine.Annotations[v1beta1.AnnotationPreservedUntil])
	err := s.patchMachine(ctx, func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPreservedUntil) })
	if err == nil {
		s.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
	}
	return err
}

// deleteExpired deletes a Machine when its preservation is over, unless another client has changed the Machine in the
// meantime.
func (s *preservationStep) deleteExpired(ctx context.Context) error {
	m := s.before
	gone := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := s.Client.Delete(ctx, gone, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete preserved machine: %w", err)
	}
	return nil
}

// cordon cordons the Node of a preserved Machine. If the Machine is paused, only the administrator changes the Node.
func (s *preservationStep) cordon(ctx context.Context) error {
	ref := s.machine.Status.NodeRef
	if s.Target == nil || ref == nil || machinestate.Paused(s.machine) {
		return nil
	}
	node := &corev1.Node{}
	err := s.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node)
	if err == nil && node.UID == ref.UID {
		_, err = drain.Cordon(ctx, s.Target.Nodes, node)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // The Node is gone, or another client changed it.
	}
	return err
}

// notPreserved reports an invalid request, and removes the condition of an earlier preservation.
func (s *preservationStep) notPreserved() {
	if invalid := preservation.Invalid(s.machine); invalid != "" {
		message := "The machine is not preserved: " + invalid + "."
		if s.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonInvalidConfiguration, message) {
			s.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		}
		return
	}
	if preservation.OverLimit(s.machine) {
		return
	}
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionPreserved)
}

func (s *preservationStep) tooLate() {
	m := s.machine
	if m.Annotations[v1beta1.AnnotationPreserve] != v1beta1.PreserveNow || preservation.Preserved(m) || !hasFinalizer(m) {
		return
	}
	const message = "The machine is already being deleted and cannot be preserved."
	if s.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooLate, message) {
		s.warn(v1beta1.ReasonTooLate, "Preserve", message)
	}
}

// requeueIfDue requeues the Machine if this pass has found a reason to preserve it. The status must be written first.
func (s *preservationStep) requeueIfDue() {
	if preservation.Due(s.machine) && !preservation.Due(s.before) {
		s.requeueIn(time.Millisecond)
	}
}

// updateUnlessPreserved runs the update of the instance. The instance of a preserved Machine is not changed, unless its
// replacement has already begun.
func (s *preservationStep) updateUnlessPreserved(ctx context.Context) (progress, error) {
	if preservation.Preserved(s.machine) && !s.machine.Replacing() {
		s.drain.end()
		return next, nil
	}
	if machinestate.Interrupted(s.machine) && !s.machine.Replacing() {
		return next, nil // The instance will be reclaimed, so it is not changed any more.
	}
	return s.update.run(ctx)
}

func (s *preservationStep) uncordonUnlessPreserved(ctx context.Context) error {
	if preservation.Preserved(s.machine) {
		return s.cordon(ctx)
	}
	return s.drain.uncordon(ctx)
}
