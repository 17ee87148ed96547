package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/azure/machine"
)

var _ provider.Finder = (*Driver)(nil)

// Find implements provider.Finder. It returns the virtual machines in the resource group of the class, as List does.
// Azure's list does not contain the power state. So a stopped virtual machine counts as running, and only its Node
// shows that it is stopped.
func (d *Driver) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	vms, err := c.machinesIn(ctx, spec.ResourceGroup)
	if err != nil {
		return nil, err
	}
	// The list of interfaces comes last, so that it contains the interfaces of all listed virtual machines.
	interfaces, err := c.interfacesIn(ctx, spec.ResourceGroup)
	if err != nil {
		return nil, err
	}
	all := make([]provider.FoundInstance, 0, len(vms))
	for _, vm := range vms {
		in, err := c.convert(vm)
		if err != nil {
			return nil, err
		}
		own, complete := interfacesFrom(vm, interfaces)
		if in.State == provider.StateRunning {
			in.Addresses = privateAddresses(in.NodeName, own)
		}
		at, _ := c.locationOf(vm) // convert has already checked the ID.
		found := provider.FoundInstance{Instance: *in, Name: at.name, Metadata: map[string]string{},
			Networks: networksOf(own), Differences: differences(vm, in.Region, own, complete, &spec)}
		for key, text := range vm.Tags {
			found.Metadata[key] = value(text)
		}
		if system, key := legacy.SystemOf(slices.Collect(maps.Keys(vm.Tags))); system != "" {
			found.OtherSystem = fmt.Sprintf("%s (tag %.128s)", system, key)
		}
		if in.ClusterID == "" && !isMarked(vm.Tags) {
			found.NotAdoptable = "the virtual machine" + missingTag(in.ProviderID)
		}
		all = append(all, found)
	}
	return all, nil
}

// interfacesFrom returns the network interfaces of a virtual machine. complete is false if an interface is not among
// the given ones, for example because it is in another resource group.
func interfacesFrom(vm *armcompute.VirtualMachine, interfaces map[string]*armnetwork.Interface) (
	own []*armnetwork.InterfacePropertiesFormat, complete bool) {
	complete = true
	if vm.Properties == nil || vm.Properties.NetworkProfile == nil {
		return nil, complete
	}
	for _, reference := range vm.Properties.NetworkProfile.NetworkInterfaces {
		n := interfaces[strings.ToLower(value(reference.ID))]
		if n == nil || n.Properties == nil {
			complete = false
			continue
		}
		own = append(own, n.Properties)
	}
	return own, complete
}

// privateAddresses returns the host name and the private addresses. A Node always has a private address of its
// virtual machine, so the public addresses are not needed.
func privateAddresses(hostName string, own []*armnetwork.InterfacePropertiesFormat) []corev1.NodeAddress {
	all := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: hostName}}
	for _, n := range own {
		for _, ip := range n.IPConfigurations {
			if ip.Properties != nil && value(ip.Properties.PrivateIPAddress) != "" {
				all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: *ip.Properties.PrivateIPAddress})
			}
		}
	}
	return all
}

// networksOf returns the names and the resource IDs of the subnets and virtual networks of interfaces.
func networksOf(own []*armnetwork.InterfacePropertiesFormat) (all []string) {
	for _, n := range own {
		subnet, err := arm.ParseResourceID(interfaceOf(n).SubnetID)
		if err != nil {
			continue
		}
		for id := subnet; id != nil && strings.HasPrefix(id.ResourceType.Type, "virtualNetworks"); id = id.Parent {
			for _, name := range []string{id.String(), id.Name} {
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
	}
	return all
}
