package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// Delete implements provider.Driver. Delete waits for a running clone, and removes the virtual machine in steps: Delete
// marks it, switches it off, detaches the disks that do not belong to it, and destroys it with the others. Delete does
// not cancel a clone, because a cancelled clone may still end with a virtual machine.
func (d *Driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	s, err := d.sessionFor(req.Class, req.Scope)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	// Tasks are read first: a clone that ends between the two reads is found as a virtual machine.
	clones, err := s.cloneTasks(ctx, own)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	var machines []*virtualMachine
	if req.ProviderID != "" {
		vm, err := s.getByID(ctx, req.ProviderID, req.Class)
		if err != nil && !provider.IsNotFound(err) {
			return provider.DeleteResult{}, err
		}
		if vm != nil {
			if err := s.checkOwner(ctx, s.convert(vm), own); err != nil {
				return provider.DeleteResult{}, err
			}
			machines = append(machines, vm)
		}
	} else {
		at, err := machine.ParseLocation(req.Class.Spec)
		if err != nil {
			return provider.DeleteResult{}, err
		}
		if machines, err = s.machinesOf(ctx, at, own); err != nil {
			return provider.DeleteResult{}, err
		}
	}
	var left []string
	for _, vm := range machines {
		remaining, err := s.destroy(ctx, vm)
		if err != nil {
			return provider.DeleteResult{}, err
		}
		if remaining != "" {
			left = append(left, remaining)
		}
	}
	waiting, err := s.awaitedClones(ctx, clones, req.CreateHandle)
	if err != nil {
		return provider.DeleteResult{}, err
	}
	left = append(left, waiting...)
	return provider.DeleteResult{Gone: len(left) == 0, Found: len(left) == 0 && len(machines) > 0,
		Remaining: strings.Join(left, "; ")}, nil
}

// awaitedClones describes the running clones. The handle names one of them that may be missing in the list.
func (s *session) awaitedClones(ctx context.Context, clones []cloneTask, handle string) (left []string, err error) {
	known := func(t cloneTask) bool { return t.ref.Value == handle }
	if handle != "" && !slices.ContainsFunc(clones, known) {
		t, err := s.task(ctx, types.ManagedObjectReference{Type: "Task", Value: handle})
		if err != nil && !provider.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			clones = append(clones, t)
		}
	}
	for _, t := range clones {
		if t.isRunning() {
			left = append(left, fmt.Sprintf("task %s (%s) that clones the template", t.ref.Value, t.state))
		}
	}
	return left, nil
}

// destroy removes a virtual machine. It returns what the next call has to wait for, or "" if the virtual machine is
// gone.
func (s *session) destroy(ctx context.Context, vm *virtualMachine) (remaining string, err error) {
	waitingFor := func(step string) string { return "virtual machine " + vm.name + " (" + step + ")" }
	if vm.extra[keyDeleting] == "" {
		done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(map[string]string{
			keyDeleting: "true"})})
		if s.isGone(ctx, vm, err) {
			return "", nil
		}
		if err != nil || !done {
			return waitingFor("marking"), err
		}
	}
	if !vm.isOff() {
		done, err := s.powerOff(ctx, vm)
		switch {
		case s.isGone(ctx, vm, err):
			return "", nil
		case provider.CodeOf(err) == provider.Aborted:
			return waitingFor("being changed by another operation"), nil
		case err != nil || !done:
			return waitingFor("switching off"), err
		}
	}
	o, err := s.read(ctx, "get virtual machine "+vm.name, vm.ref, "config.hardware.device", "config.files.vmPathName",
		extraProperty(keyDisks))
	if provider.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if changes := detachments(foreignDisks(o)); len(changes) > 0 {
		if done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{DeviceChange: changes}); err != nil || !done {
			return waitingFor("detaching disks of others"), err
		}
	}
	attempted := "destroy virtual machine " + vm.name
	answer, err := methods.Destroy_Task(ctx, s, &types.Destroy_Task{This: vm.ref})
	if err != nil {
		err = translate(ctx, err, attempted)
	} else {
		var done bool
		if done, err = s.await(ctx, attempted, answer.Returnval); err == nil && !done {
			return waitingFor("being destroyed"), nil
		}
	}
	switch {
	case s.isGone(ctx, vm, err):
		return "", nil
	case provider.CodeOf(err) == provider.Aborted:
		return waitingFor("being changed by another operation"), nil
	}
	return "", err
}

// isGone reports whether a virtual machine no longer exists, after a call failed. The object that the call did not find
// may be another one, such as a host, so isGone reads the virtual machine.
func (s *session) isGone(ctx context.Context, vm *virtualMachine, err error) bool {
	if !provider.IsNotFound(err) {
		return false
	}
	_, err = s.read(ctx, "get virtual machine "+vm.name, vm.ref, "name")
	return provider.IsNotFound(err)
}

// foreignDisks returns the disks that must not be destroyed with the virtual machine: volumes of pods, and all disks
// that were attached after the creation. A volume of the CSI driver has an ID of its own.
func foreignDisks(o object) []*types.VirtualDisk {
	own := strings.Split(textOfOption(o, keyDisks), ",")
	devices := valueOf[types.ArrayOfVirtualDevice](o, "config.hardware.device").VirtualDevice
	return slices.DeleteFunc(disksIn(devices), func(d *types.VirtualDisk) bool {
		return d.VDiskId == nil && slices.Contains(own, placeOf(d))
	})
}

func textOfOption(o object, key string) string {
	text, _ := valueOf[types.OptionValue](o, extraProperty(key)).Value.(string)
	return text
}

// detachments removes disks from a virtual machine and keeps their files.
func detachments(disks []*types.VirtualDisk) (changes []types.BaseVirtualDeviceConfigSpec) {
	for _, d := range disks {
		changes = append(changes, remove(d))
	}
	return changes
}

// reconfigure changes the configuration of a virtual machine, and reports whether the change is done.
func (s *session) reconfigure(ctx context.Context, vm *virtualMachine, spec types.VirtualMachineConfigSpec) (done bool,
	err error) {
	attempted := "change the configuration of virtual machine " + vm.name
	answer, err := methods.ReconfigVM_Task(ctx, s, &types.ReconfigVM_Task{This: vm.ref, Spec: spec})
	if err != nil {
		return false, translate(ctx, err, attempted)
	}
	return s.await(ctx, attempted, answer.Returnval)
}
