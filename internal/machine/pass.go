package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// pass is one reconciliation of one Machine. A pass contains what the steps read and change.
type pass struct {
	*Reconciler
	// provider is the name of this process's provider. The field is "" if the Machine has no provider label. The
	// cloud was never called for such a Machine, because a Machine gets the label before the first call.
	provider string
	// original is the Machine as the API server last returned it. The field machine contains the copy that this pass
	// changes. Steps may change only the status of that copy directly.
	original *v1beta1.Machine
	machine  *v1beta1.Machine
	// node is the Machine's Node. It is nil until the registration step has found the Node.
	node *corev1.Node
	now  time.Time
	// leading is the time at which this process began to reconcile Machines. Other processes began all their calls to
	// the cloud before this process reconciled Machines.
	leading time.Time
	// requeueAfter is the time after which the next pass runs if no event triggers one earlier. Zero means that only an
	// event triggers the next pass.
	requeueAfter time.Duration
	// spans are the phases of the Machine's life that ended in this pass. The metrics are updated after the status is
	// written.
	spans []span
	// finalizerRemoved is true if the finalizer was removed. The status is then not written any more.
	finalizerRemoved bool

	// failedInstance is the instance that this pass has read, if the provider reports that the instance failed.
	failedInstance *provider.Instance
	// waitsFor describes what an update waits for if the update takes the node out of service.
	waitsFor *metav1.Condition
	// drainReport is the report about an unfinished drain in the status of this pass.
	drainReport drainReport
	// probing is true if the Machine may request an instance although the cloud had no capacity for its class.
	probing bool
	trace   traceStep
}

func newPass(r *Reconciler, provider string, m *v1beta1.Machine, now, leading time.Time) *pass {
	p := &pass{Reconciler: r, provider: provider, machine: m.DeepCopy(), original: m, now: now, leading: leading}
	p.trace.pass = p
	return p
}

// confirm reads the Machine from the API server before an action that a newer version of the Machine could forbid. The
// cached Machine may be very old.
func (p *pass) confirm(ctx context.Context, before string) error {
	live := &v1beta1.Machine{}
	switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(p.machine), live); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read machine before %s: %w", before, err)
	case live.UID != p.machine.UID || live.ResourceVersion != p.original.ResourceVersion:
		return errStale
	}
	return nil
}

// errStale means that the cached Machine is outdated. The pass then writes nothing.
var errStale = errors.New("the cached machine is out of date")

// claim adds the finalizer and the provider label to a Machine that a user has created. Machines of a MachineSet have
// the finalizer and the label from the beginning.
func (p *pass) claim(ctx context.Context) (progress, error) {
	if p.provider == "" || hasFinalizer(p.machine) && p.machine.Labels[v1beta1.LabelProvider] != "" {
		return next, nil
	}
	return next, p.patchMachine(ctx, func(m *v1beta1.Machine) {
		if !hasFinalizer(m) {
			m.Finalizers = append(m.Finalizers, v1beta1.MachineFinalizer)
		}
		set(&m.Labels, v1beta1.LabelProvider, p.provider)
	})
}

func (p *pass) requeueIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.requeueAfter == 0 || d < p.requeueAfter {
		p.requeueAfter = d
	}
}

// patchMachine changes the metadata or the spec of the Machine. It returns a conflict if another client has changed the
// Machine in the meantime.
func (p *pass) patchMachine(ctx context.Context, change func(*v1beta1.Machine)) error {
	changed := p.original.DeepCopy()
	change(changed)
	if err := p.Client.Patch(ctx, changed, withoutStatus{p.original}); err != nil {
		return fmt.Errorf("patch machine: %w", err)
	}
	changed.ManagedFields = nil // The cache contains no managed fields either.
	p.original = changed
	p.machine.TypeMeta, p.machine.ObjectMeta = changed.TypeMeta, *changed.ObjectMeta.DeepCopy()
	p.machine.Spec = *changed.Spec.DeepCopy()
	return nil
}

// forgetProviderID removes the provider ID of an instance that is gone.
func (p *pass) forgetProviderID(ctx context.Context) (progress, error) {
	err := p.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = "" })
	return onError.unless(err == nil), err
}

func (p *pass) writeStatus(ctx context.Context) error {
	if p.finalizerRemoved {
		return nil
	}
	if equality.Semantic.DeepEqual(p.original.Status, p.machine.Status) || p.onlyBooted() {
		return nil
	}
	changed := p.machine.DeepCopy()
	switch err := p.Client.Status().Patch(ctx, changed, statusOnly{p.original}); {
	case apierrors.IsNotFound(err):
		return nil // The Machine is gone. Its delete event follows.
	case err != nil:
		return fmt.Errorf("patch machine status: %w", err)
	}
	p.ownWrites.Record(changed)
	before := p.original
	p.original, p.machine = changed, changed.DeepCopy()
	p.states.update(p.machine, func(m *machineState) {
		m.instance.booted = nil
		if p.drainReport.kind != "" {
			m.teardown.drainReport = p.drainReport
		}
	})
	p.trace.statusWritten(before, p.spans)
	p.observeSpans()
	if machinestate.IsInterrupted(p.machine) && !machinestate.IsInterrupted(before) {
		notice := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionInterruptionNotice)
		p.Metrics.countInterruption(notice.Reason)
	}
	return nil
}

func hasFinalizer(m *v1beta1.Machine) bool {
	for _, f := range m.Finalizers {
		if f == v1beta1.MachineFinalizer {
			return true
		}
	}
	return false
}
