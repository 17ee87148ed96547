package fakecloud

import (
	"context"
	"slices"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// powerChange is a change of the power state that takes effect later.
type powerChange struct {
	at    time.Time
	state provider.InstanceState
}

// SetPower implements provider.Power. If IgnoreShutdown is set, PowerOff has no effect.
func (c *Cloud) SetPower(_ context.Context, req provider.PowerRequest) (out *provider.Instance, err error) {
	err = c.call("set power "+string(req.Action), func() (err error) {
		c.powerRequests = append(c.powerRequests, req)
		step := c.step("SetPower")
		if step.Err != nil && step.EffectDelay == 0 {
			return step.Err
		}
		account := accountOf(req.Class)
		read, err := c.find(&account, req.ProviderID, req.ClusterID, req.Machine)
		if err == nil {
			err = checkScope(read, req.Scope)
		}
		if err != nil {
			return err
		}
		in := c.byID(read.ProviderID)
		if in == nil {
			return provider.Errorf(provider.NotFound, "instance %s is gone", req.ProviderID)
		}
		if err := in.OwnedBy(req.ClusterID, req.Machine); err != nil {
			return err
		}
		c.change(in, req.Action, step.EffectDelay)
		out = in.describe()
		return step.Err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Cloud) change(in *Instance, action provider.PowerAction, delay time.Duration) {
	wanted := provider.StateStopped
	if action == provider.PowerOn {
		wanted = provider.StateRunning
	}
	if in.State != provider.StateRunning && in.State != provider.StateStopped {
		return // The instance is being created or deleted.
	}
	if in.power != nil && in.power.state == wanted && action != provider.PowerForceOff || action == provider.PowerOff &&
		c.IgnoreShutdown || in.State == wanted && in.power == nil {
		return
	}
	if action != provider.PowerForceOff {
		delay += c.PowerDelay
	}
	in.power = &powerChange{c.Clock.Now().Add(delay), wanted}
	in.switchPower(c.Clock.Now())
	c.record(c.Clock.Now())
}

// switchPower carries out a change of the power state that is due.
func (in *Instance) switchPower(now time.Time) {
	if in.power == nil || in.power.at.After(now) || !in.goneFrom.IsZero() {
		return
	}
	if in.State = in.power.state; in.State == provider.StateRunning {
		in.Boots++
	}
	in.power = nil
}

// PowerRequests returns the requests of all calls to SetPower.
func (c *Cloud) PowerRequests() []provider.PowerRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.powerRequests)
}
