package driver

import (
	"strconv"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

// clusterAPI translates an OpenStackMachine together with its OpenStackCluster.
// https://github.com/kubernetes-sigs/cluster-api-provider-openstack
func (t *translation) clusterAPI() {
	s, old, cluster := &t.spec, t.old.Object("machine"), t.old.Object("cluster")
	t.old.MarkRead("clusterName")
	// These fields affect the Cluster and its control plane.
	cluster.MarkRead("apiServerFixedIP", "apiServerFloatingIP", "apiServerLoadBalancer", "apiServerPort", "bastion",
		"controlPlaneAvailabilityZones", "controlPlaneEndpoint", "controlPlaneOmitAvailabilityZone",
		"disableAPIServerFloatingIP", "disableExternalNetwork", "disablePortSecurity", "externalNetwork",
		"externalRouterIPs", "managedSubnets", "networkMTU", "router")
	t.old.Object("identity").MarkRead("namespaceSelector", "secretRef")
	s.AvailabilityZone = t.old.String("failureDomain")
	s.Flavor = old.String("flavor")
	if id := old.String("flavorID"); id != "" {
		s.Flavor = id
	}
	if s.Flavor == "" {
		old.RequiredString("flavor")
	}
	s.KeyPair, s.ConfigDrive = old.String("sshKeyName"), old.Bool("configDrive")
	for _, from := range []*legacy.Object{cluster, old} {
		if region := from.Object("identityRef").String("region"); region != "" {
			s.Region = region
		}
		from.Object("identityRef").MarkRead("name", "cloudName", "kind", "type")
		t.addTags(from)
	}
	for _, entry := range old.Objects("serverMetadata") {
		t.addMetadatum(entry.RequiredString("key"), entry.String("value"), entry.Path("key"))
	}
	t.clusterAPIImage(old.Object("image"))
	t.clusterAPIVolumes(old)
	if group := old.Object("serverGroup"); old.HasContent("serverGroup") {
		s.ServerGroup, _ = parameter(group)
		if s.ServerGroup == "" {
			old.Report(provider.FindingBlocker, provider.FindingRequiredField, "serverGroup",
				"names no server group; set serverGroup with an override")
		}
	}
	t.clusterAPIPorts(old, cluster)
	if old.HasContent("floatingIPPoolRef") {
		old.Report(provider.FindingBlocker, "FloatingIP", "floatingIPPoolRef",
			"the old system releases the floating IP address when its objects are deleted; remove the address first")
	}
	if old.HasContent("schedulerHintAdditionalProperties") {
		old.Report(provider.FindingLoss, "SchedulerHints", "schedulerHintAdditionalProperties",
			"new servers have no scheduler hints besides the server group")
	}
}

// parameter returns the ID or the name in a reference of Cluster API. exact is false if the reference has other
// conditions, too.
func parameter(o *legacy.Object) (ref string, exact bool) {
	id, filter := o.String("id"), o.Object("filter")
	name := filter.String("name")
	exact = true
	for _, condition := range []string{"description", "projectID", "tags", "tagsAny", "notTags", "notTagsAny", "ipVersion",
		"gatewayIP", "cidr", "ipv6AddressMode", "ipv6RAMode"} {
		exact = exact && !filter.HasContent(condition)
		filter.MarkRead(condition)
	}
	if id != "" {
		return id, true
	}
	return name, exact
}

func (t *translation) clusterAPIImage(old *legacy.Object) {
	filter := old.Object("filter")
	t.spec.Image = machine.Image{ID: old.String("id")}
	if name, tags := filter.String("name"), filter.Strings("tags"); t.spec.Image.ID == "" {
		t.spec.Image.Name = name
		if len(tags) > 0 {
			t.spec.Image.Tags = tags
		}
	}
	if old.HasContent("imageRef") {
		old.Report(provider.FindingBlocker, provider.FindingRequiredField, "imageRef",
			"the provider cannot read the object that names the image; set image with an override")
	} else if t.spec.Image.ID == "" && t.spec.Image.Name == "" && len(t.spec.Image.Tags) == 0 {
		old.RequiredString("id")
	}
}

func (t *translation) clusterAPIVolumes(old *legacy.Object) {
	if root := old.Object("rootVolume"); old.HasContent("rootVolume") {
		t.spec.RootVolume = &machine.RootVolume{SizeGiB: int32Of(root, "sizeGiB"), Type: root.String("type"),
			AvailabilityZone: t.clusterAPIZone(root)}
	}
	for _, device := range old.Objects("additionalBlockDevices") {
		storage := device.Object("storage")
		volume := storage.Object("volume")
		v := machine.Volume{Name: device.RequiredString("name"), SizeGiB: int32Of(device, "sizeGiB"),
			Type: volume.String("type"), AvailabilityZone: t.clusterAPIZone(volume)}
		if kind := storage.String("type"); kind != "Volume" {
			storage.Report(provider.FindingLoss, "LocalDisk", "type", "new servers have no local disk besides their root disk")
			continue
		}
		t.spec.Volumes = append(t.spec.Volumes, v)
	}
}

// clusterAPIZone returns the availability zone of a volume.
func (t *translation) clusterAPIZone(volume *legacy.Object) string {
	zone := volume.Object("availabilityZone")
	name, from := zone.String("name"), zone.String("from")
	if from == "Machine" {
		return t.spec.AvailabilityZone
	}
	return name
}

// clusterAPIPorts reads the ports. Without ports, a server has one port in the network of the cluster.
func (t *translation) clusterAPIPorts(old, cluster *legacy.Object) {
	status := t.old.Object("clusterStatus")
	network, group := status.Object("network"), status.Object("workerSecurityGroup")
	network.MarkRead("name", "tags")
	group.MarkRead("name", "rules")
	clusterNetwork := network.String("id")
	ref, _ := parameter(cluster.Object("network"))
	if clusterNetwork == "" {
		clusterNetwork = ref
	}
	for _, subnet := range cluster.Objects("subnets") {
		_, _ = parameter(subnet)
	}
	var subnets []machine.FixedAddress
	for _, subnet := range network.Objects("subnets") {
		subnet.MarkRead("name", "cidr", "tags")
		subnets = append(subnets, machine.FixedAddress{Subnet: subnet.String("id")})
	}
	t.spec.SecurityGroups = t.clusterAPIGroups(old, 0)
	managed := group.String("id")
	if cluster.Has("managedSecurityGroups") && managed != "" {
		t.spec.SecurityGroups = append(t.spec.SecurityGroups, managed)
	} else {
		managed = ""
	}
	cluster.MarkRead("managedSecurityGroups")
	ports := old.Objects("ports")
	trunk := old.Bool("trunk")
	for i, port := range ports {
		t.clusterAPIPort(port, i, clusterNetwork, managed, subnets, trunk)
	}
	if len(ports) == 0 {
		p := machine.Port{Network: clusterNetwork, FixedAddresses: subnets, Trunk: trunk}
		if known := t.factsOf("0"); p.Network == "" && known != nil {
			p.Network = known.Network
		}
		if p.Network == "" {
			old.Report(provider.FindingBlocker, provider.FindingRequiredField, "ports",
				"is required, because neither the cluster nor an instance shows the network; set ports with an override")
		}
		t.spec.Ports = []machine.Port{p}
	}
}

// clusterAPIGroups reads security groups. If a filter does not name a group, the groups are those of an instance's
// port.
func (t *translation) clusterAPIGroups(old *legacy.Object, port int) (all []string) {
	unnamed := false
	for _, group := range old.Objects("securityGroups") {
		ref, exact := parameter(group)
		unnamed = unnamed || ref == "" || !exact
		all = append(all, ref)
	}
	if !unnamed {
		return all
	}
	if known := t.factsOf(strconv.Itoa(port)); known != nil && len(known.SecurityGroups) > 0 {
		return known.SecurityGroups
	}
	old.Report(provider.FindingBlocker, provider.FindingRequiredField, "securityGroups",
		"a filter does not name a security group, and no existing instance shows the groups; set securityGroups with an "+
			"override")
	return nil
}

func (t *translation) clusterAPIPort(old *legacy.Object, index int, clusterNetwork, managed string,
	subnets []machine.FixedAddress, trunk bool) {
	known := t.factsOf(strconv.Itoa(index))
	if suffix := old.String("nameSuffix"); suffix != "" {
		known = t.factsOf(suffix)
	}
	network, exact := parameter(old.Object("network"))
	p := machine.Port{Network: network, VNICType: old.String("vnicType"), Trunk: trunk}
	if own := boolOf(old, "trunk"); own != nil {
		p.Trunk = *own
	}
	switch {
	case !old.HasContent("network"):
		p.Network = clusterNetwork
	case known != nil && (!exact || network == ""):
		p.Network = known.Network
	}
	if p.Network == "" {
		old.Report(provider.FindingBlocker, provider.FindingRequiredField, "network",
			"is required, because no existing instance shows the network; set ports with an override")
	}
	addresses := old.Objects("fixedIPs")
	subnetOf := func(address *legacy.Object) (string, bool) { return parameter(address.Object("subnet")) }
	unnamed := unnamedSubnets(known, addresses, subnetOf)
	for _, address := range addresses {
		subnet, exact := subnetOf(address)
		if len(unnamed) > 0 && (!exact || subnet == "") {
			subnet, unnamed = unnamed[0], unnamed[1:]
		}
		p.FixedAddresses = append(p.FixedAddresses, machine.FixedAddress{Subnet: subnet,
			Address: address.String("ipAddress")})
	}
	if len(p.FixedAddresses) == 0 && !old.HasContent("network") {
		p.FixedAddresses = subnets
	}
	if disabled := boolOf(old, "disablePortSecurity"); disabled != nil {
		enabled := !*disabled
		p.PortSecurity = &enabled
	}
	if groups := t.clusterAPIGroups(old, index); len(groups) > 0 {
		if managed != "" {
			groups = append(groups, managed)
		}
		p.SecurityGroups = groups
	}
	for _, pair := range old.Objects("allowedAddressPairs") {
		a := addressPair(pair.String("ipAddress"))
		a.MACAddress = pair.String("macAddress")
		p.AllowedAddressPairs = append(p.AllowedAddressPairs, a)
	}
	old.MarkRead("hostID")
	up := boolOf(old, "adminStateUp")
	for name, lost := range map[string]bool{
		"description": old.HasContent("description"), "macAddress": old.HasContent("macAddress"),
		"qosPolicy": old.HasContent("qosPolicy"), "valueSpecs": old.HasContent("valueSpecs"),
		"propagateUplinkStatus": old.Has("propagateUplinkStatus"), "adminStateUp": up != nil && !*up,
	} {
		if lost {
			old.Report(provider.FindingLoss, "PortSetting", name, "new ports do not have this setting")
		}
		old.MarkRead(name)
	}
	if old.HasContent("tags") {
		old.Report(provider.FindingLoss, "PortTags", "tags", "new ports have no tags")
	}
	if old.HasContent("profile") {
		old.Report(provider.FindingLoss, "PortProfile", "profile", "new ports have no binding profile")
	}
	t.spec.Ports = append(t.spec.Ports, p)
}
