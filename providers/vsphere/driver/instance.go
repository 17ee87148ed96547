package driver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	vim "github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

// virtualMachine is what the driver reads of a virtual machine.
type virtualMachine struct {
	ref   vim.ManagedObjectReference
	name  string
	bios  string
	uuid  string
	power vim.VirtualMachinePowerState
	// connected is false if vCenter does not reach the host. The power state may then be outdated.
	connected bool
	created   time.Time
	cpus      int32
	memoryMiB int32
	// extra contains the keys of extraKeys that have a value.
	extra map[string]string
	ips   []string
}

// vmProperties lists the properties of a virtualMachine. vCenter returns single keys of the extra configuration,
// because the configuration as a whole contains the user data.
func vmProperties() []string {
	all := []string{"name", "config.uuid", "config.instanceUuid", "config.createDate", "config.hardware.numCPU",
		"config.hardware.memoryMB", "runtime.powerState", "runtime.connectionState", "guest.net"}
	for _, key := range extraKeys() {
		all = append(all, extraProperty(key))
	}
	return all
}

func extraProperty(key string) string { return fmt.Sprintf("config.extraConfig[%q]", key) }

// vmOf returns nil for a virtual machine without a configuration: its creation has not ended.
func vmOf(o object) *virtualMachine {
	vm := &virtualMachine{ref: o.ref, name: textOf(o, "name"), bios: strings.ToLower(textOf(o, "config.uuid")),
		uuid:      strings.ToLower(textOf(o, "config.instanceUuid")),
		power:     valueOf[vim.VirtualMachinePowerState](o, "runtime.powerState"),
		created:   valueOf[time.Time](o, "config.createDate"),
		cpus:      valueOf[int32](o, "config.hardware.numCPU"),
		memoryMiB: valueOf[int32](o, "config.hardware.memoryMB"),
		extra:     map[string]string{},
	}
	state := valueOf[vim.VirtualMachineConnectionState](o, "runtime.connectionState")
	vm.connected = state == vim.VirtualMachineConnectionStateConnected
	if !uuidFormat.MatchString(vm.bios) || !uuidFormat.MatchString(vm.uuid) {
		return nil
	}
	for _, key := range extraKeys() {
		if value, ok := valueOf[vim.OptionValue](o, extraProperty(key)).Value.(string); ok && value != "" {
			vm.extra[key] = value
		}
	}
	for _, nic := range valueOf[vim.ArrayOfGuestNicInfo](o, "guest.net").GuestNicInfo {
		vm.ips = append(vm.ips, nic.IpAddress...)
	}
	return vm
}

// isTagged reports whether the tags belong to this virtual machine, and not to one of which it is a copy.
func (vm *virtualMachine) isTagged() bool { return strings.EqualFold(vm.extra[keyInstance], vm.uuid) }

func (vm *virtualMachine) isOff() bool { return vm.power == vim.VirtualMachinePowerStatePoweredOff }

func (s *session) convert(vm *virtualMachine) *provider.Instance {
	in := &provider.Instance{
		ProviderID: providerID(vm.bios), Scope: scopeOf(s.vcenter), NodeName: nodeName(vm.name),
		Type: instanceType(vm.cpus, int64(vm.memoryMiB)), LaunchTime: vm.created,
		GuestAddresses: guestAddresses(vm.ips),
	}
	if in.NodeName != "" {
		in.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: in.NodeName}}
	}
	if vm.isTagged() {
		in.ClusterID, in.MachineUID, in.MachineKey = vm.extra[keyCluster], types.UID(vm.extra[keyUID]), vm.extra[keyMachine]
		in.Region, in.Zone = vm.extra[keyRegion], vm.extra[keyZone]
	}
	switch {
	case vm.isTagged() && vm.extra[keyDeleting] != "":
		in.State = provider.StateTerminating
	case !vm.connected:
		// The power state may be outdated. Only the Node shows whether the virtual machine works.
		in.State, in.StateMessage = provider.StateRunning, "vCenter does not reach the host of the virtual machine"
	case vm.power == vim.VirtualMachinePowerStatePoweredOn:
		in.State = provider.StateRunning
	default:
		in.State, in.StateMessage = provider.StateStopped, string(vm.power)
	}
	return in
}

// convertNew is convert for a virtual machine that may never have run. Such a virtual machine is off, and the driver
// has not recorded that it was on.
func (s *session) convertNew(ctx context.Context, vm *virtualMachine) (*provider.Instance, error) {
	in := s.convert(vm)
	if in.State != provider.StateStopped || vm.extra[keyNew] == "" || !vm.isTagged() {
		return in, nil
	}
	own := owner{cluster: in.ClusterID, machine: provider.Machine{UID: in.MachineUID}}
	own.machine.Namespace, own.machine.Name, _ = strings.Cut(in.MachineKey, "/")
	tasks, err := s.cloneTasks(ctx, own)
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		if t.name != vm.name {
			continue
		}
		if t.isRunning() {
			in.State, in.StateMessage, in.CreateHandle = provider.StatePending, "the clone has not been switched on yet",
				t.ref.Value
			return in, nil
		}
		if t.fault != nil {
			code, why := classify(t.fault)
			in.State, in.StateCode, in.StateMessage = provider.StateFailed, code, "the clone was not switched on: "+why
			if ran, err := s.hasRun(ctx, vm); err != nil || !ran {
				return in, err
			}
			return s.convertAgain(ctx, vm)
		}
		break
	}
	// vCenter keeps events for 30 days by default. An older virtual machine without events may have run.
	if time.Since(vm.created) > maxEventAge {
		return in, nil
	}
	switch ran, err := s.hasRun(ctx, vm); {
	case err != nil:
		return nil, err
	case ran:
		return s.convertAgain(ctx, vm)
	}
	in.State, in.StateMessage = provider.StateFailed, "the clone was never switched on"
	return in, nil
}

// convertAgain reads a virtual machine again, because its clone may have switched it on after it was read.
func (s *session) convertAgain(ctx context.Context, vm *virtualMachine) (*provider.Instance, error) {
	current, err := s.byUUID(ctx, vm.uuid, true)
	switch {
	case err != nil:
		return nil, err
	case current == nil:
		return nil, provider.Errorf(provider.NotFound, "virtual machine %s does not exist", providerID(vm.bios))
	}
	return s.convert(current), nil
}

const maxEventAge = 7 * 24 * time.Hour

// pendingInstance describes a virtual machine whose clone is running.
func (s *session) pendingInstance(own owner, t *cloneTask) *provider.Instance {
	bios, _ := uuids(own.cluster, t.name)
	return &provider.Instance{
		ProviderID: providerID(bios), State: provider.StatePending, StateMessage: "vCenter clones the template",
		NodeName: nodeName(t.name), Scope: scopeOf(s.vcenter), CreateHandle: t.ref.Value, LaunchTime: t.since,
		ClusterID: own.cluster, MachineUID: own.machine.UID, MachineKey: own.machine.Namespace + "/" + own.machine.Name,
	}
}

// nodeName returns the name under which the kubelet registers: the name of the virtual machine, if a host can have it.
func nodeName(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

func instanceType(cpus int32, memoryMiB int64) string {
	if cpus == 0 || memoryMiB == 0 {
		return ""
	}
	return fmt.Sprintf("cpu-%d.memory-%dmib", cpus, memoryMiB)
}

// guestAddresses returns the addresses that VMware Tools report. A guest can report any address.
func guestAddresses(ips []string) (all []corev1.NodeAddress) {
	seen := map[netip.Addr]bool{}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.IsLinkLocalUnicast() || ip.IsLoopback() || ip.IsUnspecified() || seen[ip] {
			continue
		}
		seen[ip] = true
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return all
}
