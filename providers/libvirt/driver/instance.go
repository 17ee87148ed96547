package driver

import (
	"context"
	"encoding/xml"
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

// instance makes of a domain what Machinist knows of it.
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
		in.State, in.StateMessage = provider.StatePending, "the domain is being restarted for other sizes"
	}
	if made, err := time.Parse(time.RFC3339, d.metadata.Created); err == nil {
		in.LaunchTime = made
	}
	if in.Addresses, err = h.addresses(ctx, d, in.State); err != nil {
		return nil, err
	}
	return in, nil
}

// nodeName is the name that the kubelet of a domain registers under: that of the domain, which is in its seed. It is
// empty where that is no name of a node.
func nodeName(domain string) string {
	if len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return ""
	}
	return domain
}

// stateOf puts libvirt's state and its reason together.
// https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainState
func stateOf(state libvirt.DomainState, reason int32) (provider.InstanceState, string) {
	switch state {
	case libvirt.DomainRunning, libvirt.DomainBlocked:
		return provider.StateRunning, ""
	case libvirt.DomainShutdown:
		return provider.StateRunning, "the guest is shutting down"
	case libvirt.DomainPaused:
		return pausedState(libvirt.DomainPausedReason(reason))
	case libvirt.DomainPmsuspended:
		return provider.StateStopped, "the guest has suspended itself"
	case libvirt.DomainCrashed:
		return provider.StateStopped, "the guest's system has crashed"
	case libvirt.DomainShutoff:
		return provider.StateStopped, whyOff(libvirt.DomainShutoffReason(reason))
	}
	return provider.StateRunning, "libvirt does not know the domain's state"
}

// pausedState tells pauses that libvirt ends itself from those that somebody has to end.
func pausedState(reason libvirt.DomainPausedReason) (provider.InstanceState, string) {
	switch reason {
	case libvirt.DomainPausedStartingUp:
		return provider.StatePending, "the domain is starting"
	case libvirt.DomainPausedMigration, libvirt.DomainPausedSave, libvirt.DomainPausedDump, libvirt.DomainPausedSnapshot,
		libvirt.DomainPausedPostcopy:
		return provider.StateRunning, "the domain is paused for an operation of libvirt"
	case libvirt.DomainPausedIoerror:
		return provider.StateStopped, "the domain is paused: a disk could not be written. Is the storage pool full?"
	case libvirt.DomainPausedWatchdog:
		return provider.StateStopped, "the domain is paused by its watchdog"
	case libvirt.DomainPausedCrashed:
		return provider.StateStopped, "the domain is paused: the guest's system has crashed"
	}
	return provider.StateStopped, "the domain is paused"
}

func whyOff(reason libvirt.DomainShutoffReason) string {
	switch reason {
	case libvirt.DomainShutoffShutdown:
		return "the guest has shut down"
	case libvirt.DomainShutoffDestroyed:
		return "the domain was destroyed at the hypervisor"
	case libvirt.DomainShutoffCrashed:
		return "the domain's QEMU has crashed or was killed"
	case libvirt.DomainShutoffMigrated:
		return "the domain was migrated to another hypervisor"
	case libvirt.DomainShutoffSaved:
		return "the domain was saved to a file"
	case libvirt.DomainShutoffFailed:
		return "the domain could not be started"
	}
	return "the domain is off; libvirt does not know why, such as after a restart of the hypervisor"
}

// addresses are those of a domain that runs, and its host name.
func (h *hypervisor) addresses(ctx context.Context, d *domain, state provider.InstanceState) ([]corev1.NodeAddress,
	error) {
	var all []corev1.NodeAddress
	if name := nodeName(d.Name); name != "" {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	}
	if state != provider.StateRunning {
		return all, nil
	}
	source := libvirt.DomainInterfaceAddressesSrcLease
	if d.metadata.Addresses == machine.AddressesOfAgent {
		source = libvirt.DomainInterfaceAddressesSrcAgent
	}
	interfaces, err := h.DomainInterfaceAddresses(d.Domain, uint32(source), 0)
	if err != nil {
		// There is no agent yet, or no lease because of a bridge, or the domain has just gone off. They are not worth an
		// instance.
		if codeOf(err) != libvirt.ErrOk {
			return all, nil
		}
		return nil, translate(ctx, err, "get the addresses of domain "+providerID(d.UUID))
	}
	own, err := h.interfacesOf(ctx, d)
	if err != nil {
		return nil, err
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
			if !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all, nil
}

// interfacesOf are the hardware addresses of a domain's interfaces, where its agent has to be asked: it also tells of
// those that the guest made by itself, such as the bridge of its pods. Otherwise it is nil.
func (h *hypervisor) interfacesOf(ctx context.Context, d *domain) (map[string]bool, error) {
	if d.metadata.Addresses != machine.AddressesOfAgent {
		return nil, nil
	}
	attempted := "get the interfaces of domain " + providerID(d.UUID)
	text, err := h.DomainGetXMLDesc(d.Domain, 0)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	var described struct {
		Interfaces []struct {
			MAC macXML `xml:"mac"`
		} `xml:"devices>interface"`
	}
	if err := xml.Unmarshal([]byte(text), &described); err != nil {
		return nil, provider.Errorf(provider.Internal, "%s: libvirt's description cannot be read", attempted)
	}
	own := map[string]bool{}
	for _, i := range described.Interfaces {
		own[strings.ToLower(i.MAC.Address)] = true
	}
	return own, nil
}
