package driver

import (
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/azure/machine"
)

// gardener translates the providerSpec of a MachineClass of machine.sapcloud.io.
// https://github.com/gardener/machine-controller-manager-provider-azure
func (t *translation) gardener() {
	s, old := &t.spec, t.old
	s.Location, s.ResourceGroup, s.Tags = old.RequiredString("location"), old.RequiredString("resourceGroup"), t.tags(old, "tags")
	p := old.Object("properties")
	s.VMSize = p.Object("hardwareProfile").RequiredString("vmSize")
	if zone := p.Int("zone"); zone != 0 {
		s.Zone = strconv.FormatInt(zone, 10)
	}
	if id := p.String("identityID"); id != "" {
		s.Identity.UserAssignedIDs = []string{id}
	}
	s.AvailabilitySetID = p.Object("availabilitySet").String("id")
	s.ScaleSetID = p.Object("virtualMachineScaleSet").String("id")
	if set := p.Object("machineSet"); p.HasContent("machineSet") {
		switch id := set.String("id"); set.String("kind") {
		case "availabilityset":
			s.AvailabilitySetID = id
		case "vmo":
			s.ScaleSetID = id
		default:
			set.Report(provider.FindingBlocker, provider.FindingInvalidField, "kind", "is neither availabilityset nor vmo")
		}
	}
	s.CapacityReservationGroupID = p.Object("capacityReservation").String("capacityReservationGroupID")
	if diagnostics := p.Object("diagnosticsProfile"); diagnostics.Bool("enabled") {
		s.BootDiagnostics = &machine.BootDiagnostics{StorageURI: diagnostics.String("storageURI")}
	} else {
		diagnostics.MarkRead("storageURI")
	}
	if p.HasContent("securityProfile") {
		p.Report(provider.FindingLoss, "SecurityProfile", "securityProfile", "new machines have no security profile")
	}
	t.gardenerStorage(p.Object("storageProfile"))
	t.gardenerLogin(p.Object("osProfile"))
	network, subnet := p.Object("networkProfile"), old.Object("subnetInfo")
	network.MarkRead("networkInterfaces") // The old system does not use this field.
	group := subnet.String("vnetResourceGroup")
	if group == "" {
		group = s.ResourceGroup
	}
	// The old system enables forwarding on all interfaces.
	s.NetworkInterfaces = []machine.NetworkInterface{{IPForwarding: true,
		AcceleratedNetworking: network.Bool("acceleratedNetworking"),
		SubnetID: t.id(group, "Microsoft.Network/virtualNetworks/subnets", subnet.RequiredString("vnetName"),
			subnet.RequiredString("subnetName"))}}
	if old.HasContent("cloudConfiguration") {
		old.Report(provider.FindingNote, "Cloud", "cloudConfiguration",
			"the flag --azure-cloud of the provider selects the Azure cloud")
	}
}

func (t *translation) gardenerStorage(storage *legacy.Object) {
	image := storage.Object("imageReference")
	t.spec.Image = machine.Image{GalleryImageID: image.String("id"),
		CommunityGalleryImageID: image.String("communityGalleryImageID"),
		SharedGalleryImageID:    image.String("sharedGalleryImageID")}
	image.MarkRead("skipMarketplaceAgreement")
	if urn := image.String("urn"); urn != "" {
		parts := strings.Split(urn, ":")
		if len(parts) != 4 {
			image.Report(provider.FindingBlocker, provider.FindingInvalidField, "urn", "is not publisher:offer:sku:version")
		} else {
			t.spec.Image.Marketplace = &machine.MarketplaceImage{Publisher: parts[0], Offer: parts[1], SKU: parts[2],
				Version: parts[3]}
			if !t.hasFacts { // Otherwise an instance shows whether the image has a plan.
				image.Report(provider.FindingLoss, "MarketplacePlan", "urn", "the old system looks up whether the image needs "+
					"a purchase plan, and no instance shows the plan; if the image needs one, set image.plan with an override, "+
					"because Azure creates no machine without it")
			}
		}
	}
	disk := storage.Object("osDisk")
	disk.MarkRead("name", "createOption") // This provider sets the name, and the disk is always created from the image.
	t.spec.OSDisk = machine.OSDisk{SizeGiB: int32Of(disk, "diskSizeGB"), Caching: disk.String("caching"),
		StorageAccountType: disk.Object("managedDisk").String("storageAccountType")}
	if managed := disk.Object("managedDisk"); managed.HasContent("securityProfile") {
		managed.Report(provider.FindingLoss, "ConfidentialDisk", "securityProfile", "new disks are not confidential")
	}
	for _, data := range storage.Objects("dataDisks") {
		data.MarkRead("name")
		lun := int32Of(data, "lun")
		t.spec.DataDisks = append(t.spec.DataDisks, machine.DataDisk{LUN: &lun, SizeGiB: int32Of(data, "diskSizeGB"),
			StorageAccountType: data.String("storageAccountType"), Caching: data.String("caching")})
		if data.HasContent("imageRef") {
			data.Report(provider.FindingLoss, "DataDiskImage", "imageRef", "new data disks are empty")
		}
	}
}

func (t *translation) gardenerLogin(login *legacy.Object) {
	// The user data is in the Secret, and the old system does not use the password.
	login.MarkRead("computerName", "adminPassword", "customData")
	t.spec.AdminUsername = login.String("adminUsername")
	linux := login.Object("linuxConfiguration")
	linux.MarkRead("disablePasswordAuthentication")
	keys := linux.Object("ssh").Object("publicKeys")
	keys.MarkRead("path")
	t.spec.SSHPublicKey = keys.String("keyData")
}
