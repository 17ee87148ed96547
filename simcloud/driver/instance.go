package driver

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// liveStates returns all states except StateTerminated, because terminated instances stay readable for a while.
func liveStates() []simcloud.InstanceState {
	return []simcloud.InstanceState{
		simcloud.StatePending, simcloud.StateRunning, simcloud.StateRebooting, simcloud.StateStopping,
		simcloud.StateStopped, simcloud.StateStarting, simcloud.StateFailed, simcloud.StateShuttingDown,
	}
}

// convert converts a live instance. The scope of the instance is the URL of its endpoint. For the default endpoint, the
// scope is empty, so that an administrator can change the URL.
func convert(in *simcloud.Instance, endpoint string) *provider.Instance {
	out := &provider.Instance{
		ProviderID:   in.ProviderID,
		State:        stateOf(in.State),
		StateMessage: fmt.Sprintf("%.256s", in.StateReason),
		NodeName:     in.Hostname,
		Type:         in.Type,
		Region:       in.Region,
		Zone:         in.Zone,
		LaunchTime:   in.LaunchTime,
		ClusterID:    in.Tags[provider.TagCluster],
		MachineUID:   types.UID(in.Tags[provider.TagMachineUID]),
		MachineKey:   in.Tags[provider.TagMachine],
		Scope:        endpoint,
	}
	if out.State == provider.StateFailed && in.StateCode != "" {
		out.StateCode, _ = codeOf(in.StateCode)
	}
	for _, ip := range in.PrivateIPs {
		out.Addresses = append(out.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	if in.GuestIP != "" {
		out.GuestAddresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: in.GuestIP}}
	}
	if in.Hostname != "" {
		out.Addresses = append(out.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: in.Hostname})
	}
	return out
}

func stateOf(state simcloud.InstanceState) provider.InstanceState {
	switch state {
	case simcloud.StatePending, simcloud.StateStarting:
		return provider.StatePending
	case simcloud.StateRunning, simcloud.StateStopping:
		return provider.StateRunning
	case simcloud.StateRebooting:
		// A rebooting instance counts as running: the reboot ends by itself, and the Node shows its progress better.
		return provider.StateRunning
	case simcloud.StateStopped:
		return provider.StateStopped
	case simcloud.StateShuttingDown, simcloud.StateTerminated:
		return provider.StateTerminating
	}
	return provider.StateFailed
}

type owner struct {
	cluster string
	machine provider.Machine
}

// ownerOf returns an error for an identity that would match more than one machine.
func ownerOf(clusterID string, machine provider.Machine) (owner, error) {
	if clusterID == "" || machine.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "the cluster ID %q and the UID %q of machine %s/%s "+
			"must not be empty", clusterID, machine.UID, machine.Namespace, machine.Name)
	}
	return owner{cluster: clusterID, machine: machine}, nil
}

func (o owner) tags() map[string]string {
	return map[string]string{provider.TagCluster: o.cluster, provider.TagMachineUID: string(o.machine.UID)}
}

// withOwnerTags adds the owner's tags to a copy of tags. The owner's tags take precedence.
func (o owner) withOwnerTags(tags map[string]string) map[string]string {
	out := make(map[string]string, len(tags)+3)
	for key, value := range tags {
		out[key] = value
	}
	out[provider.TagMachine] = o.machine.Namespace + "/" + o.machine.Name
	for key, value := range o.tags() {
		out[key] = value
	}
	return out
}

// lacksTagOf reports whether the instance lacks the key of an owner tag.
func (o owner) lacksTagOf(in *simcloud.Instance) bool {
	for key := range o.tags() {
		if _, tagged := in.Tags[key]; !tagged {
			return true
		}
	}
	return false
}

// owns returns FailedPrecondition unless the instance has the owner's tags. The driver must not touch an instance
// without tags, because its owner is unknown.
func (o owner) owns(in *simcloud.Instance) error {
	for key, want := range o.tags() {
		got, tagged := in.Tags[key]
		if !tagged {
			return provider.Errorf(provider.FailedPrecondition, "instance %s has no tag %s, so it does not belong to "+
				"machine %s/%s", in.ID, key, o.machine.Namespace, o.machine.Name)
		}
		if got != want {
			return provider.Errorf(provider.FailedPrecondition,
				"instance %s belongs to another owner: its tag %s is %.128q, not %q", in.ID, key, got, want)
		}
	}
	return nil
}

// idOf returns the instance ID of a provider ID "sim://<region>/<zone>/<id>".
func idOf(providerID string) (string, error) {
	rest, ours := strings.CutPrefix(providerID, "sim://")
	parts := strings.Split(rest, "/")
	if !ours || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", provider.Errorf(provider.InvalidArgument,
			"provider ID %.128q must have the form sim://<region>/<zone>/<id>", providerID)
	}
	return parts[2], nil
}

// byProviderID returns an instance of any owner.
func byProviderID(ctx context.Context, client account, providerID string) (*simcloud.Instance, error) {
	id, err := idOf(providerID)
	if err != nil {
		return nil, err
	}
	in, err := client.GetInstance(ctx, id)
	if err != nil {
		return nil, translate(err, "get instance "+providerID)
	}
	if in.ProviderID != providerID || in.State == simcloud.StateTerminated {
		return nil, provider.Errorf(provider.NotFound, "get instance %s: it is terminated or has another provider ID",
			providerID)
	}
	return in, nil
}

// byTags returns all live instances of the owner in order of creation.
func byTags(ctx context.Context, client account, o owner) ([]simcloud.Instance, error) {
	var found []simcloud.Instance
	for in, err := range client.Instances(ctx, simcloud.ListInstancesOptions{Tags: o.tags(), States: liveStates()}) {
		if err != nil {
			return nil, translate(err, fmt.Sprintf("look for the instance of machine %s", o.machine.UID))
		}
		if o.owns(in) == nil && in.State != simcloud.StateTerminated {
			found = append(found, *in)
		}
	}
	return found, nil
}

// find returns the owner's instance by provider ID, or by tags if the ID is empty. Of several instances with the
// tags, it prefers the oldest instance that is not being deleted.
func find(ctx context.Context, client account, providerID string, o owner) (*simcloud.Instance, error) {
	if providerID != "" {
		return byProviderID(ctx, client, providerID)
	}
	found, err := byTags(ctx, client, o)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, provider.Errorf(provider.NotFound, "no instance has the tags of machine %s", o.machine.UID)
	}
	for i := range found {
		if found[i].State != simcloud.StateShuttingDown {
			return &found[i], nil
		}
	}
	return &found[0], nil
}
