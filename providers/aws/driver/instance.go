package driver

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// convert returns an instance as EC2 describes it. A terminated instance is converted to StateTerminating. The
// callers treat it as gone.
func (c *clients) convert(in *types.Instance) *provider.Instance {
	id, tags := aws.ToString(in.InstanceId), tagMap(in.Tags)
	zone := ""
	if in.Placement != nil {
		zone = aws.ToString(in.Placement.AvailabilityZone)
	}
	out := &provider.Instance{
		ProviderID: "aws:///" + zone + "/" + id, NodeName: nodeName(in), Addresses: addresses(in),
		Type: string(in.InstanceType), Region: c.region, Zone: zone, LaunchTime: aws.ToTime(in.LaunchTime),
		ClusterID: tags[provider.TagCluster], MachineUID: uid(tags), MachineKey: tags[provider.TagMachine],
		Scope: c.region,
	}
	out.State, out.StateMessage = stateOf(in)
	if out.State == provider.StatePending {
		// If the launch fails, the instance is terminated at once, and only its ID leads to the reason.
		out.CreateHandle = id
	}
	return out
}

// stateName returns the state of an instance as EC2 names it.
func stateName(in *types.Instance) types.InstanceStateName {
	if in.State == nil {
		return ""
	}
	return in.State.Name
}

// stateOf returns the state. An instance that is stopping still runs.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
func stateOf(in *types.Instance) (provider.InstanceState, string) {
	switch name := stateName(in); name {
	case types.InstanceStateNamePending:
		return provider.StatePending, ""
	case types.InstanceStateNameRunning:
		return provider.StateRunning, ""
	case types.InstanceStateNameStopping:
		return provider.StateRunning, "the instance is stopping"
	case types.InstanceStateNameStopped:
		return provider.StateStopped, ""
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		return provider.StateTerminating, "the instance is " + string(name)
	default:
		return provider.StatePending, "EC2 reports no known state"
	}
}

func isTerminated(in *types.Instance) bool { return stateName(in) == types.InstanceStateNameTerminated }

// launchFailure returns why an instance was terminated before it ran, or false if it was terminated for another
// reason.
func launchFailure(in *types.Instance) (rule, string, bool) {
	if in.StateReason == nil || !isTerminated(in) {
		return rule{}, "", false
	}
	code := aws.ToString(in.StateReason.Code)
	r, known := failures()[code]
	return r, safeCode(code), known
}

// nodeName returns the name that the cloud controller of AWS requires for the Node: the private DNS name, or the ID
// of an instance whose private DNS name contains the ID. https://cloud-provider-aws.sigs.k8s.io/prerequisites/
func nodeName(in *types.Instance) string {
	if o := in.PrivateDnsNameOptions; o != nil && o.HostnameType == types.HostnameType(machine.HostnameResourceName) {
		return aws.ToString(in.InstanceId)
	}
	return strings.ToLower(aws.ToString(in.PrivateDnsName))
}

// addresses returns the addresses that EC2 has assigned.
func addresses(in *types.Instance) (all []corev1.NodeAddress) {
	add := func(kind corev1.NodeAddressType, address string) {
		if address != "" {
			all = append(all, corev1.NodeAddress{Type: kind, Address: address})
		}
	}
	add(corev1.NodeInternalIP, aws.ToString(in.PrivateIpAddress))
	for _, n := range in.NetworkInterfaces {
		if n.Attachment == nil || aws.ToInt32(n.Attachment.DeviceIndex) != 0 {
			continue
		}
		for _, address := range n.Ipv6Addresses {
			add(corev1.NodeInternalIP, aws.ToString(address.Ipv6Address))
		}
	}
	add(corev1.NodeExternalIP, aws.ToString(in.PublicIpAddress))
	add(corev1.NodeInternalDNS, aws.ToString(in.PrivateDnsName))
	add(corev1.NodeExternalDNS, aws.ToString(in.PublicDnsName))
	return all
}
