package driver

import (
	"cmp"
	"slices"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

// gardener translates the providerSpec of a MachineClass of machine.sapcloud.io.
// https://github.com/gardener/machine-controller-manager-provider-openstack
func (t *translation) gardener() {
	t.old.MarkRead("apiVersion", "kind")
	t.old.Object("metadata").MarkRead("creationTimestamp")
	s, old := &t.spec, t.description()
	s.Region, s.Flavor = old.RequiredString("region"), old.RequiredString("flavorName")
	s.AvailabilityZone, s.KeyPair = old.String("availabilityZone"), old.String("keyName")
	s.ServerGroup, s.ConfigDrive = old.String("serverGroupID"), old.Bool("useConfigDrive")
	s.SecurityGroups = old.Strings("securityGroups")
	t.addMetadata(old, "tags")
	if s.Image.ID = old.String("imageID"); s.Image.ID != "" {
		old.MarkRead("imageName")
	} else {
		s.Image.Name = old.RequiredString("imageName")
	}
	kind := old.String("rootDiskType")
	if size := int32Of(old, "rootDiskSize"); size > 0 {
		s.RootVolume = &machine.RootVolume{SizeGiB: size, Type: kind}
		if kind != "" {
			// Only in this case, the old system chooses the zone of the volume.
			s.RootVolume.AvailabilityZone = s.AvailabilityZone
		}
	}
	t.gardenerNetworks(old)
}

func (t *translation) gardenerNetworks(old *legacy.Object) {
	var pairs []machine.AddressPair
	for _, cidr := range append(old.Strings("podNetworkCIDRs"), old.String("podNetworkCidr")) {
		if pair := addressPair(cidr); cidr != "" && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	network, subnet := old.String("networkID"), old.String("subnetID")
	if network != "" {
		port := machine.Port{Network: network, AllowedAddressPairs: pairs}
		if subnet != "" {
			port.FixedAddresses = []machine.FixedAddress{{Subnet: subnet}}
		}
		t.spec.Ports = []machine.Port{port}
		old.MarkRead("networks")
		return
	}
	for _, n := range old.Objects("networks") {
		port := machine.Port{Network: cmp.Or(n.String("id"), n.String("name"))}
		n.MarkRead("name")
		if n.Bool("podNetwork") {
			port.AllowedAddressPairs = pairs
		}
		t.spec.Ports = append(t.spec.Ports, port)
	}
	if len(t.spec.Ports) == 0 {
		old.Report(provider.FindingBlocker, provider.FindingRequiredField, "networkID",
			"is required if there are no networks; set ports with an override")
	}
}
