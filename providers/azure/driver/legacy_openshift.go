package driver

import (
	"encoding/base64"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/azure/machine"
)

// openShift translates providerSpec.value, an AzureMachineProviderSpec.
// https://github.com/openshift/api
func (t *translation) openShift() {
	s, old := &t.spec, t.old
	// The caller has already resolved the references.
	old.MarkRead("apiVersion", "kind")
	old.Object("metadata").MarkRead("creationTimestamp")
	for _, secret := range []string{"userDataSecret", "credentialsSecret"} {
		old.Object(secret).MarkRead("name", "namespace")
	}
	s.Location, s.ResourceGroup, s.VMSize = old.RequiredString("location"), old.RequiredString("resourceGroup"), old.RequiredString("vmSize")
	s.Zone, s.Tags, s.AdminUsername = old.String("zone"), t.tags(old, "tags"), "capi"
	if key := old.String("sshPublicKey"); key != "" {
		decoded, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			old.Report(provider.FindingBlocker, provider.FindingInvalidField, "sshPublicKey", "is not in base64")
		}
		s.SSHPublicKey = string(decoded)
	}
	t.openShiftImage(old.Object("image"))
	t.openShiftDisks()
	t.openShiftNetwork()
	s.AvailabilitySetID = t.id(s.ResourceGroup, "Microsoft.Compute/availabilitySets", old.String("availabilitySet"))
	if s.AvailabilitySetID == "" {
		s.AvailabilitySetID = t.facts.AvailabilitySetID // The old system creates a set for regions without zones.
	}
	if identity := old.String("managedIdentity"); identity != "" {
		s.Identity.UserAssignedIDs = []string{t.id(s.ResourceGroup, "Microsoft.ManagedIdentity/userAssignedIdentities",
			identity)}
	}
	s.CapacityReservationGroupID = old.String("capacityReservationGroupID")
	if old.Has("spotVMOptions") {
		s.Spot = &machine.Spot{MaxPrice: old.Object("spotVMOptions").Number("maxPrice"), EvictionPolicy: "Delete"}
	}
	security := old.Object("securityProfile")
	s.EncryptionAtHost = security.Bool("encryptionAtHost")
	if security.HasContent("settings") {
		security.Report(provider.FindingLoss, "SecurityProfile", "settings", "new machines have no security profile")
	}
	if old.String("ultraSSDCapability") == "Enabled" {
		old.Report(provider.FindingLoss, "UltraSSD", "ultraSSDCapability",
			"new machines support no ultra disks except those of the class")
	}
	boot := old.Object("diagnostics").Object("boot")
	if boot.String("storageAccountType") != "" {
		s.BootDiagnostics = &machine.BootDiagnostics{StorageURI: boot.Object("customerManaged").String("storageAccountURI")}
	}
}

func (t *translation) openShiftImage(image *legacy.Object) {
	id, kind := image.String("resourceID"), image.String("type")
	m := machine.MarketplaceImage{Publisher: image.String("publisher"), Offer: image.String("offer"),
		SKU: image.String("sku"), Version: image.String("version")}
	switch {
	case id != "" && !strings.HasPrefix(strings.ToLower(id), "/subscriptions/"):
		t.spec.Image.GalleryImageID = "/subscriptions/" + string(t.credentials[keySubscription]) + "/" +
			strings.TrimPrefix(id, "/")
	case id != "":
		t.spec.Image.GalleryImageID = id
	case m != machine.MarketplaceImage{}:
		t.spec.Image.Marketplace = &m
	}
	if kind == "MarketplaceWithPlan" {
		t.spec.Image.Plan = &machine.Plan{Name: m.SKU, Product: m.Offer, Publisher: m.Publisher}
	}
}

func (t *translation) openShiftDisks() {
	disk := t.old.Object("osDisk")
	managed := disk.Object("managedDisk")
	if system := disk.String("osType"); system != "" && system != "Linux" {
		disk.Report(provider.FindingBlocker, provider.FindingInvalidField, "osType", "is not Linux")
	}
	t.spec.OSDisk = machine.OSDisk{SizeGiB: int32Of(disk, "diskSizeGB"), Caching: disk.String("cachingType"),
		StorageAccountType:  managed.String("storageAccountType"),
		DiskEncryptionSetID: managed.Object("diskEncryptionSet").String("id")}
	if managed.HasContent("securityProfile") {
		managed.Report(provider.FindingLoss, "ConfidentialDisk", "securityProfile", "new disks are not confidential")
	}
	if disk.Object("diskSettings").String("ephemeralStorageLocation") == "Local" {
		// Azure offers no choice of caching and storage type for an ephemeral disk.
		t.spec.OSDisk.Ephemeral, t.spec.OSDisk.Caching, t.spec.OSDisk.StorageAccountType = &machine.Ephemeral{}, "", ""
	}
	for _, data := range t.old.Objects("dataDisks") {
		data.MarkRead("nameSuffix")
		lun, managed := int32Of(data, "lun"), data.Object("managedDisk")
		t.spec.DataDisks = append(t.spec.DataDisks, machine.DataDisk{LUN: &lun, SizeGiB: int32Of(data, "diskSizeGB"),
			Caching: data.String("cachingType"), StorageAccountType: managed.String("storageAccountType"),
			DiskEncryptionSetID: managed.Object("diskEncryptionSet").String("id")})
		if data.String("deletionPolicy") == "Detach" {
			data.Report(provider.FindingLoss, "DetachedDataDisk", "deletionPolicy",
				"Azure deletes data disks together with their machine")
		}
	}
}

func (t *translation) openShiftNetwork() {
	old := t.old
	group := old.String("networkResourceGroup")
	if group == "" {
		group = t.spec.ResourceGroup
	}
	n := machine.NetworkInterface{PublicIP: old.Bool("publicIP"), AcceleratedNetworking: old.Bool("acceleratedNetworking"),
		SubnetID:        t.id(group, "Microsoft.Network/virtualNetworks/subnets", old.RequiredString("vnet"), old.RequiredString("subnet")),
		SecurityGroupID: t.id(group, "Microsoft.Network/networkSecurityGroups", old.String("securityGroup"))}
	for _, name := range old.Strings("applicationSecurityGroups") {
		n.ApplicationSecurityGroupIDs = append(n.ApplicationSecurityGroupIDs,
			t.id(group, "Microsoft.Network/applicationSecurityGroups", name))
	}
	for _, field := range []string{"publicLoadBalancer", "internalLoadBalancer"} {
		if balancer := old.String(field); balancer != "" {
			n.LoadBalancerBackendPoolIDs = append(n.LoadBalancerBackendPoolIDs, t.pools(field, group, balancer)...)
		}
	}
	if old.HasContent("natRule") {
		old.Report(provider.FindingLoss, "NATRule", "natRule", "new machines have no rule for inbound NAT")
	}
	t.spec.NetworkInterfaces = []machine.NetworkInterface{n}
}

// pools returns the backend pools that an instance uses, because the description names only the load balancer.
func (t *translation) pools(field, group, balancer string) (found []string) {
	for _, n := range t.facts.Interfaces {
		for _, id := range n.LoadBalancerBackendPoolIDs {
			if strings.Contains(strings.ToLower(id), "/loadbalancers/"+strings.ToLower(balancer)+"/") {
				found = append(found, id)
			}
		}
	}
	if len(found) == 0 {
		t.old.Report(provider.FindingNote, "AssumedPool", field,
			"no instance shows the backend pool; the provider uses the pool with the name of the load balancer")
		found = []string{t.id(group, "Microsoft.Network/loadBalancers/backendAddressPools", balancer, balancer)}
	}
	return found
}
