package driver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// maxUserDataBytes is Azure's limit for custom data before its encoding.
// https://learn.microsoft.com/azure/virtual-machines/custom-data
const maxUserDataBytes = 65535

type vmRequest struct {
	spec         machine.Spec
	subscription string
	name         string
	// tags are Machinist's own tags, which every part has.
	tags     map[string]string
	version  string
	userData []byte
}

// specHash hashes the fields that cannot change in place.
func specHash(s machine.Spec) string {
	s.Tags, s.VMSize, s.Resize = nil, "", ""
	if s.Image.Plan != nil {
		plan := *s.Image.Plan
		plan.AcceptTerms = false
		s.Image.Plan = &plan
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // ParseSpec refuses numbers that JSON cannot represent.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}

func (o *vmRequest) partTags() map[string]*string {
	all := map[string]*string{}
	for _, tags := range []map[string]string{o.spec.Tags, o.tags} {
		for key, text := range tags {
			all[key] = ref(text)
		}
	}
	return all
}

func (o *vmRequest) machineTags() map[string]*string {
	all := o.partTags()
	all[tagSpec], all[tagParts] = ref(specHash(o.spec)), ref(scopeOf(&o.spec))
	if names := o.spec.TagNames(); names != "" {
		all[tagNames] = ref(names)
	}
	if o.version != "" {
		all[tagVersion] = ref(o.version)
	}
	return all
}

func (o *vmRequest) zones() []*string {
	if o.spec.Zone == "" {
		return nil
	}
	return []*string{ref(o.spec.Zone)}
}

func (o *vmRequest) publicIP() armnetwork.PublicIPAddress {
	return armnetwork.PublicIPAddress{
		Location: ref(o.spec.Location), Tags: o.partTags(), Zones: o.zones(),
		SKU: &armnetwork.PublicIPAddressSKU{Name: ref(armnetwork.PublicIPAddressSKUNameStandard)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{
			PublicIPAddressVersion:   ref(armnetwork.IPVersionIPv4),
			PublicIPAllocationMethod: ref(armnetwork.IPAllocationMethodStatic),
			DeleteOption:             ref(armnetwork.DeleteOptionsDelete),
		},
	}
}

func (o *vmRequest) networkInterface(i int, publicIPID string) armnetwork.Interface {
	n := o.spec.NetworkInterfaces[i]
	ip := &armnetwork.InterfaceIPConfigurationPropertiesFormat{
		Primary:                   ref(true),
		PrivateIPAddressVersion:   ref(armnetwork.IPVersionIPv4),
		PrivateIPAllocationMethod: ref(armnetwork.IPAllocationMethodDynamic),
		Subnet:                    &armnetwork.Subnet{ID: ref(n.SubnetID)},
	}
	if publicIPID != "" {
		ip.PublicIPAddress = &armnetwork.PublicIPAddress{
			ID:         ref(publicIPID),
			Properties: &armnetwork.PublicIPAddressPropertiesFormat{DeleteOption: ref(armnetwork.DeleteOptionsDelete)},
		}
	}
	for _, id := range n.ApplicationSecurityGroupIDs {
		ip.ApplicationSecurityGroups = append(ip.ApplicationSecurityGroups, &armnetwork.ApplicationSecurityGroup{ID: ref(id)})
	}
	for _, id := range n.LoadBalancerBackendPoolIDs {
		ip.LoadBalancerBackendAddressPools = append(ip.LoadBalancerBackendAddressPools,
			&armnetwork.BackendAddressPool{ID: ref(id)})
	}
	out := armnetwork.Interface{
		Location: ref(o.spec.Location), Tags: o.partTags(),
		Properties: &armnetwork.InterfacePropertiesFormat{
			EnableAcceleratedNetworking: ref(n.AcceleratedNetworking),
			EnableIPForwarding:          ref(n.IPForwarding),
			IPConfigurations:            []*armnetwork.InterfaceIPConfiguration{{Name: ref("ipv4"), Properties: ip}},
		},
	}
	if n.SecurityGroupID != "" {
		out.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: ref(n.SecurityGroupID)}
	}
	return out
}

func (o *vmRequest) virtualMachine(interfaceIDs []string) armcompute.VirtualMachine {
	s := &o.spec
	p := &armcompute.VirtualMachineProperties{
		HardwareProfile: &armcompute.HardwareProfile{VMSize: ref(armcompute.VirtualMachineSizeTypes(s.VMSize))},
		StorageProfile:  o.storage(),
		OSProfile: &armcompute.OSProfile{
			ComputerName:  ref(o.name),
			AdminUsername: ref(s.AdminUsername),
			CustomData:    orNil(base64.StdEncoding.EncodeToString(o.userData)),
			LinuxConfiguration: &armcompute.LinuxConfiguration{
				DisablePasswordAuthentication: ref(true),
				SSH: &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{
					Path: ref("/home/" + s.AdminUsername + "/.ssh/authorized_keys"), KeyData: ref(s.SSHPublicKey),
				}}},
			},
		},
		NetworkProfile: &armcompute.NetworkProfile{},
	}
	for i, id := range interfaceIDs {
		p.NetworkProfile.NetworkInterfaces = append(p.NetworkProfile.NetworkInterfaces, &armcompute.NetworkInterfaceReference{
			ID: ref(id),
			Properties: &armcompute.NetworkInterfaceReferenceProperties{
				Primary: ref(i == 0), DeleteOption: ref(armcompute.DeleteOptionsDelete),
			},
		})
	}
	for field, id := range map[**armcompute.SubResource]string{&p.AvailabilitySet: s.AvailabilitySetID,
		&p.VirtualMachineScaleSet: s.ScaleSetID} {
		if id != "" {
			*field = &armcompute.SubResource{ID: ref(id)}
		}
	}
	p.PlatformFaultDomain = s.FaultDomain
	if id := s.CapacityReservationGroupID; id != "" {
		group := &armcompute.SubResource{ID: ref(id)}
		p.CapacityReservation = &armcompute.CapacityReservationProfile{CapacityReservationGroup: group}
	}
	if s.Spot != nil {
		p.Priority = ref(armcompute.VirtualMachinePriorityTypesSpot)
		p.EvictionPolicy = ref(armcompute.VirtualMachineEvictionPolicyTypes(s.Spot.EvictionPolicy))
		p.BillingProfile = &armcompute.BillingProfile{MaxPrice: ref(-1.0)}
		if s.Spot.MaxPrice != nil {
			p.BillingProfile.MaxPrice = s.Spot.MaxPrice
		}
	}
	if s.EncryptionAtHost {
		p.SecurityProfile = &armcompute.SecurityProfile{EncryptionAtHost: ref(true)}
	}
	if b := s.BootDiagnostics; b != nil {
		p.DiagnosticsProfile = &armcompute.DiagnosticsProfile{BootDiagnostics: &armcompute.BootDiagnostics{Enabled: ref(true),
			StorageURI: orNil(b.StorageURI)}}
	}
	out := armcompute.VirtualMachine{Location: ref(s.Location), Tags: o.machineTags(), Zones: o.zones(),
		Identity: o.identity(), Properties: p}
	if plan := s.Image.Plan; plan != nil {
		out.Plan = &armcompute.Plan{Name: ref(plan.Name), Product: ref(plan.Product), Publisher: ref(plan.Publisher)}
	}
	return out
}

func (o *vmRequest) storage() *armcompute.StorageProfile {
	image, disk := o.spec.Image, o.spec.OSDisk
	out := &armcompute.StorageProfile{
		ImageReference: &armcompute.ImageReference{
			ID: orNil(image.GalleryImageID), CommunityGalleryImageID: orNil(image.CommunityGalleryImageID),
			SharedGalleryImageID: orNil(image.SharedGalleryImageID),
		},
		OSDisk: &armcompute.OSDisk{
			Name:         ref(osDiskName(o.name)),
			CreateOption: ref(armcompute.DiskCreateOptionTypesFromImage),
			DeleteOption: ref(armcompute.DiskDeleteOptionTypesDelete),
			OSType:       ref(armcompute.OperatingSystemTypesLinux),
			DiskSizeGB:   orNil(disk.SizeGiB),
			Caching:      orNil(armcompute.CachingTypes(disk.Caching)),
			ManagedDisk:  managedDisk(disk.StorageAccountType, disk.DiskEncryptionSetID),
		},
	}
	if m := image.Marketplace; m != nil {
		out.ImageReference.Publisher, out.ImageReference.Offer = ref(m.Publisher), ref(m.Offer)
		out.ImageReference.SKU, out.ImageReference.Version = ref(m.SKU), ref(m.Version)
	}
	if e := disk.Ephemeral; e != nil {
		out.OSDisk.DiffDiskSettings = &armcompute.DiffDiskSettings{
			Option: ref(armcompute.DiffDiskOptionsLocal), Placement: orNil(armcompute.DiffDiskPlacement(e.Placement)),
		}
		out.OSDisk.Caching = ref(armcompute.CachingTypesReadOnly)
	}
	for _, d := range o.spec.DataDisks {
		out.DataDisks = append(out.DataDisks, &armcompute.DataDisk{
			Name:         ref(dataDiskName(o.name, *d.LUN)),
			Lun:          d.LUN,
			CreateOption: ref(armcompute.DiskCreateOptionTypesEmpty),
			DeleteOption: ref(armcompute.DiskDeleteOptionTypesDelete),
			DiskSizeGB:   ref(d.SizeGiB),
			Caching:      orNil(armcompute.CachingTypes(d.Caching)),
			ManagedDisk:  managedDisk(d.StorageAccountType, d.DiskEncryptionSetID),
		})
	}
	return out
}

func managedDisk(kind, encryptionSetID string) *armcompute.ManagedDiskParameters {
	out := &armcompute.ManagedDiskParameters{StorageAccountType: orNil(armcompute.StorageAccountTypes(kind))}
	if encryptionSetID != "" {
		out.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: ref(encryptionSetID)}
	}
	return out
}

func (o *vmRequest) identity() *armcompute.VirtualMachineIdentity {
	wanted := o.spec.Identity
	if !wanted.SystemAssigned && len(wanted.UserAssignedIDs) == 0 {
		return nil
	}
	out := &armcompute.VirtualMachineIdentity{Type: ref(armcompute.ResourceIdentityTypeSystemAssigned)}
	if len(wanted.UserAssignedIDs) > 0 {
		out.Type = ref(armcompute.ResourceIdentityTypeUserAssigned)
		if wanted.SystemAssigned {
			out.Type = ref(armcompute.ResourceIdentityTypeSystemAssignedUserAssigned)
		}
		out.UserAssignedIdentities = map[string]*armcompute.UserAssignedIdentitiesValue{}
		for _, id := range wanted.UserAssignedIDs {
			out.UserAssignedIdentities[id] = &armcompute.UserAssignedIdentitiesValue{}
		}
	}
	return out
}

// ownTags adds the three tags of the provider contract, even if the request lacks them.
func (o owner) ownTags(given map[string]string) map[string]string {
	all := maps.Clone(given)
	if all == nil {
		all = map[string]string{}
	}
	all[provider.TagCluster], all[provider.TagMachineUID] = o.cluster, string(o.machine.UID)
	all[provider.TagMachine] = o.machine.Namespace + "/" + o.machine.Name
	return all
}
