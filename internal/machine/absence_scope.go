package machine

import (
	"context"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// A driver looks for an instance in the recorded scope. Any client that may write the status may have changed the
// scope, and a process that started after that has nothing to compare it with (own_status.go). It would look in the
// wrong scope, get NotFound and leave the instance behind. Therefore NotFound proves nothing until this process has
// found the instance in that scope itself. Until then, the cloud is also asked for the instance by its tags, in the
// place that the class names, because one write of a status cannot change both. A lookup by tags may reach a replica
// that lags behind, as a read by provider ID may. So only two lookups that find nothing, recheckAfter apart, count.

// foundIn records that a call with this scope found the instance.
func (p *pass) foundIn(scope string) {
	if scope != "" && p.states.get(p.machine).instance.foundIn != scope {
		p.states.update(p.machine, func(m *machineState) { m.instance.foundIn = scope })
	}
}

// scope returns the recorded scope of the instance, or "" if none is recorded.
func (p *pass) scope() string {
	if status := p.machine.Status.Instance; status != nil {
		return status.Scope
	}
	return ""
}

// scopeKnown reports whether this process has found the instance in the recorded scope.
func (p *pass) scopeKnown() bool {
	recorded := p.scope()
	return recorded == "" || recorded == p.states.get(p.machine).instance.foundIn
}

// misplaced reports whether the instance is in another scope than the recorded one, and if so, corrects the record. If
// that cannot be decided yet, it returns the time until the next lookup. Without a class that names the place, the
// instance cannot be found by its tags. The same holds if the instance is in another place than its class now names. In
// both cases the recorded scope is the only hint.
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
		now := p.Clock.Now() // The second lookup must be recheck later than this answer, not than the start of the pass.
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
	logf.FromContext(ctx).Info("Correcting the recorded scope of the instance, which another client changed", "recorded", p.scope())
	p.machine.Status.Instance.Scope = instance.Scope
	p.foundIn(instance.Scope)
	return true, 0, nil
}

// byTags looks for the instance of a machine by its tags, in the place that the class names. It returns NotFound if the
// lookup finds another instance than the recorded one.
func (p *pass) byTags(ctx context.Context, m *v1beta1.Machine, inputs resolve.Resolved) (*provider.Instance, error) {
	instance, err := p.Cloud.Get(ctx, provider.GetRequest{Machine: identity(m), Class: inputs.Class(),
		ClusterID: p.ClusterID})
	if err == nil && (instance.ProviderID != m.Spec.ProviderID || instance.OwnedBy(p.ClusterID, identity(m)) != nil) {
		return nil, provider.Errorf(provider.NotFound, "no instance %s by the tags of machine %s", m.Spec.ProviderID, m.Name)
	}
	return instance, err
}
