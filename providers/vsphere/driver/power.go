package driver

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
)

// SetPower implements provider.Power. A virtual machine that is off keeps its disks, and vCenter chooses its host again
// when it is switched on, so KeepCapacity has no effect.
func (d *Driver) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	s, err := d.sessionFor(req.Class, req.Scope)
	if err != nil {
		return nil, err
	}
	vm, err := s.getByID(ctx, req.ProviderID, req.Class)
	if err != nil {
		return nil, err
	}
	in := s.convert(vm)
	if err := s.checkOwner(ctx, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return in, nil
	}
	if !vm.connected {
		return nil, provider.Errorf(provider.Unavailable, "switch virtual machine %s: vCenter does not reach its host",
			vm.name)
	}
	if vm.extra[keyNew] != "" {
		// From now on, a virtual machine that is off has run before.
		done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(map[string]string{keyNew: ""})})
		if err != nil || !done {
			return in, err
		}
	}
	switch req.Action {
	case provider.PowerOn:
		err = s.powerOn(ctx, vm)
	case provider.PowerForceOff:
		_, err = s.powerOff(ctx, vm)
	case provider.PowerOff:
		err = s.shutDown(ctx, vm)
	default:
		return nil, provider.Errorf(provider.InvalidArgument, "the power action %.64q does not exist", req.Action)
	}
	if err != nil {
		return nil, err
	}
	if vm, err = s.getByID(ctx, req.ProviderID, req.Class); err != nil {
		return nil, err
	}
	if !vm.connected {
		return nil, provider.Errorf(provider.Unavailable, "switch virtual machine %s: vCenter does not reach its host",
			vm.name)
	}
	return s.convert(vm), nil
}

// powerOn switches a virtual machine on. The virtual machine may not be on yet when powerOn returns.
func (s *session) powerOn(ctx context.Context, vm *virtualMachine) error {
	if vm.power == types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	attempted := "switch on virtual machine " + vm.name
	answer, err := methods.PowerOnVM_Task(ctx, s, &types.PowerOnVM_Task{This: vm.ref})
	if err != nil {
		return translate(ctx, err, attempted)
	}
	_, err = s.await(ctx, attempted, answer.Returnval)
	return err
}

// powerOff switches a virtual machine off without its guest, and reports whether it is off.
func (s *session) powerOff(ctx context.Context, vm *virtualMachine) (done bool, err error) {
	if vm.isOff() {
		return true, nil
	}
	attempted := "switch off virtual machine " + vm.name
	answer, err := methods.PowerOffVM_Task(ctx, s, &types.PowerOffVM_Task{This: vm.ref})
	if err != nil {
		return false, translate(ctx, err, attempted)
	}
	return s.await(ctx, attempted, answer.Returnval)
}

// shutDown asks the guest of a virtual machine to shut down. A guest without VMware Tools ignores this.
func (s *session) shutDown(ctx context.Context, vm *virtualMachine) error {
	if vm.power != types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	_, err := methods.ShutdownGuest(ctx, s, &types.ShutdownGuest{This: vm.ref})
	if err == nil || isFault[types.ToolsUnavailable](err) || isFault[types.InvalidPowerState](err) {
		return nil
	}
	return translate(ctx, err, "shut down virtual machine "+vm.name)
}
