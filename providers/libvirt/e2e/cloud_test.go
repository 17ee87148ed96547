//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/providers/libvirt/faulty"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

func random() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// cloud uses libvirt's own client, independently of the driver.
type cloud struct {
	h      *libvirt.Hypervisor
	faults faulty.Faults
	dir    string
	// uri is the URI of the simulated hypervisor. It is empty for QEMU.
	uri string
}

func (c *cloud) virsh(ctx context.Context, args ...string) (string, error) {
	return c.h.VirshAt(ctx, cmp.Or(c.uri, c.h.URI()), args...)
}

// prepare creates the pool, the base volume and the network of the simulated hypervisor, to which the classes refer.
// The method keeps a connection open, because the hypervisor is reset when its last connection is closed.
func (c *cloud) prepare(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("unix", c.h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := golibvirt.NewWithDialer(dialer{conn}).ConnectToURI("test:///default"); err != nil {
		t.Fatal(err)
	}
	network := filepath.Join(c.dir, "network.xml")
	xml := fmt.Sprintf(`<network><name>%s</name><ip address="192.0.2.1" prefix="24"><dhcp><range start="192.0.2.2"
		end="192.0.2.254"/></dhcp></ip></network>`, libvirt.Network)
	if err := os.WriteFile(network, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pool-define-as", libvirt.PoolName, "dir", "--target", "/" + libvirt.PoolName}, {"pool-build", libvirt.PoolName},
		{"pool-start", libvirt.PoolName}, {"vol-create-as", libvirt.PoolName, sample.Base, "1M"}, {"net-create", network},
	} {
		if _, err := c.virsh(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

// dialer passes an open connection to the library, because the library always calls Dial.
type dialer struct{ conn net.Conn }

func (d dialer) Dial() (net.Conn, error) { return d.conn, nil }

func (c *cloud) resources(ctx context.Context) ([]string, error) {
	var all []string
	domains, err := c.virsh(ctx, "list", "--all", "--uuid")
	if err != nil {
		return nil, err
	}
	for _, uuid := range strings.Fields(domains) {
		all = append(all, "domain/"+uuid)
	}
	volumes, err := c.volumes(ctx)
	for _, v := range volumes {
		all = append(all, "volume/"+v)
	}
	return all, err
}

// volumes returns the names of all volumes in the pool. For QEMU, this includes files that libvirt has not detected.
func (c *cloud) volumes(ctx context.Context) (names []string, err error) {
	if c.uri != "" {
		list, err := c.virsh(ctx, "vol-list", libvirt.PoolName)
		for line := range strings.Lines(list) {
			names = append(names, strings.Fields(line)[0])
		}
		return names, err
	}
	entries, err := os.ReadDir(c.h.PoolPath())
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (c *cloud) isOn(ctx context.Context, providerID string) (bool, error) {
	state, err := c.virsh(ctx, "domstate", strings.TrimPrefix(providerID, "libvirt:///"))
	return strings.TrimSpace(state) != "shut off", err
}

const elementURI = "https://machinist.dev/libvirt/v1"

func (c *cloud) tags(ctx context.Context, providerID string) (map[string]string, error) {
	uuid := strings.TrimPrefix(providerID, "libvirt:///")
	text, err := c.virsh(ctx, "metadata", uuid, "--uri", elementURI)
	if err != nil {
		return nil, err
	}
	return map[string]string{"domain/metadata": text}, nil
}

// createDomain creates a domain without disks. It does not use the driver. It returns the provider ID and a function
// that deletes the domain.
func (c *cloud) createDomain(ctx context.Context, name string, tags map[string]string) (string,
	func(context.Context) error,
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
	if _, err := c.virsh(ctx, "define", path); err != nil {
		return "", nil, err
	}
	if _, err := c.virsh(ctx, "start", name); err != nil {
		return "", nil, err
	}
	uuid, err := c.virsh(ctx, "domuuid", name)
	return "libvirt:///" + uuid, func(ctx context.Context) error {
		for _, args := range [][]string{{"destroy", uuid}, {"undefine", uuid}} {
			if _, err := c.virsh(ctx, args...); err != nil && !strings.Contains(err.Error(), "failed to get domain") &&
				!strings.Contains(err.Error(), "is not running") {
				return err
			}
		}
		return nil
	}, err
}

// inject activates a fault and returns a function that removes it.
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
	outOfMemory := &faulty.Refusal{Number: faulty.ErrInternal,
		Message: "internal error: process exited while connecting to " +
			"monitor: qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory"}
	r := faulty.Rule{Skip: f.Skip}
	switch f.Kind {
	case conformance.LostCreate:
		r.Match, r.LosesAnswer = is(faulty.DomainCreateXML), true
	case conformance.Unavailable:
		r.DropsCall = true
	case conformance.Exhausted:
		r.Match, r.Refuse = is(faulty.DomainCreateXML), outOfMemory
	case conformance.NoCapacityToStart:
		r.Match, r.Refuse = is(faulty.DomainCreate), outOfMemory
	case conformance.Unauthenticated:
		r.Refuse = &faulty.Refusal{Number: faulty.ErrAuthFailed,
			Message: "authentication failed: Failed to verify client's identity"}
	case conformance.PermissionDenied:
		r.Refuse = &faulty.Refusal{Number: faulty.ErrAccessDenied, Message: "access denied"}
	case conformance.Hanging:
		r.Hang = true
	case conformance.DoneLate:
		r.Match, r.Late = faulty.IsChange, f.Duration
		r.Refuse = &faulty.Refusal{Number: faulty.ErrRPC, Message: "Cannot write data: Broken pipe"}
	case conformance.HugeAnswers:
		r.Pad = 256 << 20
	case conformance.PartsInUse:
		r.Match, r.AfterEnd = is(faulty.StorageVolDelete), f.Duration
		r.Refuse = &faulty.Refusal{Number: faulty.ErrOperationInvalid,
			Message: "Requested operation is not valid: volume 'machine' is still in use."}
	case conformance.PartsRemain, conformance.UntaggedParts, conformance.FiltersIgnored:
		// libvirt always behaves like this: volumes remain, they have no tags, and lists are not filtered.
		return func() {}, nil
	case conformance.PartsGoneFirst:
		return func() {}, c.dropVolumes(ctx)
	case conformance.OperationFails:
		return func() {}, c.failOperations(ctx)
	case conformance.GuestClaims:
		macs, err := c.hardwareAddresses(ctx)
		if err != nil {
			return nil, err
		}
		r.Match, r.Answer = is(faulty.DomainInterfaceAddresses), faulty.InterfacesWith(f.Address, macs...)
	default:
		return nil, fmt.Errorf("fault %s: %w", f.Kind, errors.ErrUnsupported)
	}
	return c.faults.Inject(r), nil
}

func (c *cloud) hardwareAddresses(ctx context.Context) (macs []string, err error) {
	domains, err := c.virsh(ctx, "list", "--uuid")
	if err != nil {
		return nil, err
	}
	for _, uuid := range strings.Fields(domains) {
		xml, err := c.virsh(ctx, "dumpxml", uuid)
		if err != nil {
			return nil, err
		}
		for _, match := range macFormat.FindAllStringSubmatch(xml, -1) {
			macs = append(macs, match[1])
		}
	}
	return macs, nil
}

var macFormat = regexp.MustCompile(`<mac address='([^']+)'`)

// dropVolumes deletes all volumes of machines, half of them through libvirt and half as files.
func (c *cloud) dropVolumes(ctx context.Context) error {
	volumes, err := c.volumes(ctx)
	if err != nil {
		return err
	}
	for i, v := range volumes {
		switch {
		case !strings.HasPrefix(v, "machinist_"):
		case i%2 == 0, c.uri != "": // Simulated volumes are not files.
			_, err = c.virsh(ctx, "vol-delete", "--pool", libvirt.PoolName, v)
		default:
			err = os.Remove(filepath.Join(c.h.PoolPath(), v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failOperations makes an operation on each domain fail: it saves the domain to a missing directory.
func (c *cloud) failOperations(ctx context.Context) error {
	domains, err := c.virsh(ctx, "list", "--uuid")
	if err != nil {
		return err
	}
	for _, uuid := range strings.Fields(domains) {
		if _, err := c.virsh(ctx, "save", uuid, "/nowhere/state"); err == nil {
			return fmt.Errorf("saving domain %s to a directory that does not exist succeeded", uuid)
		}
	}
	return nil
}
