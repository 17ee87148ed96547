package driver

import (
	"cmp"
	"strconv"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

// openShift translates providerSpec.value, an OpenstackProviderSpec.
// https://github.com/openshift/api
func (t *translation) openShift() {
	s, old := &t.spec, t.old
	// The caller has already resolved the references. The old system does not use the last two fields for servers.
	old.MarkRead("apiVersion", "kind", "sshUserName", "primarySubnet")
	old.Object("metadata").MarkRead("creationTimestamp")
	for _, secret := range []string{"userDataSecret", "cloudsSecret"} {
		old.Object(secret).MarkRead("name", "namespace")
	}
	s.Flavor, s.KeyPair = old.RequiredString("flavor"), old.String("keyName")
	s.AvailabilityZone = old.String("availabilityZone")
	s.ServerGroup = cmp.Or(old.String("serverGroupID"), old.String("serverGroupName"))
	old.MarkRead("serverGroupName")
	s.ConfigDrive = old.Bool("configDrive")
	t.addMetadata(old, "serverMetadata")
	t.addTags(old)
	t.openShiftDisks()
	t.openShiftGroups()
	networks, ports := old.Objects("networks"), old.Objects("ports")
	for i, network := range networks {
		t.openShiftNetwork(network, old.Path("networks["+strconv.Itoa(i)+"]"))
	}
	for _, port := range ports {
		t.openShiftPort(port)
	}
	if len(networks)+len(ports) == 0 {
		if len(t.facts.Ports) == 1 {
			s.Ports = []machine.Port{{Network: t.facts.Ports[0].Network}}
		} else {
			old.Report(provider.FindingBlocker, provider.FindingRequiredField, "networks",
				"is required, because no existing instance shows the only network; set ports with an override")
		}
	}
	if old.HasContent("floatingIP") {
		old.Report(provider.FindingLoss, "FloatingIP", "floatingIP", "new servers have no floating IP address")
	}
}

func (t *translation) openShiftDisks() {
	s, old := &t.spec, t.old
	ref := old.String("image")
	if root := old.Object("rootVolume"); old.HasContent("rootVolume") {
		root.MarkRead("sourceType", "deviceType") // The old system ignores these fields.
		ref = cmp.Or(ref, root.String("sourceUUID"))
		root.MarkRead("sourceUUID")
		s.RootVolume = &machine.RootVolume{SizeGiB: int32Of(root, "diskSize"), Type: root.String("volumeType"),
			AvailabilityZone: cmp.Or(root.String("availabilityZone"), s.AvailabilityZone)}
	}
	if ref == "" {
		old.RequiredString("image")
	}
	s.Image = image(ref)
	for _, device := range old.Objects("additionalBlockDevices") {
		storage := device.Object("storage")
		volume := storage.Object("volume")
		v := machine.Volume{Name: device.RequiredString("name"), SizeGiB: int32Of(device, "sizeGiB"),
			Type: volume.String("type"), AvailabilityZone: cmp.Or(volume.String("availabilityZone"), s.AvailabilityZone)}
		if kind := storage.String("type"); kind != "Volume" {
			storage.Report(provider.FindingLoss, "LocalDisk", "type", "new servers have no local disk besides their root disk")
			continue
		}
		s.Volumes = append(s.Volumes, v)
	}
}

// openShiftGroups reads the security groups. If a filter does not name a group, the groups are those of an instance.
func (t *translation) openShiftGroups() {
	unnamed := false
	for _, group := range t.old.Objects("securityGroups") {
		ref, _ := reference(group)
		unnamed = unnamed || ref == ""
		t.spec.SecurityGroups = append(t.spec.SecurityGroups, ref)
	}
	if !unnamed {
		return
	}
	if len(t.facts.Ports) > 0 && len(t.facts.Ports[0].SecurityGroups) > 0 {
		t.spec.SecurityGroups = t.facts.Ports[0].SecurityGroups
		return
	}
	t.spec.SecurityGroups = nil
	t.old.Report(provider.FindingBlocker, provider.FindingRequiredField, "securityGroups",
		"a filter does not name a security group, and no existing instance shows the groups; set securityGroups with an "+
			"override")
}

// openShiftNetwork adds the port of a network. Without a network, the old system creates one port for each subnet.
func (t *translation) openShiftNetwork(n *legacy.Object, path string) {
	n.MarkRead("fixedIp") // The old system ignores this field.
	network, exact := reference(n)
	port := machine.Port{VNICType: n.String("vnicType"), Trunk: t.old.Bool("trunk"),
		PortSecurity: boolOf(n, "portSecurity")}
	if n.HasContent("portTags") {
		n.Report(provider.FindingLoss, "PortTags", "portTags", "new ports have no tags")
	}
	if n.HasContent("profile") {
		n.Report(provider.FindingLoss, "PortProfile", "profile", "new ports have no binding profile")
	}
	subnets := n.Objects("subnets")
	var ports [][]*legacy.Object
	if network == "" && exact {
		for _, subnet := range subnets {
			ports = append(ports, []*legacy.Object{subnet})
		}
	} else {
		ports = append(ports, subnets)
	}
	noPairs := n.Bool("noAllowedAddressPairs")
	for _, subnets := range ports {
		known := t.factsOf(strconv.Itoa(len(t.spec.Ports)))
		p := port
		p.Network = network
		if known != nil && (!exact || network == "") {
			p.Network = known.Network
		}
		if p.Network == "" {
			n.Report(provider.FindingBlocker, provider.FindingRequiredField, "uuid",
				"is required, because no existing instance shows the network; set ports with an override")
		}
		unnamed := unnamedSubnets(known, subnets, reference)
		for _, subnet := range subnets {
			p.FixedAddresses = append(p.FixedAddresses, machine.FixedAddress{Subnet: openShiftSubnet(subnet, &unnamed)})
		}
		switch {
		case noPairs || unfiltered(p):
		case known != nil:
			p.AllowedAddressPairs = known.AddressPairs
		default:
			t.old.Add(provider.Finding{Level: provider.FindingLoss, Code: "AddressPairs", Path: path, Message: "no existing " +
				"instance shows the virtual addresses of the cluster, which the old system adds to the allowed address pairs " +
				"of the port; set ports with an override"})
		}
		t.spec.Ports = append(t.spec.Ports, p)
	}
}

// openShiftSubnet removes the first unnamed subnet from the list if the description does not name the subnet.
func openShiftSubnet(subnet *legacy.Object, unnamed *[]string) string {
	subnet.MarkRead("portSecurity") // The old system ignores this field.
	if subnet.HasContent("portTags") {
		subnet.Report(provider.FindingLoss, "PortTags", "portTags", "new ports have no tags")
	}
	ref, exact := reference(subnet)
	if all := *unnamed; len(all) > 0 && (!exact || ref == "") {
		ref, *unnamed = all[0], all[1:]
	}
	if ref == "" {
		subnet.Report(provider.FindingBlocker, provider.FindingRequiredField, "uuid",
			"is required, because no existing instance shows the subnet; set ports with an override")
	}
	return ref
}

func (t *translation) openShiftPort(old *legacy.Object) {
	p := machine.Port{Network: old.RequiredString("networkID"), VNICType: old.String("vnicType"),
		PortSecurity: boolOf(old, "portSecurity"), Trunk: t.old.Bool("trunk")}
	if trunk := boolOf(old, "trunk"); trunk != nil {
		p.Trunk = *trunk
	}
	for _, address := range old.Objects("fixedIPs") {
		p.FixedAddresses = append(p.FixedAddresses, machine.FixedAddress{Subnet: address.String("subnetID"),
			Address: address.String("ipAddress")})
	}
	for _, pair := range old.Objects("allowedAddressPairs") {
		a := addressPair(pair.String("ipAddress"))
		a.MACAddress = pair.String("macAddress")
		p.AllowedAddressPairs = append(p.AllowedAddressPairs, a)
	}
	if groups := old.Strings("securityGroups"); len(groups) > 0 {
		p.SecurityGroups = groups
	}
	old.MarkRead("nameSuffix", "hostID") // The provider chooses the name, and the old system ignores the host.
	up := boolOf(old, "adminStateUp")
	for name, lost := range map[string]bool{
		"description": old.HasContent("description"), "macAddress": old.HasContent("macAddress"),
		"tenantID": old.HasContent("tenantID"), "projectID": old.HasContent("projectID"), "adminStateUp": up != nil && !*up,
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

// factsOf returns what is known about the port whose name ends with a suffix. If an instance has only one port, this
// is the first port of the description.
func (t *translation) factsOf(suffix string) *portFacts {
	for i := range t.facts.Ports {
		if t.facts.Ports[i].Suffix == suffix || len(t.facts.Ports) == 1 && suffix == "0" {
			return &t.facts.Ports[i]
		}
	}
	return nil
}

// reference returns the ID or the name of an object. exact is false if the description has other conditions, too.
func reference(o *legacy.Object) (ref string, exact bool) {
	filter := o.Object("filter")
	id := cmp.Or(o.String("uuid"), filter.String("id"))
	name := cmp.Or(o.String("name"), filter.String("name"))
	// The old system ignores these fields.
	filter.MarkRead("name", "status", "adminStateUp", "shared", "marker", "limit", "sortKey", "sortDir", "enableDhcp",
		"networkId")
	exact = true
	for _, condition := range []string{"description", "tenantId", "projectId", "tags", "tagsAny", "notTags",
		"notTagsAny", "ipVersion", "gateway_ip", "cidr", "ipv6AddressMode", "ipv6RaMode", "subnetpoolId"} {
		exact = exact && !filter.HasContent(condition)
		filter.MarkRead(condition)
	}
	if id != "" {
		return id, true
	}
	return name, exact
}

// boolOf returns nil if the field is missing.
func boolOf(o *legacy.Object, name string) *bool {
	if !o.Has(name) {
		return nil
	}
	value := o.Bool(name)
	return &value
}
