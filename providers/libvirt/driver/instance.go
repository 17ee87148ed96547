package driver

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/go-libvirt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

func (h *hypervisor) instance(ctx context.Context, d *domain) (*provider.Instance, error) {
	state, reason, err := h.DomainGetState(d.Domain, 0)
	if err != nil {
		return nil, translate(ctx, err, "get the state of domain "+providerID(d.UUID))
	}
	in := &provider.Instance{
		ProviderID: providerID(d.UUID), NodeName: nodeName(d.Name), Type: d.metadata.Type, Zone: d.metadata.Zone,
		ClusterID: d.metadata.Cluster, MachineUID: types.UID(d.metadata.UID), MachineKey: d.metadata.Machine,
		Scope: h.scope(),
	}
	in.State, in.StateMessage = stateOf(libvirt.DomainState(state), reason)
	switch {
	case d.metadata.Deleting != "":
		in.State = provider.StateTerminating
	case d.metadata.Stopping != "" && in.State == provider.StateStopped:
		in.State, in.StateMessage = provider.StatePending, "the domain is being restarted with other sizes"
	}
	if created, err := time.Parse(time.RFC3339, d.metadata.Created); err == nil {
		in.LaunchTime = created
	}
	if err := h.readAddresses(ctx, d, in); err != nil {
		return nil, err
	}
	return in, nil
}

// nodeName returns the name of the domain, because the seed passes it to the guest as the host name. If the name is
// invalid for a Node, the result is empty.
func nodeName(domain string) string {
	if len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return ""
	}
	return domain
}

// stateOf maps libvirt's state and its reason. https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainState
func stateOf(state libvirt.DomainState, reason int32) (provider.InstanceState, string) {
	switch state {
	case libvirt.DomainRunning, libvirt.DomainBlocked:
		return provider.StateRunning, ""
	case libvirt.DomainShutdown:
		return provider.StateRunning, "the guest is shutting down"
	case libvirt.DomainPaused:
		return pausedState(libvirt.DomainPausedReason(reason))
	case libvirt.DomainPmsuspended:
		return provider.StateStopped, "the guest suspended itself"
	case libvirt.DomainCrashed:
		return provider.StateStopped, "the guest's operating system crashed"
	case libvirt.DomainShutoff:
		return provider.StateStopped, shutoffReason(libvirt.DomainShutoffReason(reason))
	}
	return provider.StateRunning, "libvirt does not know the domain's state"
}

// pausedState returns the state of a paused domain. libvirt pauses a domain during some operations and resumes it
// afterwards. If a domain is paused for another reason, it counts as stopped, because an administrator must resume it.
func pausedState(reason libvirt.DomainPausedReason) (provider.InstanceState, string) {
	switch reason {
	case libvirt.DomainPausedStartingUp:
		return provider.StatePending, "the domain is starting"
	case libvirt.DomainPausedMigration, libvirt.DomainPausedSave, libvirt.DomainPausedDump, libvirt.DomainPausedSnapshot,
		libvirt.DomainPausedPostcopy:
		return provider.StateRunning, "the domain is paused for an operation of libvirt"
	case libvirt.DomainPausedIoerror:
		return provider.StateStopped,
			"the domain is paused because a disk could not be written; check whether the storage pool is full"
	case libvirt.DomainPausedWatchdog:
		return provider.StateStopped, "the domain was paused by its watchdog"
	case libvirt.DomainPausedCrashed:
		return provider.StateStopped, "the domain is paused because the guest's operating system crashed"
	}
	return provider.StateStopped, "the domain is paused"
}

func shutoffReason(reason libvirt.DomainShutoffReason) string {
	switch reason {
	case libvirt.DomainShutoffShutdown:
		return "the guest shut down"
	case libvirt.DomainShutoffDestroyed:
		return "the domain was destroyed on the hypervisor"
	case libvirt.DomainShutoffCrashed:
		return "the domain's QEMU crashed or was killed"
	case libvirt.DomainShutoffMigrated:
		return "the domain was migrated to another hypervisor"
	case libvirt.DomainShutoffSaved:
		return "the domain was saved to a file"
	case libvirt.DomainShutoffFailed:
		return "the domain could not be started"
	}
	return "the domain is off; libvirt does not know the reason, for example because the hypervisor was restarted"
}

// readAddresses sets the host name and, for a running domain, the addresses. The guest itself chooses the addresses
// that its agent reports.
func (h *hypervisor) readAddresses(ctx context.Context, d *domain, in *provider.Instance) error {
	if name := nodeName(d.Name); name != "" {
		in.Addresses = append(in.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	}
	if in.State != provider.StateRunning {
		return nil
	}
	source, addresses := libvirt.DomainInterfaceAddressesSrcLease, &in.Addresses
	if d.metadata.Addresses == machine.AddressSourceAgent {
		source, addresses = libvirt.DomainInterfaceAddressesSrcAgent, &in.GuestAddresses
	}
	interfaces, err := h.DomainInterfaceAddresses(d.Domain, uint32(source), 0)
	if err != nil {
		// The agent has not started, a bridge has no leases, or the domain has just stopped. The instance is useful
		// without addresses.
		if codeOf(err) != libvirt.ErrOk {
			return nil
		}
		return translate(ctx, err, "get the addresses of domain "+providerID(d.UUID))
	}
	own, err := h.macAddressesOf(ctx, d)
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		if own != nil && (len(i.Hwaddr) == 0 || !own[strings.ToLower(i.Hwaddr[0])]) {
			continue
		}
		for _, a := range i.Addrs {
			parsed, err := netip.ParseAddr(a.Addr)
			if err != nil || parsed.IsLoopback() || parsed.IsLinkLocalUnicast() {
				continue
			}
			address := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: parsed.String()}
			if !slices.Contains(*addresses, address) {
				*addresses = append(*addresses, address)
			}
		}
	}
	return nil
}

// macAddressesOf returns the hardware addresses in the domain's definition. The guest agent also reports interfaces
// that the guest created, such as a pod bridge. The caller ignores interfaces with other hardware addresses. Without
// the agent, the result is nil.
func (h *hypervisor) macAddressesOf(ctx context.Context, d *domain) (map[string]bool, error) {
	if d.metadata.Addresses != machine.AddressSourceAgent {
		return nil, nil
	}
	described, err := h.describe(ctx, d)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, i := range described.Interfaces {
		own[strings.ToLower(i.MAC.Address)] = true
	}
	return own, nil
}
