package driver

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"machinist.dev/machinist/pkg/provider"
)

// SetPower does not wait until an operation has changed the power state. It waits for startWait, in which Azure may
// refuse the operation, or for confirmWait if the machine is already in the wanted state, so that the operation
// changes nothing.
const (
	startWait   = 2 * time.Second
	confirmWait = 30 * time.Second
)

// SetPower implements provider.Power. Only the end of an operation proves that the machine is off, because reads may
// be outdated. So if a read shows that the machine is off, SetPower stops the machine once more. If KeepCapacity is
// false, the machine is deallocated. Azure cannot deallocate a machine with an ephemeral disk, so such a machine is
// only stopped.
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	at, err := c.locate(req.ProviderID)
	if err != nil {
		return nil, err
	}
	vm, err := c.get(ctx, at)
	if err != nil {
		return nil, err
	}
	in, err := c.convert(vm)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwner(vm, in, own); err != nil {
		return nil, err
	}
	power := powerOf(vm)
	switch {
	case in.State == provider.StateTerminating, in.State == provider.StateFailed,
		in.State == provider.StatePending && power != "starting",
		req.Action == provider.PowerOn && in.State == provider.StateRunning && power == "running":
		return in, nil
	}
	p := &powerChange{clients: c, vm: vm, at: at}
	completed, err := p.start(ctx, req.Action, req.KeepCapacity)
	if err != nil {
		return nil, err
	}
	if req.Action == provider.PowerOn && !completed && stateCodeOf(vm) == provider.ResourceExhausted {
		return nil, provider.Errorf(provider.ResourceExhausted,
			"start virtual machine %s: the last start failed because Azure has no capacity; another start has begun", at.name)
	}
	if vm, err = c.get(ctx, at); err != nil {
		return nil, err
	}
	if in, err = c.convert(vm); err != nil {
		return nil, err
	}
	if in.State == provider.StateStopped && req.Action != provider.PowerOn && !completed {
		in.State, in.StateMessage = provider.StateRunning, "the machine is being stopped"
	}
	return in, nil
}

type powerChange struct {
	*clients
	vm *armcompute.VirtualMachine
	at location
}

// start starts the next operation of a change, and reports whether the change is complete.
func (p *powerChange) start(ctx context.Context, action provider.PowerAction, keep bool) (completed bool,
	err error) {
	if tags := p.tags(action); tags != nil {
		_, err := p.vms.BeginUpdate(ctx, p.at.group, p.at.name, armcompute.VirtualMachineUpdate{Tags: tags}, nil)
		return false, p.translate(ctx, err, "tag")
	}
	power := powerOf(p.vm)
	switch {
	case action == provider.PowerOn && power == "starting", action != provider.PowerOn && power == "deallocating",
		action == provider.PowerOff && power == "stopping":
		return false, nil
	}
	isDeallocated := power == "deallocated"
	deallocates := isDeallocated || !keep && !p.hasEphemeralDisk()
	switch action {
	case provider.PowerOn:
		poller, err := p.vms.BeginStart(ctx, p.at.group, p.at.name, nil)
		return complete(ctx, p, poller, err, "start", startWait)
	case provider.PowerOff:
	case provider.PowerForceOff:
		if isDeallocated {
			break
		}
		completed, err := p.powerOff(ctx, true)
		if err != nil || !completed || !deallocates {
			return completed, err
		}
	default:
		return false, provider.Errorf(provider.InvalidArgument, "the power action %.64q does not exist", action)
	}
	if !deallocates {
		return p.powerOff(ctx, false)
	}
	wait := startWait
	if isDeallocated {
		wait = confirmWait
	}
	poller, err := p.vms.BeginDeallocate(ctx, p.at.group, p.at.name, nil)
	return complete(ctx, p, poller, err, "deallocate", wait)
}

// powerOff stops the machine without releasing its capacity.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/power-off
func (p *powerChange) powerOff(ctx context.Context, force bool) (bool, error) {
	poller, err := p.vms.BeginPowerOff(ctx, p.at.group, p.at.name,
		&armcompute.VirtualMachinesClientBeginPowerOffOptions{SkipShutdown: ref(force)})
	wait := startWait
	if powerOf(p.vm) == "stopped" {
		wait = confirmWait
	}
	return complete(ctx, p, poller, err, "stop", wait)
}

// tags returns the tags that the machine needs before its power state changes, or nil if it has these tags.
func (p *powerChange) tags(action provider.PowerAction) map[string]*string {
	tags := maps.Clone(p.vm.Tags)
	tags[tagRan] = ref("true")
	if tags[tagResize] != nil {
		tags[tagResize] = ref(resizeStarts)
		if action != provider.PowerOn {
			tags[tagResize] = ref(resizeStaysOff)
		}
	}
	if maps.EqualFunc(p.vm.Tags, tags, func(a, b *string) bool { return value(a) == value(b) }) {
		return nil
	}
	return tags
}

func (p *powerChange) hasEphemeralDisk() bool {
	properties := p.vm.Properties
	return properties != nil && properties.StorageProfile != nil && properties.StorageProfile.OSDisk != nil &&
		properties.StorageProfile.OSDisk.DiffDiskSettings != nil
}

func (p *powerChange) translate(ctx context.Context, err error, verb string) error {
	if err == nil {
		return nil
	}
	return translate(ctx, err, verb+" virtual machine "+p.at.name)
}

// complete waits for an operation, and reports whether it has succeeded within the given time.
func complete[T any](ctx context.Context, p *powerChange, poller *runtime.Poller[T], err error, verb string,
	wait time.Duration) (bool, error) {
	if err != nil {
		return false, p.translate(ctx, err, verb)
	}
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if _, err := await(patience, poller); err != nil {
		if ctx.Err() == nil && errors.Is(patience.Err(), context.DeadlineExceeded) {
			return false, nil
		}
		return false, p.translate(ctx, err, verb)
	}
	return true, nil
}
