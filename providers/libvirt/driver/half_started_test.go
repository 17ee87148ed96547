package driver

import (
	"encoding/binary"
	"testing"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// domainIsPersistent is the number of a procedure in libvirt's protocol.
const domainIsPersistent = 151

// If libvirtd exits while it starts a domain, the next libvirtd removes this domain. Until the removal, libvirtd still
// lists the domain.
//
// Rule: libvirt-half-started-not-believed.
func TestCreateDoesNotReuseHalfStartedDomain(t *testing.T) {
	for name, c := range map[string]struct {
		state      provider.InstanceState
		persistent uint32
		want       provider.Code
	}{
		"starting, not persistent": {provider.StatePending, 0, provider.Aborted},
		"starting, persistent":     {provider.StatePending, 1, provider.OK},
		"stopped, not persistent":  {provider.StateStopped, 0, provider.OK},
		"stopped, persistent":      {provider.StateStopped, 1, provider.OK},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := serve(t, answerCallsWith(capabilitiesXML,
				map[uint32][]byte{domainIsPersistent: binary.BigEndian.AppendUint32(nil, c.persistent)}))
			credentials := provider.NewCredentials(map[string][]byte{"uri": []byte("qemu+tcp://" + address + "/system")})
			err := newTestDriver(t).withHypervisor(t.Context(), credentials, "", func(h *hypervisor) error {
				l := &launch{hypervisor: h}
				d := &domain{Domain: libvirt.Domain{Name: "d", UUID: libvirt.UUID{1}}}
				_, err := l.reuse(t.Context(), &provider.Instance{ProviderID: someID, State: c.state}, d)
				return err
			})
			if got := provider.CodeOf(err); got != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
