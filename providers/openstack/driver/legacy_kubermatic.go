package driver

import (
	"cmp"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// kubermaticGroup is the security group of servers whose description names none.
const kubermaticGroup = "kubernetes-v1"

// kubermatic translates the cloudProviderSpec of machine.k8s.io, machines.k8s.io and cluster.k8s.io.
// https://github.com/kubermatic/machine-controller
func (t *translation) kubermatic() {
	s, old := &t.spec, t.old
	s.Region, s.AvailabilityZone = old.String("region"), old.String("availabilityZone")
	s.Flavor, s.Image = old.RequiredString("flavor"), image(old.RequiredString("image"))
	s.ServerGroup = cmp.Or(old.String("serverGroup"), old.String("serverGroupID"))
	s.ConfigDrive = old.Bool("configDrive")
	t.addMetadata(old, "tags")
	if s.SecurityGroups = old.Strings("securityGroups"); len(s.SecurityGroups) == 0 {
		s.SecurityGroups = []string{kubermaticGroup}
	}
	kind := old.String("rootDiskVolumeType")
	if size := int32Of(old, "rootDiskSizeGB"); size > 0 {
		s.RootVolume = &machine.RootVolume{SizeGiB: size, Type: kind}
	}
	network := old.String("network")
	if network == "" && len(t.facts.Ports) == 1 {
		network = t.facts.Ports[0].Network
	}
	if network == "" {
		old.Report(provider.FindingBlocker, provider.FindingRequiredField, "network",
			"the old system chooses the network, and no existing instance shows the network; set ports with an override")
	} else {
		s.Ports = []machine.Port{{Network: network}}
	}
	if old.String("subnet") != "" {
		old.Report(provider.FindingNote, "UnusedSubnet", "subnet",
			"the old system does not use the subnet for its servers, so neither do new servers")
	}
	if old.HasContent("floatingIpPool") {
		old.Report(provider.FindingLoss, "FloatingIP", "floatingIpPool", "new servers have no floating IP address")
	}
	if old.HasContent("tokenId") {
		old.Report(provider.FindingLoss, "Token", "tokenId", "this provider does not sign in with a token")
	}
	if len(old.Strings("sshPublicKeys")) > 0 {
		old.Report(provider.FindingNote, "SSHKeys", "sshPublicKeys",
			"the old system writes the SSH keys to the user data; add them to the user data of new machines")
	}
	// These fields configure the old controller, and the cloud provider in the user data.
	old.MarkRead("instanceReadyCheckPeriod", "instanceReadyCheckTimeout", "computeAPIVersion", "trustDevicePath",
		"nodeVolumeAttachLimit")
}
