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
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/faulty"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

// credentials name the hypervisor by TLS.
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

// The driver is held to the suite with a real libvirtd and QEMU behind it. What they cannot be made to do within
// seconds is done by the connection in between.
func TestTheDriverConforms(t *testing.T) {
	h := hypervisor(t)
	conforms(t, &cloud{h: h, dir: t.TempDir()}, h.TLSURI())
}

// The same with the hypervisor that libvirt simulates, whose domains and volumes are entries of libvirtd's memory. It
// takes no uploads: the connection in between answers them.
func TestTheDriverConformsAtTheSimulatedHypervisor(t *testing.T) {
	h := hypervisor(t)
	c := &cloud{h: h, dir: t.TempDir(), uri: h.SimulatedURI(), faults: faulty.Faults{DropUploads: true}}
	c.prepare(t)
	uri := strings.NewReplacer("qemu+", "test+", "/system", "/default").Replace(h.TLSURI())
	conforms(t, c, uri)
}

// conforms runs the suite with a URI that has TLS.
func conforms(t *testing.T, c *cloud, uri string) {
	h := c.h
	strange, strangeKey := h.StrangerCertificate()
	conformance.Run(t, conformance.Config{
		New: func() (provider.Driver, error) {
			return driver.New(driver.Options{Wrap: c.faults.Wrap, CreateSettle: 20 * time.Second,
				ShutdownGrace: 3 * time.Second}) // its guests do not shut down
		},
		Class:     provider.Class{Spec: sample.Spec(), Credentials: credentials(h, map[string]string{"uri": uri})},
		OtherSpec: sample.Spec("vcpus", 2, "memoryMiB", 192),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no pool", Spec: sample.Spec("volume.pool", nil), Field: "volume.pool"},
			{Name: "no network", Spec: sample.Spec("networks", []any{}), Field: "networks"},
			{Name: "a path for a volume", Spec: sample.Spec("volume.base", "/etc/passwd"), Field: "volume.base"},
		},
		MalformedCredentials: []provider.Credentials{
			provider.NewCredentials(map[string][]byte{"password": []byte("what is this")}),
			credentials(h, map[string]string{"uri": "qemu+ssh://root@127.0.0.1/system"}),
			credentials(h, map[string]string{"uri": uri + "?pkipath=/etc/pki"}),
			credentials(h, map[string]string{"uri": uri + "?no_verify=1"}),
			credentials(h, map[string]string{"uri": uri, "tls.key": "no key"}),
			credentials(h, map[string]string{"uri": uri, "ca.crt": ""}),
		},
		RejectedCredentials: credentials(h, map[string]string{"uri": uri, "tls.crt": string(strange),
			"tls.key": string(strangeKey)}),
		PublicCredentials: []string{"uri", "ca.crt", "tls.crt"},
		Version:           "v1.37.2",
		Timeout:           2 * time.Minute,
		Instances:         3,
		Full:              true,
		Never: []conformance.FaultKind{
			// libvirtd answers from its own memory: what it has done shows in its next answer, once and as it is. It limits
			// clients by not taking their connections. UUIDs are bytes, and other names are compared with their case.
			conformance.LateReads, conformance.LateLists, conformance.LateTags, conformance.UnsteadyLists,
			conformance.StateGoesBack, conformance.Throttled, conformance.OtherCase,
			// There is no quota. What a domain needs is taken when it starts, within the call that makes it.
			conformance.QuotaFreesLate, conformance.GivesUp, conformance.PartsReserved,
		},
		Cloud: conformance.Cloud{
			Resources: c.resources,
			Tags:      c.tags,
			Launch: func(ctx context.Context, tags map[string]string) (string, func(context.Context) error, error) {
				return c.launch(ctx, "another-"+random(), tags)
			},
			LaunchNamed: func(ctx context.Context, gone provider.Instance, tags map[string]string) (string,
				func(context.Context) error, error) {
				return c.launch(ctx, gone.NodeName, tags)
			},
			Inject: c.inject,
		},
	})
	c.faults.Wait()
}
