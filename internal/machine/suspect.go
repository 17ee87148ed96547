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

// doubts wakes Machines whose instances seem to be missing, or are about to be taken away.
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

// Doubt has the Machine ask the provider whether the instance that it has recorded is still there. It may be called at any
// time, and returns at once. The Machine is not changed.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.enqueue(m)
}

// wake has the Machine looked at.
func (d *trigger) enqueue(m *v1beta1.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Without a queue it is before the start, at which every Machine is looked at.
	if d.queue != nil {
		d.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	}
}

// resolveDoubt asks the provider for an instance that is in doubt until it answers, and reports whether it is gone.
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
