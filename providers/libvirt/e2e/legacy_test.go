//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/hack/libvirt"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

// legacyOf returns the description of a machine of machine.openshift.io. The keys of the certificate are in the Secret
// of the Migration.
func legacyOf(c *cloud, uri string) provider.Legacy {
	certificate, key := c.h.ClientCertificate()
	spec := fmt.Sprintf(`{"apiVersion":"libvirtproviderconfig.openshift.io/v1beta1","kind":"LibvirtMachineProviderConfig",`+
		`"autostart":false,"cloudInit":{"userDataSecret":"worker-user-data","sshAccess":false},"domainMemory":64,`+
		`"domainVcpu":1,"networkInterfaceName":%q,"networkInterfaceAddress":"192.0.2.0/24","uri":%q,`+
		`"volume":{"baseVolumeID":%q,"poolName":%q,"volumeName":"","volumeSize":"1Gi"}}`, libvirt.Network, uri, sample.Base,
		libvirt.PoolName)
	return provider.Legacy{Source: provider.SourceOpenShift, Provider: "LibvirtMachineProviderConfig",
		Spec: provider.NewSecret([]byte(spec)), Credentials: provider.NewCredentials(map[string][]byte{
			"ca.crt": c.h.CA(), "tls.crt": certificate, "tls.key": key})}
}

// launchLegacy creates a domain with a root volume as the actuator of machine.openshift.io does. An administrator has
// allowed its adoption.
func (c *cloud) launchLegacy(ctx context.Context, _ provider.Legacy, name string, _ types.UID) (string,
	func(context.Context) error, error) {
	if _, err := c.virsh(ctx, "vol-create-as", libvirt.PoolName, name, "1M", "--format", "qcow2"); err != nil {
		return "", nil, err
	}
	disk, err := c.virsh(ctx, "vol-path", "--pool", libvirt.PoolName, name)
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(c.dir, name+".xml")
	definition := fmt.Sprintf(`<domain type="qemu"><name>%s</name><memory unit="MiB">64</memory><vcpu>1</vcpu>
		<os><type arch="x86_64">hvm</type></os><devices><disk type="file" device="disk"><driver name="qemu" type="qcow2"/>
		<source file="%s"/><target dev="vda" bus="virtio"/></disk></devices></domain>`, name, disk)
	if err := os.WriteFile(path, []byte(definition), 0o600); err != nil {
		return "", nil, err
	}
	for _, args := range [][]string{{"define", path}, {"start", name}, {"metadata", name, "--uri", elementURI, "--key",
		"machinist", "--live", "--config", "--set", `<machine adoptable="true"/>`}} {
		if _, err := c.virsh(ctx, args...); err != nil {
			return "", nil, err
		}
	}
	uuid, err := c.virsh(ctx, "domuuid", name)
	return "libvirt:///" + uuid, func(ctx context.Context) error {
		for _, args := range [][]string{{"destroy", uuid}, {"undefine", uuid},
			{"vol-delete", "--pool", libvirt.PoolName, name}} {
			if _, err := c.virsh(ctx, args...); err != nil && !strings.Contains(err.Error(), "failed to get") &&
				!strings.Contains(err.Error(), "is not running") {
				return err
			}
		}
		return nil
	}, err
}

// The actuator of machine.openshift.io created 20 domains. Machinist takes them over while they run. The UUIDs and the
// processes stay the same. Then Machinist deletes the domains. Their volumes remain.
func TestDomainsOfOtherSystemAreTakenOver(t *testing.T) {
	h := hypervisor(t)
	c := &cloud{h: h, dir: t.TempDir()}
	legacy := legacyOf(c, h.TLSURI())
	d, err := driver.New(driver.Options{Endpoints: onLoopback()})
	if err != nil {
		t.Fatal(err)
	}
	type domain struct {
		machine        provider.Machine
		id, definition string
		pid            int
	}
	domains := make([]domain, 20)
	for i := range domains {
		name := fmt.Sprintf("shop-x7-worker-%d", i)
		id, remove, err := c.launchLegacy(t.Context(), legacy, name, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		uuid := strings.TrimPrefix(id, "libvirt:///")
		domains[i] = domain{machine: provider.Machine{Namespace: "default", Name: name, UID: types.UID(uuid)}, id: id}
		if domains[i].pid, err = h.GuestPID(uuid); err != nil {
			t.Fatal(err)
		}
		if domains[i].definition, err = c.virsh(t.Context(), "dumpxml", uuid); err != nil {
			t.Fatal(err)
		}
	}
	found, err := d.Locate(t.Context(), provider.LocateRequest{Legacy: legacy})
	if err != nil {
		t.Fatal(err)
	}
	located := map[string]provider.LocatedInstance{}
	for _, in := range found {
		located[in.Instance.ProviderID] = in
	}
	imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacy, Facts: located[domains[0].id].Facts})
	if err != nil {
		t.Fatal(err)
	}
	class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
	for _, o := range domains {
		in := located[o.id]
		if in.Machine != o.machine.Name || in.NotAdoptable != "" || in.Instance.NodeName != o.machine.Name {
			t.Fatalf("Locate returns %+v for domain %s", in, o.machine.Name)
		}
		if _, err := d.Adopt(t.Context(), provider.AdoptRequest{Machine: o.machine, Class: class, ClusterID: cluster,
			ProviderID: o.id}); err != nil {
			t.Fatal(err)
		}
		result, err := d.Update(t.Context(), provider.UpdateRequest{Machine: o.machine, Class: class, ClusterID: cluster,
			ProviderID: o.id, Scope: in.Instance.Scope})
		if err != nil || result.Outcome != provider.UpdateDone || result.Instance.State != provider.StateRunning {
			t.Errorf("Update of domain %s: %+v, %v", o.machine.Name, result, err)
		}
		uuid := strings.TrimPrefix(o.id, "libvirt:///")
		if pid, err := h.GuestPID(uuid); pid != o.pid {
			t.Errorf("the process of domain %s was %d, and is %d, %v", o.machine.Name, o.pid, pid, err)
		}
		definition, err := c.virsh(t.Context(), "dumpxml", uuid)
		if err != nil || withoutMetadata(definition) != withoutMetadata(o.definition) {
			t.Errorf("the definition of domain %s was %s, and is %s, %v", o.machine.Name, o.definition, definition, err)
		}
	}
	for _, o := range domains {
		result, err := d.Delete(t.Context(), provider.DeleteRequest{Machine: o.machine, Class: class, ClusterID: cluster,
			ProviderID: o.id, Scope: located[o.id].Instance.Scope})
		if err != nil || !result.Gone {
			t.Errorf("Delete of domain %s: %+v, %v", o.machine.Name, result, err)
		}
		if _, err := c.virsh(t.Context(), "vol-path", "--pool", libvirt.PoolName, o.machine.Name); err != nil {
			t.Errorf("the volume of domain %s: %v", o.machine.Name, err)
		}
	}
}

func withoutMetadata(definition string) string {
	before, rest, _ := strings.Cut(definition, "<metadata>")
	_, after, _ := strings.Cut(rest, "</metadata>")
	return before + after
}
