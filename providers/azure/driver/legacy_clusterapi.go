package driver

import (
	"encoding/base64"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/azure/machine"
)

// clusterAPI translates an AzureMachine together with its AzureCluster.
// https://github.com/kubernetes-sigs/cluster-api-provider-azure
func (t *translation) clusterAPI() {
	s, old, cluster := &t.spec, t.old.Object("machine"), t.old.Object("cluster")
	t.old.MarkRead("clusterName")
	t.old.Object("clusterStatus").MarkRead("network")
	t.clusterAPIIdentity()
	// These fields affect the Cluster and its control plane.
	cluster.MarkRead("bastionSpec", "cloudProviderConfigOverrides", "controlPlaneEnabled", "controlPlaneEndpoint",
		"failureDomains", "identityRef")
	old.MarkRead("roleAssignmentName", "systemAssignedIdentityRole", "disableVMBootstrapExtension")
	s.Location, s.ResourceGroup = cluster.RequiredString("location"), cluster.RequiredString("resourceGroup")
	s.VMSize, s.AdminUsername = old.RequiredString("vmSize"), "capi"
	if s.Zone = t.old.String("failureDomain"); s.Zone == "" {
		s.Zone = old.String("failureDomain")
	}
	old.MarkRead("failureDomain")
	if s.Zone == "" {
		s.AvailabilitySetID = t.facts.AvailabilitySetID // The old system creates a set for regions without zones.
	}
	t.clusterAPITags(old, cluster)
	if key := old.String("sshPublicKey"); key != "" {
		decoded, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			old.Report(provider.FindingBlocker, provider.FindingInvalidField, "sshPublicKey", "is not in base64")
		}
		s.SSHPublicKey = string(decoded)
	}
	t.clusterAPIImage(old.Object("image"))
	t.clusterAPIDisks(old)
	t.clusterAPINetwork(old, cluster.Object("networkSpec"))
	switch identity := old.String("identity"); identity {
	case "", "None":
		old.MarkRead("userAssignedIdentities")
	case "SystemAssigned", "UserAssigned":
		s.Identity.SystemAssigned = identity == "SystemAssigned"
		for _, one := range old.Objects("userAssignedIdentities") {
			s.Identity.UserAssignedIDs = append(s.Identity.UserAssignedIDs,
				strings.TrimPrefix(one.RequiredString("providerID"), "azure://"))
		}
	default:
		old.Report(provider.FindingBlocker, provider.FindingInvalidField, "identity", "is unknown")
	}
	s.CapacityReservationGroupID = old.String("capacityReservationGroupID")
	if old.Has("spotVMOptions") {
		spot := old.Object("spotVMOptions")
		s.Spot = &machine.Spot{MaxPrice: spot.Number("maxPrice"), EvictionPolicy: spot.String("evictionPolicy")}
	}
	t.clusterAPISecurity(old)
	boot := old.Object("diagnostics").Object("boot")
	if kind := boot.String("storageAccountType"); kind != "" && kind != "Disabled" {
		s.BootDiagnostics = &machine.BootDiagnostics{StorageURI: boot.Object("userManaged").String("storageAccountURI")}
	}
	if old.HasContent("vmExtensions") {
		old.Report(provider.FindingLoss, "VMExtensions", "vmExtensions", "new machines have no extensions")
	}
	old.MarkRead("disableExtensionOperations")
}

func (t *translation) clusterAPIIdentity() {
	identity, cluster := t.old.Object("identity"), t.old.Object("cluster")
	identity.MarkRead("allowedNamespaces", "clientSecret", "resourceID", "certPath", "type", "tenantID", "clientID",
		"userAssignedIdentityCredentialsCloudType", "userAssignedIdentityCredentialsPath")
	if environment := cluster.String("azureEnvironment"); environment != "" && environment != "AzurePublicCloud" {
		cluster.Report(provider.FindingNote, "Cloud", "azureEnvironment",
			"the flag --azure-cloud of the provider selects the Azure cloud")
	}
	if kind := identity.String("type"); kind == "ServicePrincipalCertificate" || kind == "UserAssignedIdentityCredential" {
		identity.Report(provider.FindingLoss, "Certificate", "type",
			"the provider signs in with a client secret or its workload identity, not with the certificate of the old system")
	}
	cluster.Report(provider.FindingNote, "ResourceGroup", "resourceGroup",
		"if the old system created the resource group, it deletes the group with all machines when the Cluster is deleted")
}

// clusterAPITags combines the tags of the cluster and of the machine.
func (t *translation) clusterAPITags(old, cluster *legacy.Object) {
	all := t.tags(cluster, "additionalTags")
	for key, text := range t.tags(old, "additionalTags") {
		if all == nil {
			all = map[string]string{}
		}
		all[key] = text
	}
	t.spec.Tags = all
}

func (t *translation) clusterAPIImage(image *legacy.Object) {
	t.spec.Image.GalleryImageID = image.String("id")
	if image.HasContent("marketplace") {
		m := image.Object("marketplace")
		t.spec.Image.Marketplace = &machine.MarketplaceImage{Publisher: m.RequiredString("publisher"),
			Offer: m.RequiredString("offer"), SKU: m.RequiredString("sku"), Version: m.RequiredString("version")}
		if m.Bool("thirdPartyImage") {
			marketplace := t.spec.Image.Marketplace
			t.spec.Image.Plan = &machine.Plan{Name: marketplace.SKU, Product: marketplace.Offer,
				Publisher: marketplace.Publisher}
		}
	}
	for _, field := range []string{"computeGallery", "sharedGallery"} {
		if !image.HasContent(field) {
			continue
		}
		gallery := image.Object(field)
		group, subscription := gallery.String("resourceGroup"), gallery.String("subscriptionID")
		path := "/images/" + gallery.RequiredString("name") + "/versions/" + gallery.RequiredString("version")
		if group == "" {
			t.spec.Image.CommunityGalleryImageID = "/CommunityGalleries/" + gallery.RequiredString("gallery") +
				strings.NewReplacer("/images/", "/Images/", "/versions/", "/Versions/").Replace(path)
		} else {
			if subscription == "" {
				subscription = string(t.credentials[keySubscription])
			}
			t.spec.Image.GalleryImageID = "/subscriptions/" + subscription + "/resourceGroups/" + group +
				"/providers/Microsoft.Compute/galleries/" + gallery.RequiredString("gallery") + path
		}
		plan := gallery
		if field == "computeGallery" {
			plan = gallery.Object("plan")
		}
		if p := (machine.Plan{Name: plan.String("sku"), Product: plan.String("offer"),
			Publisher: plan.String("publisher")}); p != (machine.Plan{}) {
			t.spec.Image.Plan = &p
		}
	}
}

func (t *translation) clusterAPIDisks(old *legacy.Object) {
	disk := old.Object("osDisk")
	if system := disk.String("osType"); system != "" && system != "Linux" {
		disk.Report(provider.FindingBlocker, provider.FindingInvalidField, "osType", "is not Linux")
	}
	t.spec.OSDisk = machine.OSDisk{SizeGiB: int32Of(disk, "diskSizeGB"), Caching: disk.String("cachingType")}
	t.spec.OSDisk.StorageAccountType, t.spec.OSDisk.DiskEncryptionSetID = clusterAPIDisk(disk.Object("managedDisk"))
	if ephemeral := disk.Object("diffDiskSettings"); ephemeral.String("option") == "Local" {
		// Azure offers no choice of caching and storage type for an ephemeral disk.
		t.spec.OSDisk.Ephemeral = &machine.Ephemeral{Placement: ephemeral.String("placement")}
		t.spec.OSDisk.Caching, t.spec.OSDisk.StorageAccountType = "", ""
	}
	for i, data := range old.Objects("dataDisks") {
		data.MarkRead("nameSuffix")
		lun := int32(min(i, 63)) //nolint:gosec // The limit ensures the range.
		if data.Has("lun") {
			lun = int32Of(data, "lun")
		}
		d := machine.DataDisk{LUN: &lun, SizeGiB: int32Of(data, "diskSizeGB"), Caching: data.String("cachingType")}
		d.StorageAccountType, d.DiskEncryptionSetID = clusterAPIDisk(data.Object("managedDisk"))
		t.spec.DataDisks = append(t.spec.DataDisks, d)
	}
}

func clusterAPIDisk(managed *legacy.Object) (kind, encryption string) {
	if managed.HasContent("securityProfile") {
		managed.Report(provider.FindingLoss, "ConfidentialDisk", "securityProfile", "new disks are not confidential")
	}
	return managed.String("storageAccountType"), managed.Object("diskEncryptionSet").String("id")
}

func (t *translation) clusterAPISecurity(old *legacy.Object) {
	security := old.Object("securityProfile")
	t.spec.EncryptionAtHost = security.Bool("encryptionAtHost")
	for _, field := range []string{"securityType", "uefiSettings"} {
		if security.HasContent(field) {
			security.Report(provider.FindingLoss, "SecurityProfile", field, "new machines have no security profile")
		}
	}
	if capabilities := old.Object("additionalCapabilities"); capabilities.Bool("ultraSSDEnabled") {
		capabilities.Report(provider.FindingLoss, "UltraSSD", "ultraSSDEnabled",
			"new machines support no ultra disks except those of the class")
	}
}

// clusterAPINetwork reads the interfaces. Without interfaces, a machine is in the first subnet for nodes.
func (t *translation) clusterAPINetwork(old, network *legacy.Object) {
	network.MarkRead("additionalAPIServerLBPorts", "apiServerLB", "controlPlaneOutboundLB", "privateDNSZone",
		"privateDNSZoneName", "privateDNSZoneResourceGroup")
	vnet := network.Object("vnet")
	vnet.MarkRead("cidrBlocks", "peerings", "tags", "id")
	group := vnet.String("resourceGroup")
	if group == "" {
		group = t.spec.ResourceGroup
	}
	name, forNodes := vnet.RequiredString("name"), ""
	for _, subnet := range network.Objects("subnets") {
		subnet.MarkRead("cidrBlocks", "id", "natGateway", "privateEndpoints", "routeTable", "securityGroup",
			"serviceEndpoints")
		if role := subnet.String("role"); forNodes == "" && (role == "node" || role == "cluster") {
			forNodes = subnet.String("name")
		}
		subnet.MarkRead("name")
	}
	if old.HasContent("dnsServers") {
		old.Report(provider.FindingLoss, "DNSServers", "dnsServers", "new machines use the DNS servers of their network")
	}
	interfaces := old.Objects("networkInterfaces")
	add := func(subnet string, accelerated bool) {
		if subnet == "" {
			subnet = forNodes
		}
		if subnet == "" {
			network.Report(provider.FindingBlocker, provider.FindingRequiredField, "subnets", "has no subnet for nodes")
		}
		t.spec.NetworkInterfaces = append(t.spec.NetworkInterfaces, machine.NetworkInterface{
			SubnetID:     t.id(group, "Microsoft.Network/virtualNetworks/subnets", name, subnet),
			IPForwarding: old.Bool("enableIPForwarding"), AcceleratedNetworking: accelerated})
	}
	if len(interfaces) == 0 {
		add(old.String("subnetName"), t.accelerated(old))
	}
	for _, one := range interfaces {
		if one.Int("privateIPConfigs") > 1 {
			one.Report(provider.FindingLoss, "PrivateIPs", "privateIPConfigs", "a new interface has one private address")
		}
		add(one.String("subnetName"), t.accelerated(one))
	}
	old.MarkRead("subnetName", "acceleratedNetworking")
	first := &t.spec.NetworkInterfaces[0]
	first.PublicIP = old.Bool("allocatePublicIP")
	t.clusterAPIPool(network, first)
}

// accelerated returns acceleratedNetworking. If the field is missing, the old system decides by the size of the
// machine, so an instance shows the value.
func (t *translation) accelerated(o *legacy.Object) bool {
	if o.Has("acceleratedNetworking") {
		return o.Bool("acceleratedNetworking")
	}
	return len(t.facts.Interfaces) > 0 && t.facts.Interfaces[0].AcceleratedNetworking
}

// clusterAPIPool adds the backend pool through which nodes reach the Internet.
func (t *translation) clusterAPIPool(network *legacy.Object, n *machine.NetworkInterface) {
	balancer := network.Object("nodeOutboundLB")
	balancer.MarkRead("frontendIPs", "frontendIPsCount", "idleTimeoutInMinutes", "sku", "type", "id")
	name, pool := balancer.String("name"), balancer.Object("backendPool").String("name")
	if len(t.facts.Interfaces) > 0 {
		n.LoadBalancerBackendPoolIDs = slices.Clone(t.facts.Interfaces[0].LoadBalancerBackendPoolIDs)
		return
	}
	if name == "" {
		return
	}
	if pool == "" {
		pool = name + "-outboundBackendPool"
	}
	network.Report(provider.FindingNote, "AssumedPool", "nodeOutboundLB",
		"no instance shows the backend pool; the provider uses the pool of the outbound load balancer")
	n.LoadBalancerBackendPoolIDs = []string{t.id(t.spec.ResourceGroup,
		"Microsoft.Network/loadBalancers/backendAddressPools", name, pool)}
}
