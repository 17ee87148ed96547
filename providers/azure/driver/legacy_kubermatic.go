package driver

import (
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// kubermatic translates the cloudProviderSpec of machine.k8s.io, machines.k8s.io and cluster.k8s.io.
// https://github.com/kubermatic/machine-controller
func (t *translation) kubermatic() {
	s, old := &t.spec, t.old
	s.Location, s.ResourceGroup, s.VMSize = old.RequiredString("location"), old.RequiredString("resourceGroup"), old.RequiredString("vmSize")
	s.Tags = t.tags(old, "tags")
	// This provider always uses Standard public addresses.
	old.MarkRead("loadBalancerSku")
	zones := old.Strings("zones")
	if len(zones) > 0 {
		s.Zone = zones[0]
	}
	if len(zones) > 1 {
		old.Report(provider.FindingNote, "FirstZone", "zones", "the old system uses only the first zone")
	}
	if keys := old.Strings("sshPublicKeys"); len(keys) > 0 {
		s.SSHPublicKey = keys[0]
		if len(keys) > 1 {
			old.Report(provider.FindingLoss, "MoreSSHKeys", "sshPublicKeys", "new machines get only the first SSH key")
		}
	}
	t.kubermaticImage()
	s.OSDisk = machine.OSDisk{SizeGiB: int32Of(old, "osDiskSize"), StorageAccountType: old.String("osDiskSKU")}
	if size := int32Of(old, "dataDiskSize"); size > 0 {
		lun := int32(0)
		s.DataDisks = []machine.DataDisk{{LUN: &lun, SizeGiB: size, StorageAccountType: old.String("dataDiskSKU")}}
	} else {
		old.MarkRead("dataDiskSKU")
	}
	group := old.String("vnetResourceGroup")
	if group == "" {
		group = s.ResourceGroup
	}
	s.NetworkInterfaces = []machine.NetworkInterface{{
		SubnetID: t.id(group, "Microsoft.Network/virtualNetworks/subnets", old.RequiredString("vnetName"),
			old.RequiredString("subnetName")),
		PublicIP:              old.Bool("assignPublicIP"),
		AcceleratedNetworking: old.Bool("enableAcceleratedNetworking"),
		SecurityGroupID:       t.id(s.ResourceGroup, "Microsoft.Network/networkSecurityGroups", old.String("securityGroupName")),
	}}
	if set, assigned := old.String("availabilitySet"), old.Bool("assignAvailabilitySet"); set != "" &&
		(assigned || !old.Has("assignAvailabilitySet")) {
		s.AvailabilitySetID = t.id(s.ResourceGroup, "Microsoft.Compute/availabilitySets", set)
	}
	if old.Bool("enableBootDiagnostics") {
		s.BootDiagnostics = &machine.BootDiagnostics{}
	}
	if old.String("routeTableName") != "" {
		old.Report(provider.FindingLoss, "RouteTable", "routeTableName",
			"only the Kubernetes cloud provider adds the routes of nodes to a route table")
	}
	if old.HasContent("securityProfile") {
		old.Report(provider.FindingLoss, "SecurityProfile", "securityProfile", "new machines have no security profile")
	}
}

func (t *translation) kubermaticImage() {
	old := t.old
	t.spec.Image.GalleryImageID = old.String("imageID")
	if reference := old.Object("imageReference"); old.HasContent("imageReference") {
		m := &machine.MarketplaceImage{Publisher: reference.String("publisher"), Offer: reference.String("offer"),
			SKU: reference.String("sku"), Version: reference.String("version")}
		if t.spec.Image.GalleryImageID == "" {
			t.spec.Image.Marketplace = m
		}
	}
	if plan := old.Object("imagePlan"); old.HasContent("imagePlan") {
		t.spec.Image.Plan = &machine.Plan{Name: plan.String("name"), Product: plan.String("product"),
			Publisher: plan.String("publisher")}
	}
	if t.spec.Image.GalleryImageID == "" && t.spec.Image.Marketplace == nil && t.facts.Image == nil {
		old.Report(provider.FindingBlocker, provider.FindingRequiredField, "imageReference",
			"the old system chooses the image, and no existing instance shows the image; set image with an override")
	}
}
