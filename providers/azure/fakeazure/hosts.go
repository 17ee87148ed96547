package fakeazure

import (
	"net/netip"
	"strings"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/host"
)

func (a *Azure) boot(r *resource) {
	r.vm.power = "running"
	r.vm.boots++
	r.touch()
	if a.options.Hosts == nil {
		return
	}
	s := size{cpus: 2, memoryGB: 8, arch: "x64"}
	for _, offered := range sizes() {
		if strings.EqualFold(offered.name, text(r.body, "properties", "hardwareProfile", "vmSize")) {
			s = offered
		}
	}
	arch := "amd64"
	if s.arch == "Arm64" {
		arch = "arm64"
	}
	zone := ""
	if zones, _ := r.body["zones"].([]any); len(zones) > 0 {
		zone = a.options.Location + "-" + zones[0].(string)
	}
	r.vm.hosted = true
	a.options.Hosts.Start(host.Spec{
		ID: strings.ToLower(r.id),
		// The Kubernetes cloud provider sets this ID on the Node. https://cloud-provider-azure.sigs.k8s.io/
		ProviderID: "azure:///subscriptions/" + strings.ToLower(a.options.Subscription) + "/resourceGroups/" +
			strings.ToLower(r.group) + "/providers/" + string(kindVM) + "/" + r.name,
		Hostname: strings.ToLower(text(r.body, "properties", "osProfile", "computerName")),
		Region:   a.options.Location, Zone: zone,
		Type: simcloud.InstanceType{
			Name: s.name, CPUs: s.cpus, MemoryMiB: int64(s.memoryGB) << 10, EphemeralStorageGiB: 30, GPUs: s.gpus,
			Architecture: arch,
		},
		Image:    simcloud.Image{Name: "azure"},
		Address:  a.addressOf(r),
		PodNet:   netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(r.sequence>>8&0x3f), byte(r.sequence), 0}), 24),
		UserData: r.vm.customData,
		Boots:    r.vm.boots,
		Disk:     r.vm.disk,
	}, reporter{azure: a, vm: r.vm})
}

func (a *Azure) halt(r *resource, power string) {
	r.vm.power = power
	r.touch()
	if r.vm.hosted {
		a.options.Hosts.Stop(strings.ToLower(r.id))
		r.vm.hosted = false
	}
}

func (a *Azure) addressOf(r *resource) netip.Addr {
	for _, reference := range list(r.body, "properties", "networkProfile", "networkInterfaces") {
		nic := a.find(text(reference, "id"))
		if nic == nil {
			continue
		}
		for _, ip := range list(nic.body, "properties", "ipConfigurations") {
			if address, err := netip.ParseAddr(text(ip, "properties", "privateIPAddress")); err == nil {
				return address
			}
		}
	}
	return netip.AddrFrom4([4]byte{10, 20, 0, 4})
}

// reporter stores the disk and the last console lines of a simulated machine.
type reporter struct {
	azure *Azure
	vm    *machine
}

const consoleLines = 50

func (r reporter) Save(d host.Disk) error {
	r.azure.mu.Lock()
	defer r.azure.mu.Unlock()
	r.vm.disk = d
	return nil
}

func (r reporter) Report(simcloud.HostStatus) {}

func (r reporter) Print(line string) {
	r.azure.mu.Lock()
	defer r.azure.mu.Unlock()
	r.vm.console = append(r.vm.console, line)
	r.vm.console = r.vm.console[max(0, len(r.vm.console)-consoleLines):]
}
