package driver

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
)

// SetPower implements provider.Power. PowerOff and PowerForceOff are the same request, because Nova has only one:
// Nova asks the guest to shut down, and switches the server off after shutdown_timeout (60 seconds by default). A
// server that is off keeps its place on its host, so KeepCapacity has no effect.
// https://docs.openstack.org/nova/latest/configuration/config.html#DEFAULT.shutdown_timeout
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
	if err != nil {
		return nil, err
	}
	s, err := c.get(ctx, id)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(s)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwner(s, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return in, nil
	}
	var answer error
	attempted := "stop server " + id
	switch req.Action {
	case provider.PowerOn:
		attempted = "start server " + id
		answer = servers.Start(ctx, c.compute, id).ExtractErr()
	case provider.PowerOff, provider.PowerForceOff:
		answer = servers.Stop(ctx, c.compute, id).ExtractErr()
	default:
		return nil, provider.Errorf(provider.InvalidArgument, "the power action %.64q does not exist", req.Action)
	}
	if answer != nil && !isConflict(answer) {
		return nil, translate(ctx, answer, attempted)
	}
	refused, _ := answerOf(answer)
	if refused.messageContains("is locked") {
		return nil, provider.Errorf(provider.FailedPrecondition, "%s: the server is locked; unlock it", attempted)
	}
	if s, err = c.get(ctx, id); err != nil {
		return nil, err
	}
	if in, err = c.convert(s); err != nil || in.State != provider.StateStopped {
		return in, err
	}
	switch {
	case answer == nil || refused.messageContains("task_state"):
		// The read may be outdated. Only a refusal because of the state of the server proves that the server was off when
		// Nova got the request.
		if req.Action != provider.PowerOn {
			in.State, in.StateMessage = provider.StateRunning, "the server is being stopped"
		}
	case req.Action == provider.PowerOn, !isOff(s):
		return nil, provider.Errorf(provider.FailedPrecondition,
			"%s: Nova does not allow this in the state %.32s of the server", attempted, s.Status)
	}
	return in, nil
}

// isOff reports whether a server does not run and cannot continue with the content of its memory.
func isOff(s *servers.Server) bool {
	switch s.Status {
	case "SHUTOFF", "SHELVED", "SHELVED_OFFLOADED":
		return s.TaskState == "" && s.PowerState != servers.RUNNING
	}
	return false
}
