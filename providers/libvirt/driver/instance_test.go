package driver

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/digitalocean/go-libvirt"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// These are numbers of procedures in libvirt's protocol.
const (
	domainGetXMLDesc         = 14
	domainInterfaceAddresses = 353
)

// interfaceWith returns a response to domainInterfaceAddresses with one interface.
func interfaceWith(mac string, addresses ...string) []byte {
	number := func(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }
	answer := append(number(nil, 1), xdrString("eth0")...)
	answer = append(number(answer, 1), xdrString(mac)...)
	answer = number(answer, uint32(len(addresses)))
	for _, a := range addresses {
		answer = append(number(answer, 0), xdrString(a)...)
		answer = number(answer, 24)
	}
	return answer
}

// To get a serving certificate for the address of an API server, a guest reports this address through its agent. The
// driver marks this address as reported by the guest. Addresses from leases of libvirt's networks are not marked.
//
// Rule: libvirt-agent-addresses-marked.
func TestAttackGuestReportsAddressOfAPIServer(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	name := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "worker-1"}
	reported := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"}}
	for source, want := range map[string]provider.Instance{
		machine.AddressSourceAgent: {Addresses: []corev1.NodeAddress{name}, GuestAddresses: reported},
		machine.AddressSourceLease: {Addresses: append([]corev1.NodeAddress{name}, reported...)},
	} {
		address, _ := serve(t, answerCallsWith(capabilitiesXML, map[uint32][]byte{
			domainGetXMLDesc: xdrString("<domain><devices><interface><mac address=\"" + mac +
				"\"/></interface></devices></domain>"),
			domainInterfaceAddresses: interfaceWith(mac, "192.0.2.10", "2001:db8::1", "127.0.0.1", "fe80::1"),
		}))
		credentials := provider.NewCredentials(map[string][]byte{"uri": []byte("qemu+tcp://" + address + "/system")})
		in := &provider.Instance{State: provider.StateRunning}
		err := newTestDriver(t).withHypervisor(t.Context(), credentials, "", func(h *hypervisor) error {
			d := &domain{Domain: libvirt.Domain{Name: "worker-1", UUID: libvirt.UUID{1}}, metadata: metadata{Addresses: source}}
			return h.readAddresses(t.Context(), d, in)
		})
		if err != nil || !slices.Equal(in.Addresses, want.Addresses) || !slices.Equal(in.GuestAddresses, want.GuestAddresses) {
			t.Errorf("%s: got the addresses %v and those of the guest %v, error %v; want %v and %v", source, in.Addresses,
				in.GuestAddresses, err, want.Addresses, want.GuestAddresses)
		}
	}
}
