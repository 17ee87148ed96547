package driver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

func (c *clients) convert(s *servers.Server) (*provider.Instance, error) {
	if !idFormat.MatchString(s.ID) {
		return nil, provider.Errorf(provider.Internal, "OpenStack returned a server without an ID")
	}
	in := &provider.Instance{
		ProviderID: c.providerID(s.ID),
		NodeName:   nodeName(s.Name),
		Addresses:  addresses(s),
		Region:     c.region,
		Zone:       s.AvailabilityZone,
		LaunchTime: s.Created,
		ClusterID:  s.Metadata[provider.TagCluster],
		MachineUID: types.UID(s.Metadata[provider.TagMachineUID]),
		MachineKey: s.Metadata[provider.TagMachine],
		Scope:      scopeOf(c.region, s.Name),
	}
	if name, ok := s.Flavor["original_name"].(string); ok {
		in.Type = name
	}
	in.State, in.StateMessage = stateOf(s)
	if in.State == provider.StateFailed && noHost(s) {
		// Nova looks for a host only after it has accepted the request. So if no host has room, the server fails later.
		in.StateCode = provider.ResourceExhausted
	}
	return in, nil
}

// nodeName returns the name under which the kubelet of a server registers. The metadata service changes the case of the
// server's name. If the name contains a character that the metadata service also changes, the result is empty.
func nodeName(server string) string {
	name := strings.ToLower(server)
	if strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) {
		return ""
	}
	return name
}

// stateOf combines Nova's status, task and power state. https://docs.openstack.org/nova/latest/reference/vm-states.html
func stateOf(s *servers.Server) (provider.InstanceState, string) {
	if s.TaskState == "deleting" || s.TaskState == "soft-deleting" {
		return provider.StateTerminating, ""
	}
	switch s.Status {
	case "BUILD":
		return provider.StatePending, s.TaskState
	case "ACTIVE":
		return provider.StateRunning, ""
	case "DELETED", "SOFT_DELETED":
		return provider.StateTerminating, ""
	case "ERROR":
		return errorState(s)
	case "SHUTOFF", "SUSPENDED", "PAUSED", "SHELVED", "SHELVED_OFFLOADED":
		if s.TaskState == "powering-on" || s.TaskState == "resuming" || s.TaskState == "unshelving" {
			return provider.StatePending, s.TaskState
		}
		return provider.StateStopped, s.Status
	}
	// In other states, such as REBOOT, RESIZE or RESCUE, only the Node shows whether the server works. UNKNOWN means
	// that the host does not respond.
	return provider.StateRunning, s.Status
}

// errorState returns the state of a server whose last operation failed. Only a server that never ran has failed
// permanently: guests continue to run after a failed resize or migration.
func errorState(s *servers.Server) (provider.InstanceState, string) {
	fault := faultOf(s)
	switch {
	case s.LaunchedAt.IsZero():
		return provider.StateFailed, fault
	case s.PowerState == servers.RUNNING:
		return provider.StateRunning, fault
	}
	return provider.StateStopped, fault
}

// faultOf returns why a server is in ERROR. Nova's own message may repeat secrets from the request, so it is omitted.
func faultOf(s *servers.Server) string {
	text := strings.ToLower(s.Fault.Message)
	switch {
	case noHost(s):
		return "Nova found no host with room for the server (No valid host was found)"
	case strings.Contains(text, "exceeded maximum number of retries"), strings.Contains(text, "exhausted all hosts"):
		return "Nova gave up after several hosts failed to create the server"
	case strings.Contains(text, "volume"):
		return "Nova could not attach a volume to the server"
	case strings.Contains(text, "port"), strings.Contains(text, "network"):
		return "Nova could not attach a port to the server"
	case s.Fault.Code != 0:
		return fmt.Sprintf("Nova reports a fault with code %d", s.Fault.Code)
	}
	return "Nova reports ERROR without a fault"
}

// noHost reports whether a server failed because no host had enough free resources.
func noHost(s *servers.Server) bool {
	text := strings.ToLower(s.Fault.Message)
	return strings.Contains(text, "no valid host") || strings.Contains(text, "no more hosts")
}

// addresses returns the host name of a server and the addresses of its ports, sorted by network name.
func addresses(s *servers.Server) []corev1.NodeAddress {
	var all []corev1.NodeAddress
	if name := nodeName(s.Name); name != "" {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	}
	networks := make([]string, 0, len(s.Addresses))
	for network := range s.Addresses {
		networks = append(networks, network)
	}
	slices.Sort(networks)
	for _, network := range networks {
		entries, _ := s.Addresses[network].([]any)
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			text, _ := fields["addr"].(string)
			if _, err := netip.ParseAddr(text); err != nil {
				continue
			}
			kind := corev1.NodeInternalIP
			if fields["OS-EXT-IPS:type"] == "floating" {
				kind = corev1.NodeExternalIP
			}
			address := corev1.NodeAddress{Type: kind, Address: text}
			if !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all
}
