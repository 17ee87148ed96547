package machine

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
)

// trigger enqueues Machines whose instances seem to be missing or are about to be reclaimed.
type trigger struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (d *trigger) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.queue = queue
		return nil
	})
}

// CheckInstance has the Machine ask the provider whether its recorded instance still exists. It may be called at any
// time, and returns at once. The Machine is not changed.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.enqueue(m)
}

// enqueue has the Machine reconciled.
func (d *trigger) enqueue(m *v1beta1.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Before the start there is no queue: every Machine is reconciled at the start.
	if d.queue != nil {
		d.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	}
}

// checkSuspect asks the provider for an instance that may be missing until it answers, and reports whether it is gone.
func (p *pass) checkSuspect(ctx context.Context) (gone bool, err error) {
	suspectID := p.states.get(p.machine).instance.suspectID
	if suspectID == "" {
		return false, nil
	}
	decided := func() { p.states.update(p.machine, func(known *machineState) { known.instance.suspectID = "" }) }
	if suspectID != p.machine.Spec.ProviderID {
		decided()
		return false, nil
	}
	err = p.checkInstance(ctx, true)
	gone = p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished
	if gone || err != nil || p.states.get(p.machine).instance.getFailures == 0 && !p.undecided {
		decided()
	}
	return gone, err
}
