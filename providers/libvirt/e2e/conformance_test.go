//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	c := &cloud{h: h, dir: t.TempDir()}
	strange, strangeKey := h.StrangerCertificate()
	conformance.Run(t, conformance.Config{
		New: func() (provider.Driver, error) {
			return driver.New(driver.Options{Wrap: c.faults.Wrap, CreateSettle: 20 * time.Second,
				ShutdownGrace: 3 * time.Second}) // its guests do not shut down
		},
		Class:     provider.Class{Spec: sample.Spec(), Credentials: credentials(h, nil)},
		OtherSpec: sample.Spec("vcpus", 2, "memoryMiB", 192),
		InvalidSpecs: []conformance.InvalidSpec{
			{Name: "no pool", Spec: sample.Spec("volume.pool", nil), Field: "volume.pool"},
			{Name: "no network", Spec: sample.Spec("networks", []any{}), Field: "networks"},
			{Name: "a path for a volume", Spec: sample.Spec("volume.base", "/etc/passwd"), Field: "volume.base"},
		},
		MalformedCredentials: []provider.Credentials{
			provider.NewCredentials(map[string][]byte{"password": []byte("what is this")}),
			credentials(h, map[string]string{"uri": "qemu+ssh://root@127.0.0.1/system"}),
			credentials(h, map[string]string{"uri": h.TLSURI() + "?pkipath=/etc/pki"}),
			credentials(h, map[string]string{"uri": h.TLSURI() + "?no_verify=1"}),
			credentials(h, map[string]string{"tls.key": "no key"}),
			credentials(h, map[string]string{"ca.crt": ""}),
		},
		RejectedCredentials: credentials(h, map[string]string{"tls.crt": string(strange), "tls.key": string(strangeKey)}),
		PublicCredentials:   []string{"uri", "ca.crt", "tls.crt"},
		Version:             "v1.36.3",
		Timeout:             2 * time.Minute,
		Instances:           3,
		Full:                true,
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

func random() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// cloud reaches the hypervisor past the driver, by libvirt's own client.
type cloud struct {
	h      *libvirt.Hypervisor
	faults faulty.Faults
	dir    string
}

// resources are the domains and the volumes.
func (c *cloud) resources(ctx context.Context) ([]string, error) {
	var all []string
	domains, err := c.h.Virsh(ctx, "list", "--all", "--uuid")
	if err != nil {
		return nil, err
	}
	for _, uuid := range strings.Fields(domains) {
		all = append(all, "domain/"+uuid)
	}
	// Also files that libvirt does not know of.
	entries, err := os.ReadDir(c.h.PoolPath())
	for _, e := range entries {
		all = append(all, "volume/"+e.Name())
	}
	return all, err
}

const elementURI = "https://machinist.dev/libvirt/v1"

// tags are Machinist's element of a domain's metadata.
func (c *cloud) tags(ctx context.Context, providerID string) (map[string]string, error) {
	uuid := strings.TrimPrefix(providerID, "libvirt:///")
	text, err := c.h.Virsh(ctx, "metadata", uuid, "--uri", elementURI)
	if err != nil {
		return nil, err
	}
	return map[string]string{"domain/metadata": text}, nil
}

// launch makes a domain without disks that is not the driver's.
func (c *cloud) launch(ctx context.Context, name string, tags map[string]string) (string, func(context.Context) error,
	error) {
	attributes := ""
	for tag, attribute := range map[string]string{provider.TagCluster: "cluster", provider.TagMachineUID: "uid",
		provider.TagMachine: "machine"} {
		if value, given := tags[tag]; given {
			attributes += fmt.Sprintf(" %s=%q", attribute, value)
		}
	}
	path := filepath.Join(c.dir, name+".xml")
	xml := fmt.Sprintf(`<domain type="qemu"><name>%s</name><metadata><m:machine xmlns:m=%q adoptable="true"%s/></metadata>
		<memory unit="MiB">64</memory><os><type arch="x86_64" machine="q35">hvm</type></os></domain>`, name, elementURI,
		attributes)
	if err := os.WriteFile(path, []byte(xml), 0o600); err != nil {
		return "", nil, err
	}
	if _, err := c.h.Virsh(ctx, "define", path); err != nil {
		return "", nil, err
	}
	if _, err := c.h.Virsh(ctx, "start", name); err != nil {
		return "", nil, err
	}
	uuid, err := c.h.Virsh(ctx, "domuuid", name)
	return "libvirt:///" + uuid, func(ctx context.Context) error {
		for _, args := range [][]string{{"destroy", uuid}, {"undefine", uuid}} {
			if _, err := c.h.Virsh(ctx, args...); err != nil && !strings.Contains(err.Error(), "failed to get domain") &&
				!strings.Contains(err.Error(), "is not running") {
				return err
			}
		}
		return nil
	}, err
}

// inject makes the hypervisor behave as a fault of the suite wants it.
func (c *cloud) inject(ctx context.Context, f conformance.Fault) (func(), error) {
	is := func(procedures ...uint32) func(uint32) bool {
		return func(procedure uint32) bool {
			for _, p := range procedures {
				if p == procedure {
					return true
				}
			}
			return false
		}
	}
	r := faulty.Rule{Skip: f.Skip}
	switch f.Kind {
	case conformance.LostCreate:
		r.Only, r.Lose = is(faulty.DomainCreateXML), true
	case conformance.Unavailable:
		r.Cut = true
	case conformance.Exhausted:
		r.Only = is(faulty.DomainCreateXML)
		r.Refuse = &faulty.Denial{Number: faulty.ErrInternal, Message: "internal error: process exited while connecting to " +
			"monitor: qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory"}
	case conformance.Unauthenticated:
		r.Refuse = &faulty.Denial{Number: faulty.ErrAuthFailed, Message: "authentication failed: Failed to verify client's identity"}
	case conformance.PermissionDenied:
		r.Refuse = &faulty.Denial{Number: faulty.ErrAccessDenied, Message: "access denied"}
	case conformance.Hanging:
		r.Hang = true
	case conformance.DoneLate:
		r.Only, r.Late = faulty.Changes, f.For
		r.Refuse = &faulty.Denial{Number: faulty.ErrRPC, Message: "Cannot write data: Broken pipe"}
	case conformance.HugeAnswers:
		r.Pad = 256 << 20
	case conformance.PartsInUse:
		r.Only, r.AfterEnd = is(faulty.StorageVolDelete), f.For
		r.Refuse = &faulty.Denial{Number: faulty.ErrOperationInvalid,
			Message: "Requested operation is not valid: volume 'machine' is still in use."}
	case conformance.PartsRemain, conformance.UntaggedParts, conformance.FiltersIgnored:
		// Volumes remain every time, and never have tags, and lists are always of everything.
		return func() {}, nil
	case conformance.PartsGoneFirst:
		return func() {}, c.dropVolumes(ctx)
	case conformance.OperationFails:
		return func() {}, c.failOperations(ctx)
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return c.faults.Inject(r), nil
}

// dropVolumes removes all volumes of machines, one half by libvirt and the other behind its back.
func (c *cloud) dropVolumes(ctx context.Context) error {
	entries, err := os.ReadDir(c.h.PoolPath())
	if err != nil {
		return err
	}
	for i, e := range entries {
		switch {
		case !strings.HasPrefix(e.Name(), "machinist_"):
		case i%2 == 0:
			_, err = c.h.Virsh(ctx, "vol-delete", "--pool", libvirt.Pool, e.Name())
		default:
			err = os.Remove(filepath.Join(c.h.PoolPath(), e.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failOperations tries to save each domain where there is no folder.
func (c *cloud) failOperations(ctx context.Context) error {
	domains, err := c.h.Virsh(ctx, "list", "--uuid")
	if err != nil {
		return err
	}
	for _, uuid := range strings.Fields(domains) {
		if _, err := c.h.Virsh(ctx, "save", uuid, "/nowhere/state"); err == nil {
			return fmt.Errorf("domain %s was saved into a folder that is not there", uuid)
		}
	}
	return nil
}
