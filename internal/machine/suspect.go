package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// CheckInstance has the Machine ask the provider whether its recorded instance still exists. It may be called at any
// time, and returns at once. The Machine is not changed.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.Enqueue(client.ObjectKeyFromObject(m))
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
