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

// preserve keeps a Machine for inspection, and deletes the Machine at the end of its preservation. All decisions depend
// only on the Machine itself, so a crash at any point does no harm. The Node is cordoned before the MachineSet replaces
// the Machine.
func (p *pass) preserve(ctx context.Context) (progress, error) {
	m := p.machine
	switch {
	case preservation.IsPreserved(m):
		if machinestate.IsPaused(m) || p.unsupportedSchema(m) != "" {
			return next, nil
		}
		if preservation.NeverBegan(m, p.now) {
			return next, p.refusePast(ctx)
		}
	case preservation.MustPreserve(m):
		if p.outage() {
			p.requeueIn(targetPoll) // No machine is replaced during an outage.
			return next, nil
		}
	default:
		p.notPreserved()
		return next, nil
	}
	if within, err := p.withinLimit(ctx); err != nil {
		return onError, err
	} else if !within {
		return next, nil
	}
	until, err := preservation.EndTime(p.machine)
	if err != nil {
		message := "The machine is preserved and will not be deleted automatically: " + err.Error() + "."
		p.reportProblem(v1beta1.ConditionPreserved, true, v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		return next, nil
	}
	left := until.Sub(p.now)
	if left <= 0 {
		return onMachine, p.deleteExpired(ctx)
	}
	p.requeueIn(left)
	message := fmt.Sprintf("The machine was removed from its set. It is preserved until %s and then deleted.",
		until.UTC().Format(time.RFC3339))
	if p.setCondition(v1beta1.ConditionPreserved, true, v1beta1.ReasonPreserved, message) {
		p.note(v1beta1.ReasonPreserved, "Preserve", message)
	}
	return next, nil
}

// withinLimit cordons the Node of the Machine and removes the Machine from its MachineSet. If too many Machines of the
// owner are preserved after a failure, withinLimit changes nothing and returns false. Otherwise, a fleet whose machines
// all fail would be kept for days, which is expensive. A lock ensures that the Machines of one owner are counted one
// after another.
func (p *pass) withinLimit(ctx context.Context) (bool, error) {
	m := p.machine
	if !preservation.IsPreserved(m) && m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
		defer p.states.preserving.Lock(m.Namespace + "/" + preservation.Origin(m))()
		n, err := p.countPreserved(ctx)
		if err != nil {
			return false, err
		}
		if n >= p.PreserveLimit {
			message := fmt.Sprintf("The machine is replaced and not preserved, because at most %s of %s may be preserved after a failure (--preserve-limit), and %d are preserved already.",
				wording.Count(p.PreserveLimit, "machine"), preservation.Origin(m), n)
			p.reportProblem(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooManyPreserved, "Preserve", message)
			return false, nil
		}
	}
	if err := p.cordonPreserved(ctx); err != nil {
		return false, err
	}
	return true, p.leaveSet(ctx)
}

// countPreserved returns the number of Machines of the same owner that are preserved because they failed. The cache
// includes this process's own writes.
func (p *pass) countPreserved(ctx context.Context) (n int, err error) {
	list := &v1beta1.MachineList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list preserved machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if preservation.IsPreserved(m) && m.DeletionTimestamp.IsZero() && preservation.SameOrigin(m, p.machine) &&
			m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
			n++
		}
	}
	return n, nil
}

// leaveSet removes the Machine from its MachineSet and records the end of the preservation in one patch.
func (p *pass) leaveSet(ctx context.Context) error {
	m := p.machine
	_, hash := m.Labels[v1beta1.LabelTemplateHash]
	_, owned := m.Labels[v1beta1.LabelMachineSet]
	if preservation.IsPreserved(m) && !hash && !owned && metav1.GetControllerOfNoCopy(m) == nil {
		return nil
	}
	return p.patchMachine(ctx, func(m *v1beta1.Machine) {
		if owner := m.Labels[v1beta1.LabelMachineSet]; owner != "" {
			set(&m.Annotations, v1beta1.AnnotationPreservedFrom, owner)
		}
		delete(m.Labels, v1beta1.LabelTemplateHash)
		delete(m.Labels, v1beta1.LabelMachineSet)
		m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Controller != nil && *o.Controller
		})
		if !preservation.IsPreserved(m) {
			set(&m.Annotations, v1beta1.AnnotationPreservedUntil, p.now.Add(p.PreserveTimeout).UTC().Format(time.RFC3339))
		}
	})
}

// refusePast removes the annotation if it names a past time and the Machine was never preserved. Otherwise, a typing
// error would delete a machine that works.
func (p *pass) refusePast(ctx context.Context) error {
	message := fmt.Sprintf("Removed the annotation %s=%.64s: the time is in the past, and the machine was not preserved. "+
		"Set a later time, or delete the machine.", v1beta1.AnnotationPreservedUntil,
		p.machine.Annotations[v1beta1.AnnotationPreservedUntil])
	err := p.patchMachine(ctx, func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPreservedUntil) })
	if err == nil {
		p.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
	}
	return err
}

// deleteExpired deletes a Machine when its preservation is over, unless another client has changed the Machine in the
// meantime.
func (p *pass) deleteExpired(ctx context.Context) error {
	m := p.original
	gone := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := p.Client.Delete(ctx, gone, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete preserved machine: %w", err)
	}
	return nil
}

// cordonPreserved cordons the Node of a preserved Machine. If the Machine is paused, only the administrator changes the
// Node.
func (p *pass) cordonPreserved(ctx context.Context) error {
	ref := p.machine.Status.NodeRef
	if p.Target == nil || ref == nil || machinestate.IsPaused(p.machine) {
		return nil
	}
	node := &corev1.Node{}
	err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node)
	if err == nil && node.UID == ref.UID {
		_, err = drain.Cordon(ctx, p.Target.Nodes, node)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // The Node is gone, or another client changed it.
	}
	return err
}

// notPreserved reports an invalid request, and removes the condition of an earlier preservation.
func (p *pass) notPreserved() {
	if invalid := preservation.ValidationError(p.machine); invalid != "" {
		message := "The machine is not preserved: " + invalid + "."
		p.reportProblem(v1beta1.ConditionPreserved, false, v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		return
	}
	if preservation.OverLimit(p.machine) {
		return
	}
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionPreserved)
}

func (p *pass) tooLate() {
	m := p.machine
	if m.Annotations[v1beta1.AnnotationPreserve] != v1beta1.PreserveNow || preservation.IsPreserved(m) ||
		!hasFinalizer(m) {
		return
	}
	const message = "The machine is already being deleted and cannot be preserved."
	p.reportProblem(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooLate, "Preserve", message)
}

// requeueIfDue requeues the Machine if this pass has found a reason to preserve it. The status must be written first.
func (p *pass) requeueIfDue() {
	if preservation.MustPreserve(p.machine) && !preservation.MustPreserve(p.original) {
		p.requeueIn(time.Millisecond)
	}
}

func (p *pass) uncordonUnlessPreserved(ctx context.Context) error {
	if preservation.IsPreserved(p.machine) {
		return p.cordonPreserved(ctx)
	}
	return p.uncordon(ctx)
}
