package cloud

import (
	"slices"

	"machinist.dev/machinist/simcloud"
)

// Stop starts to switch an instance off.
func (c *Cloud) Stop(accountName, id string, req simcloud.StopInstanceRequest) (*simcloud.Instance, error) {
	return c.change(accountName, id, func(next *record) error {
		switch s := next.Instance.State; {
		case s == simcloud.StateStopped:
			next.StopRequest.ReleaseCapacity = next.StopRequest.ReleaseCapacity || req.ReleaseCapacity
			return nil
		case s == simcloud.StateRunning, s == simcloud.StateStopping, req.Force && slices.Contains(bootingStates(), s):
			next.stop(c.now(), req, c.settings)
			return nil
		default:
			return fail(simcloud.CodeConflict, "instance %s is %s and cannot be stopped now", id, s)
		}
	})
}

// Start starts to switch an instance on.
func (c *Cloud) Start(accountName, id string) (*simcloud.Instance, error) {
	return c.change(accountName, id, func(next *record) error {
		switch s := next.Instance.State; {
		case s == simcloud.StateRunning, slices.Contains(bootingStates(), s):
			return nil
		case s != simcloud.StateStopped:
			return fail(simcloud.CodeConflict, "instance %s is %s and cannot be started now", id, s)
		}
		if !next.usesCapacity() {
			if err := c.checkCapacity(next.Instance.Zone, next.Instance.Type); err != nil {
				return err
			}
		}
		next.start(c.now(), c.settings)
		return nil
	})
}

func bootingStates() []simcloud.InstanceState {
	return []simcloud.InstanceState{simcloud.StatePending, simcloud.StateStarting, simcloud.StateRebooting}
}
