package machine

import (
	"context"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// A driver looks for an instance where the recorded scope says. Whoever may write a status may have changed that, and
// a process that was restarted since has nothing to compare it with (own_status.go): it would look where the instance
// never was, hear NotFound and leave the instance behind. So a NotFound proves nothing while this process has not found
// the instance in that scope itself. The cloud is asked by the instance's tags and where the class says, which nobody
// can change by the same write. A lookup by tags may reach a replica that is behind, as a read by provider ID may: two
// that find nothing, recheckAfter apart, count.

// foundIn takes note that a call with the recorded scope found the instance.
func (p *pass) foundIn(scope string) {
	if scope != "" && p.states.get(p.machine).instance.foundIn != scope {
		p.states.update(p.machine, func(m *machineState) { m.instance.foundIn = scope })
	}
}

// scope returns where the instance is, as far as that is recorded.
func (p *pass) scope() string {
	if status := p.machine.Status.Instance; status != nil {
		return status.Scope
	}
	return ""
}

// scopeKnown reports whether this process knows that the recorded scope is right.
func (p *pass) scopeKnown() bool {
	recorded := p.scope()
	return recorded == "" || recorded == p.states.get(p.machine).instance.foundIn
}

// misplaced reports whether the instance is in another scope than the recorded one, and records the right one. If that
// is not decided yet, it returns after how long to ask again. What lacks a class that says where to look, or is in
// another place than the class says by now, cannot be found in this way: then the recorded scope is all that there is.
func (p *pass) misplaced(
	ctx context.Context, inputs resolve.Resolved,
) (misplaced bool, again time.Duration, err error) {
	if p.scopeKnown() || len(inputs.ProviderSpec) == 0 {
		return false, 0, nil
	}
	recheck := recheckAfter(p.Cloud.CreateSettle())
	since := p.states.get(p.machine).instance.untaggedSince
	if left := since.Add(recheck).Sub(p.now); !since.IsZero() && left > 0 {
		return false, left, nil
	}
	instance, err := p.byTags(ctx, p.machine, inputs)
	switch {
	case provider.IsNotFound(err) && since.IsZero():
		now := p.Clock.Now() // The second lookup must be that much later than the answer to this one.
		p.states.update(p.machine, func(m *machineState) { m.instance.untaggedSince = now })
		return false, recheck, nil
	case provider.IsNotFound(err):
		return false, 0, nil
	case !since.IsZero():
		p.states.update(p.machine, func(m *machineState) { m.instance.untaggedSince = time.Time{} })
	}
	if err != nil || instance.Scope == p.scope() || instance.Scope == "" {
		return false, 0, err
	}
	logf.FromContext(ctx).Info("Correcting where the instance is, which somebody has changed", "recorded", p.scope())
	p.machine.Status.Instance.Scope = instance.Scope
	p.foundIn(instance.Scope)
	return true, 0, nil
}

// byTags asks for the instance of a machine by its tags, where the class says. NotFound is the answer as well where
// these lead to another instance than the recorded one.
func (p *pass) byTags(ctx context.Context, m *v1beta1.Machine, inputs resolve.Resolved) (*provider.Instance, error) {
	instance, err := p.Cloud.Get(ctx, provider.GetRequest{Machine: identity(m), Class: inputs.Class(),
		ClusterID: p.ClusterID})
	if err == nil && (instance.ProviderID != m.Spec.ProviderID || instance.OwnedBy(p.ClusterID, identity(m)) != nil) {
		return nil, provider.Errorf(provider.NotFound, "no instance %s by the tags of machine %s", m.Spec.ProviderID, m.Name)
	}
	return instance, err
}
