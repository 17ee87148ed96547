package fakevsphere

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
)

// Hosts runs the guests of virtual machines. The methods of Hosts must not block or call back.
type Hosts interface {
	Start(host.Spec, host.Reporter)
	Stop(id string)
}

// guests starts and stops a guest when the power state of its virtual machine changes.
type guests struct {
	vsphere *VSphere
	hosts   Hosts

	mu      sync.Mutex
	running map[types.ManagedObjectReference]*guest
	count   int
}

// guest is what remains of a guest while its virtual machine is off.
type guest struct {
	number, boots int
	disk          host.Disk
	mu            *sync.Mutex
}

// Save implements host.Reporter.
func (g *guest) Save(d host.Disk) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disk = d
	return nil
}

// Report implements host.Reporter.
func (*guest) Report(simcloud.HostStatus) {}

// Print implements host.Reporter.
func (*guest) Print(string) {}

// Reference implements simulator.RegisterObject.
func (*guests) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Guests", Value: "guests"}
}

// PutObject implements simulator.RegisterObject.
func (*guests) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject implements simulator.RegisterObject.
func (g *guests) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, found := g.running[ref]; found {
		g.hosts.Stop(ref.Value)
		delete(g.running, ref)
	}
}

// UpdateObject implements simulator.RegisterObject. The caller holds the lock of the virtual machine.
func (g *guests) UpdateObject(_ *simulator.Context, obj mo.Reference, changes []types.PropertyChange) {
	vm, ok := obj.(*mo.VirtualMachine)
	if !ok {
		return
	}
	for _, c := range changes {
		if c.Name != "runtime.powerState" {
			continue
		}
		if c.Val == types.VirtualMachinePowerStatePoweredOn {
			g.start(vm)
		} else {
			g.hosts.Stop(vm.Self.Value)
		}
	}
}

func (g *guests) start(vm *mo.VirtualMachine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.running[vm.Self]
	if one == nil {
		g.count++
		one = &guest{number: g.count, mu: &g.mu}
		g.running[vm.Self] = one
	}
	one.boots++
	high, low := byte(one.number>>8), byte(one.number)
	address := netip.AddrFrom4([4]byte{10, 30, high, low})
	variables := map[string]string{}
	for _, o := range vm.Config.ExtraConfig {
		variables[o.GetOptionValue().Key] = fmt.Sprint(o.GetOptionValue().Value)
	}
	g.hosts.Start(host.Spec{
		ID: vm.Self.Value, ProviderID: "vsphere://" + strings.ToLower(vm.Config.Uuid), Hostname: vm.Name,
		Region: variables["machinist.region"], Zone: variables["machinist.zone"],
		Type: simcloud.InstanceType{Name: "vsphere-vm", CPUs: int(vm.Config.Hardware.NumCPU),
			MemoryMiB: int64(vm.Config.Hardware.MemoryMB), EphemeralStorageGiB: templateDiskGiB, Architecture: "amd64"},
		Image: simcloud.Image{Name: templateName}, Address: address,
		PodNet:   netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 | high&0x3f, low, 0}), 24),
		UserData: decode(variables["guestinfo.userdata"]), Boots: one.boots, Disk: one.disk,
	}, one)
	go g.vsphere.reportAddress(vm.Self, address)
}

// decode returns the user data in a variable of the guest, or nil.
func decode(encoded string) []byte {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	return data
}

// UserData returns the user data that the guest of the virtual machine with a BIOS UUID gets, or nil.
func (v *VSphere) UserData(biosUUID string) []byte {
	extra := v.Extra(biosUUID)
	return decode(cmp.Or(extra["guestinfo.userdata"], extra["guestinfo.ignition.config.data"]))
}

func (v *VSphere) reportAddress(ref types.ManagedObjectReference, address netip.Addr) {
	v.machines(func(vm *simulator.VirtualMachine) {
		if vm.Self == ref {
			v.setAddress(vm, address.String())
		}
	})
}

func (v *VSphere) setAddress(vm *simulator.VirtualMachine, address string) {
	v.model.Service.Context.Update(vm, []types.PropertyChange{
		{Name: "guest.net", Val: []types.GuestNicInfo{{IpAddress: []string{address}, Connected: true}}},
		{Name: "guest.ipAddress", Val: address}})
}
