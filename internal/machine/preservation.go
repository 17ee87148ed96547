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
	"machinist.dev/machinist/internal/preservation"
	"machinist.dev/machinist/internal/wording"
)

// DefaultPreserveTimeout is how long a preserved Machine is kept.
const DefaultPreserveTimeout = 96 * time.Hour

// DefaultPreserveLimit is how many Machines of one owner are preserved at a time because they failed.
const DefaultPreserveLimit = 3

// preserve keeps a Machine that somebody wants to inspect, and deletes it when its time is over. All of it follows
// from what is written in the Machine, so that it can be cut anywhere: its Node is cordoned before its set replaces it.
func (p *pass) preserve(ctx context.Context) (progress, error) {
	m := p.machine
	switch {
	case preservation.Preserved(m):
		if paused(m) || unsupportedSchema(m) != "" {
			return next, nil
		}
	case preservation.Due(m):
		if p.outage() {
			p.requeueIn(targetPoll) // Nothing is replaced now.
			return next, nil
		}
	default:
		p.notPreserved()
		return next, nil
	}
	if within, err := p.preserveWithinLimit(ctx); err != nil {
		return wait, err
	} else if !within {
		return next, nil
	}
	until, err := preservation.Until(p.machine)
	if err != nil {
		message := "The machine is preserved and will not be deleted: " + err.Error() + "."
		if p.setCondition(v1beta1.ConditionPreserved, true, v1beta1.ReasonInvalidConfiguration, message) {
			p.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		}
		return next, nil
	}
	left := until.Sub(p.now)
	if left <= 0 {
		return wait, p.endPreservation(ctx)
	}
	p.requeueIn(left)
	message := fmt.Sprintf("The machine belongs to no set any more. It is preserved until %s and then deleted.",
		until.UTC().Format(time.RFC3339))
	if p.setCondition(v1beta1.ConditionPreserved, true, v1beta1.ReasonPreserved, message) {
		p.note(v1beta1.ReasonPreserved, "Preserve", message)
	}
	return next, nil
}

// preserveWithinLimit cordons the Node of the Machine and takes the Machine from its set. It does neither, and
// reports that, where the Machine is preserved only because it failed and as many others of its owner are as may be:
// where all of a fleet fail, keeping each would cost money for days. Machines fail together, so they are counted one
// after the other.
func (p *pass) preserveWithinLimit(ctx context.Context) (bool, error) {
	m := p.machine
	if !preservation.Preserved(m) && m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
		p.states.preserving.Lock()
		defer p.states.preserving.Unlock()
		n, err := p.countPreserved(ctx)
		if err != nil {
			return false, err
		}
		if n >= p.PreserveLimit {
			message := fmt.Sprintf("No more than %s of %s may be preserved because they failed (--preserve-limit), and %d are. This one is replaced.",
				wording.Count(p.PreserveLimit, "machine"), preservation.Origin(m), n)
			if p.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooManyPreserved, message) {
				p.warn(v1beta1.ReasonTooManyPreserved, "Preserve", message)
			}
			return false, nil
		}
	}
	if err := p.cordonPreserved(ctx); err != nil {
		return false, err
	}
	return true, p.leaveSet(ctx)
}

// countPreserved counts the Machines of the same owner that are preserved because they failed. The cache shows what
// this process wrote itself.
func (p *pass) countPreserved(ctx context.Context) (n int, err error) {
	list := &v1beta1.MachineList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list preserved machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if preservation.Preserved(m) && m.DeletionTimestamp.IsZero() && preservation.SameOrigin(m, p.machine) &&
			m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed {
			n++
		}
	}
	return n, nil
}

// leaveSet takes the Machine from its set, and says until when it is kept, in one patch.
func (p *pass) leaveSet(ctx context.Context) error {
	m := p.machine
	_, hash := m.Labels[v1beta1.LabelTemplateHash]
	_, owned := m.Labels[v1beta1.LabelMachineSet]
	if preservation.Preserved(m) && !hash && !owned && metav1.GetControllerOfNoCopy(m) == nil {
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
		if !preservation.Preserved(m) {
			set(&m.Annotations, v1beta1.AnnotationPreservedUntil, p.now.Add(p.PreserveTimeout).UTC().Format(time.RFC3339))
		}
	})
}

// endPreservation deletes a Machine whose time is over, if nobody has changed it.
func (p *pass) endPreservation(ctx context.Context) error {
	m := p.before
	gone := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := p.Client.Delete(ctx, gone, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete preserved machine: %w", err)
	}
	return nil
}

// cordonPreserved cordons the Node of a preserved Machine.
func (p *pass) cordonPreserved(ctx context.Context) error {
	ref := p.machine.Status.NodeRef
	if p.Target == nil || ref == nil {
		return nil
	}
	node := &corev1.Node{}
	err := p.Target.Nodes.Get(ctx, client.ObjectKey{Name: ref.Name}, node)
	if err == nil && node.UID == ref.UID {
		_, err = drain.Cordon(ctx, p.Target.Nodes, node)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It is gone.
	}
	return err
}

// notPreserved reports an invalid request to preserve the Machine, and removes the condition of a Machine that was
// preserved.
func (p *pass) notPreserved() {
	if invalid := preservation.Invalid(p.machine); invalid != "" {
		message := "The machine is not preserved: " + invalid + "."
		if p.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonInvalidConfiguration, message) {
			p.warn(v1beta1.ReasonInvalidConfiguration, "Preserve", message)
		}
		return
	}
	if preservation.OverLimit(p.machine) {
		return
	}
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionPreserved)
}

// tooLateToPreserve reports a request to preserve a Machine that is already being deleted.
func (p *pass) tooLateToPreserve() {
	m := p.machine
	if m.Annotations[v1beta1.AnnotationPreserve] != v1beta1.PreserveNow || preservation.Preserved(m) || !hasFinalizer(m) {
		return
	}
	const message = "The machine is already being deleted and cannot be preserved."
	if p.setCondition(v1beta1.ConditionPreserved, false, v1beta1.ReasonTooLate, message) {
		p.warn(v1beta1.ReasonTooLate, "Preserve", message)
	}
}

// awaitPreservation reconciles a Machine again that must be preserved because of this pass's findings: that is
// written down first.
func (p *pass) awaitPreservation() {
	if preservation.Due(p.machine) && !preservation.Due(p.before) {
		p.requeueIn(time.Millisecond)
	}
}

// updateUnlessPreserved leaves the instance of a preserved Machine as it is, unless its replacement has begun.
func (p *pass) updateUnlessPreserved(ctx context.Context) (progress, error) {
	if preservation.Preserved(p.machine) && !p.machine.Replacing() {
		p.endDrain()
		return next, nil
	}
	if interrupted(p.machine) && !p.machine.Replacing() {
		return next, nil // An instance that the cloud reclaims is not changed any more.
	}
	return p.update(ctx)
}

// uncordonUnlessPreserved ends the disruption of the Node where nothing is in the way.
func (p *pass) uncordonUnlessPreserved(ctx context.Context) error {
	if preservation.Preserved(p.machine) {
		return p.cordonPreserved(ctx)
	}
	return p.uncordon(ctx)
}
