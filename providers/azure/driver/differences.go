package driver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// differences compares a virtual machine with the class of its future Machine. It omits fields that a class can
// change in place, such as tags, and the network if not all interfaces are known.
func differences(vm *armcompute.VirtualMachine, region string, interfaces []*armnetwork.InterfacePropertiesFormat,
	complete bool, s *machine.Spec) []provider.Difference {
	zone := ""
	if len(vm.Zones) > 0 {
		zone = value(vm.Zones[0])
	}
	all := []provider.Difference{
		{Field: "location", Instance: region, Class: s.Location},
		{Field: "zone", Instance: zone, Class: s.Zone},
		{Field: "identity.systemAssigned", Instance: strconv.FormatBool(vm.Identity != nil &&
			strings.Contains(string(value(vm.Identity.Type)), string(armcompute.ResourceIdentityTypeSystemAssigned))),
			Class: strconv.FormatBool(s.Identity.SystemAssigned)},
		{Field: "identity.userAssignedIDs", Instance: shortIDs(identitiesOf(vm)), Class: shortIDs(s.Identity.UserAssignedIDs)},
	}
	if complete {
		var has []machine.NetworkInterface
		for _, n := range interfaces {
			has = append(has, interfaceOf(n))
		}
		all = append(all, networkDifferences(has, s.NetworkInterfaces)...)
	}
	if p := vm.Properties; p != nil {
		all = append(all, propertyDifferences(p, s)...)
	}
	for i := range all {
		// Azure ignores the case of names and IDs.
		if strings.EqualFold(all[i].Instance, all[i].Class) {
			all[i].Instance = all[i].Class
		}
	}
	return provider.Differing(all...)
}

func propertyDifferences(p *armcompute.VirtualMachineProperties, s *machine.Spec) []provider.Difference {
	set := func(r *armcompute.SubResource) []string {
		if r == nil || value(r.ID) == "" {
			return nil
		}
		return []string{*r.ID}
	}
	isSpot := value(p.Priority) == armcompute.VirtualMachinePriorityTypesSpot
	all := []provider.Difference{
		{Field: "spot", Instance: strconv.FormatBool(isSpot), Class: strconv.FormatBool(s.Spot != nil)},
		{Field: "availabilitySetID", Instance: shortIDs(set(p.AvailabilitySet)), Class: shortIDs([]string{s.AvailabilitySetID})},
		{Field: "scaleSetID", Instance: shortIDs(set(p.VirtualMachineScaleSet)), Class: shortIDs([]string{s.ScaleSetID})},
	}
	if p.HardwareProfile != nil {
		all = append(all, provider.Difference{Field: "vmSize", Instance: string(value(p.HardwareProfile.VMSize)),
			Class: s.VMSize})
	}
	storage := p.StorageProfile
	if storage == nil {
		return all
	}
	if storage.ImageReference != nil {
		all = append(all, provider.Difference{Field: "image", Instance: imageText(imageOf(storage.ImageReference)),
			Class: imageText(&s.Image)})
	}
	if os := storage.OSDisk; os != nil {
		if size := value(os.DiskSizeGB); size > 0 && s.OSDisk.SizeGiB > 0 {
			all = append(all, provider.Difference{Field: "osDisk.sizeGiB", Instance: strconv.Itoa(int(size)),
				Class: strconv.Itoa(int(s.OSDisk.SizeGiB))})
		}
		if os.ManagedDisk != nil && os.ManagedDisk.StorageAccountType != nil && s.OSDisk.StorageAccountType != "" {
			all = append(all, provider.Difference{Field: "osDisk.storageAccountType",
				Instance: string(*os.ManagedDisk.StorageAccountType), Class: s.OSDisk.StorageAccountType})
		}
	}
	var has, wants []string
	for _, data := range storage.DataDisks {
		// An attached disk is a volume of a pod or belongs to a user.
		if value(data.CreateOption) != armcompute.DiskCreateOptionTypesAttach {
			has = append(has, fmt.Sprintf("%d GiB at LUN %d", value(data.DiskSizeGB), value(data.Lun)))
		}
	}
	for _, data := range s.DataDisks {
		wants = append(wants, fmt.Sprintf("%d GiB at LUN %d", data.SizeGiB, value(data.LUN)))
	}
	return append(all, provider.Difference{Field: "dataDisks", Instance: sortedList(has), Class: sortedList(wants)})
}

func networkDifferences(has, wants []machine.NetworkInterface) (all []provider.Difference) {
	for _, field := range []struct {
		name string
		of   func(machine.NetworkInterface) []string
	}{
		{"subnetID", func(n machine.NetworkInterface) []string { return []string{n.SubnetID} }},
		{"securityGroupID", func(n machine.NetworkInterface) []string { return []string{n.SecurityGroupID} }},
		{"loadBalancerBackendPoolIDs", func(n machine.NetworkInterface) []string { return n.LoadBalancerBackendPoolIDs }},
	} {
		d := provider.Difference{Field: "networkInterfaces." + field.name}
		for text, list := range map[*string][]machine.NetworkInterface{&d.Instance: has, &d.Class: wants} {
			var ids []string
			for _, n := range list {
				ids = append(ids, field.of(n)...)
			}
			*text = shortIDs(ids)
		}
		all = append(all, d)
	}
	forwards := func(n machine.NetworkInterface) bool { return n.IPForwarding }
	return append(all, provider.Difference{Field: "networkInterfaces.ipForwarding",
		Instance: strconv.FormatBool(slices.ContainsFunc(has, forwards)),
		Class:    strconv.FormatBool(slices.ContainsFunc(wants, forwards))})
}

func identitiesOf(vm *armcompute.VirtualMachine) []string {
	if vm.Identity == nil {
		return nil
	}
	return slices.Collect(maps.Keys(vm.Identity.UserAssignedIdentities))
}

// imageText returns a text that identifies an image, without its plan.
func imageText(i *machine.Image) string {
	if m := i.Marketplace; m != nil {
		return strings.Join([]string{m.Publisher, m.Offer, m.SKU, m.Version}, ":")
	}
	return shortID(cmp.Or(i.GalleryImageID, i.CommunityGalleryImageID, i.SharedGalleryImageID))
}

// shortIDs returns a sorted list of resources without those that are empty.
func shortIDs(ids []string) string {
	var all []string
	for _, id := range ids {
		if id != "" {
			all = append(all, shortID(id))
		}
	}
	return sortedList(all)
}

// shortID returns the resource group and the names in a resource ID, such as network/nodes/workers for a subnet.
// Findings show only the beginning of a value, and the beginnings of complete IDs are the same.
func shortID(id string) string {
	parsed, err := arm.ParseResourceID(id)
	if err != nil || parsed.ResourceGroupName == "" {
		return id
	}
	text := parsed.Name
	group := arm.ResourceGroupResourceType.String()
	for at := parsed.Parent; at != nil && at.ResourceType.String() != group; at = at.Parent {
		text = at.Name + "/" + text
	}
	return strings.ToLower(parsed.ResourceGroupName + "/" + text)
}

func sortedList(all []string) string {
	slices.Sort(all)
	return cmp.Or(strings.Join(all, ", "), "none")
}
