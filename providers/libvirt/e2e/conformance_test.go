//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/faulty"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

func onLoopback() endpoints.Rules { return endpoints.Rules{}.AllowHosts("127.0.0.1") }

// credentials returns credentials for the TLS port. The changes replace or remove keys.
func credentials(h *libvirt.Hypervisor, changes map[string]string) provider.Credentials {
	certificate, key := h.ClientCertificate()
	data := map[string][]byte{"uri": []byte(h.TLSURI()), "ca.crt": h.CA(), "tls.crt": certificate, "tls.key": key}
	for name, value := range changes {
		data[name] = []byte(value)
		if value == "" {
			delete(data, name)
		}
	}
	return provider.NewCredentials(data)
}

// The suite runs against real libvirtd and QEMU. A proxy simulates the faults that libvirtd and QEMU cannot produce
// within seconds.
func TestTheDriverConforms(t *testing.T) {
	h := hypervisor(t)
	runConformance(t, &cloud{h: h, dir: t.TempDir()}, h.TLSURI())
}

// libvirt simulates this hypervisor in the memory of libvirtd. The simulated hypervisor does not support uploads of
// volumes, so a proxy answers these calls.
func TestTheDriverConformsOnSimulatedHypervisor(t *testing.T) {
	h := hypervisor(t)
	c := &cloud{h: h, dir: t.TempDir(), uri: h.SimulatedURI(), faults: faulty.Faults{DropUploads: true}}
	c.prepare(t)
	uri := strings.NewReplacer("qemu+", "test+", "/system", "/default").Replace(h.TLSURI())
	runConformance(t, c, uri)
}

func runConformance(t *testing.T, c *cloud, uri string) {
	h := c.h
	impossible := []conformance.FaultKind{
		// libvirtd answers from memory, so every change is visible in the next answer. With too many clients, it
		// stops accepting connections instead of returning errors. UUIDs are binary, and all other names are
		// case-sensitive.
		conformance.LateReads, conformance.LateLists, conformance.LateTags, conformance.UnsteadyLists,
		conformance.StateGoesBack, conformance.Throttled, conformance.OtherCase,
		// There are no quotas. A domain's resources are allocated in the call that creates and starts it.
		conformance.QuotaFreesLate, conformance.GivesUp, conformance.PartsReserved,
		// libvirtd carries out a call before it answers, and shows a client all metadata. It identifies clients by their
		// certificates, without sessions.
		conformance.SlowEffects, conformance.PartlyUnreadable, conformance.SessionsEnd,
	}
	if c.uri != "" {
		impossible = append(impossible, conformance.PowerOffIgnored) // A simulated domain stops at once.
	}
	strangerCertificate, strangerKey := h.StrangerCertificate()
	conformance.Run(t, conformance.Config{
		New: func() (provider.Driver, error) {
			return driver.New(driver.Options{Wrap: c.faults.Wrap, CreateSettle: 20 * time.Second, Endpoints: onLoopback(),
				ShutdownGrace: 3 * time.Second}) // The guests of these tests do not shut down.
		},
		// A proxy imitates the agent that reports the addresses of guests.
		Class: provider.Class{Spec: sample.Spec("addressSource", "agent"),
			Credentials: credentials(h, map[string]string{"uri": uri})},
		OtherSpec: sample.Spec("addressSource", "agent", "vcpus", 2, "memoryMiB", 192),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no pool", Spec: sample.Spec("volume.pool", nil), Field: "volume.pool"},
			{Name: "no network", Spec: sample.Spec("networks", []any{}), Field: "networks"},
			{Name: "path as volume", Spec: sample.Spec("volume.base", "/etc/passwd"), Field: "volume.base"},
		},
		MalformedCredentials: []provider.Credentials{
			provider.NewCredentials(map[string][]byte{"password": []byte("what is this")}),
			credentials(h, map[string]string{"uri": "qemu+ssh://root@127.0.0.1/system"}),
			credentials(h, map[string]string{"uri": uri + "?pkipath=/etc/pki"}),
			credentials(h, map[string]string{"uri": uri + "?no_verify=1"}),
			credentials(h, map[string]string{"uri": uri, "tls.key": "no key"}),
			credentials(h, map[string]string{"uri": uri, "ca.crt": ""}),
		},
		RejectedCredentials: credentials(h, map[string]string{"uri": uri, "tls.crt": string(strangerCertificate),
			"tls.key": string(strangerKey)}),
		PublicCredentials: []string{"uri", "ca.crt", "tls.crt"},
		Legacies:          []provider.Legacy{legacyOf(c, uri)},
		// The actuator of machine.openshift.io writes no metadata.
		LegaciesWithoutTags: true,
		Version:             "v1.37.2",
		Timeout:             2 * time.Minute,
		Instances:           3,
		RequireHooks:        true,
		MinCases:            94,
		ImpossibleFaults:    impossible,
		// A clone gets another UUID, but Adopt also accepts domains with any UUID. The tests with virtual machines check
		// the user data.
		MissingHooks: []string{"Cloud.Copy", "Cloud.UserData"},
		// QEMU runs only a boot sector.
		GuestsIgnorePowerOff: c.uri == "",
		Cloud: conformance.Cloud{
			Resources: c.resources,
			IsOn:      c.isOn,
			Tags:      c.tags,
			Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
				return c.createDomain(ctx, "another-"+random(), tags)
			},
			LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
				func(context.Context) error, error) {
				return c.createDomain(ctx, gone.NodeName, tags)
			},
			LaunchLegacy: c.launchLegacy,
			Inject:       c.inject,
		},
	})
	c.faults.Wait()
}
