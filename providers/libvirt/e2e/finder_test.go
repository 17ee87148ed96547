//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/driver"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

const poolURI = "https://example.com/pool"

// Domains that no system manages are found, adopted and given back while they run. Their processes stay the same, and
// only Machinist's element in their metadata changes. A domain without the mark is found, but not adopted.
//
// Rule: libvirt-adopts-marked-only.
func TestFoundDomainsAreTakenOver(t *testing.T) {
	h := hypervisor(t)
	c := &cloud{h: h, dir: t.TempDir()}
	d, err := driver.New(driver.Options{Endpoints: onLoopback()})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"db-1", "web-1", "web-2"}
	pids, definitions, metadata := map[string]int{}, map[string]string{}, map[string]string{}
	dump := func(name string) string {
		t.Helper()
		text, err := c.virsh(t.Context(), "dumpxml", name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// metadataOf returns the elements in the metadata. libvirt changes their order when it changes one of them.
	metadataOf := func(name string) string {
		var all []string
		for _, uri := range []string{elementURI, poolURI} {
			text, _ := c.virsh(t.Context(), "metadata", name, "--uri", uri) // It fails without the element.
			all = append(all, text)
		}
		return strings.Join(all, "\n")
	}
	for _, name := range names {
		id, remove, err := c.launchLegacy(t.Context(), provider.Legacy{}, name, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		pool, _, _ := strings.Cut(name, "-")
		args := []string{"metadata", name, "--uri", poolURI, "--key", "pool", "--live", "--config",
			"--set", "<pool>" + pool + "</pool>"}
		if name == "web-2" {
			args = []string{"metadata", name, "--uri", elementURI, "--key", "machinist", "--live", "--config", "--remove"}
		}
		if _, err := c.virsh(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
		if pids[name], err = h.GuestPID(strings.TrimPrefix(id, "libvirt:///")); err != nil {
			t.Fatal(err)
		}
		definitions[name], metadata[name] = dump(name), metadataOf(name)
	}
	class := provider.Class{Spec: sample.Spec("memoryMiB", 64, "disks", nil, "volume.base", nil),
		Credentials: credentials(h, nil)}
	find := func() map[string]provider.FoundInstance {
		t.Helper()
		all, err := d.Find(t.Context(), provider.FindRequest{Class: class})
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]provider.FoundInstance{}
		for _, found := range all {
			byName[found.Name] = found
		}
		return byName
	}
	found := find()
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, names) {
		t.Fatalf("Find returns the domains %v, want %v", got, names)
	}
	machineOf := func(name string) provider.Machine {
		return provider.Machine{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}
	}
	for name, one := range found {
		want := []provider.Difference{{Field: "networks", Instance: "none", Class: "network " + sample.Network}}
		if !slices.Equal(one.Differences, want) || one.Instance.State != provider.StateRunning {
			t.Errorf("Find describes domain %s as %+v, want the differences %v", name, one, want)
		}
		adopt := provider.AdoptRequest{Machine: machineOf(name), Class: class, ClusterID: cluster,
			ProviderID: one.Instance.ProviderID}
		_, err := d.Adopt(t.Context(), adopt)
		if name == "web-2" {
			if !strings.Contains(one.NotAdoptable, "virsh metadata "+strings.TrimPrefix(adopt.ProviderID, "libvirt:///")) ||
				provider.CodeOf(err) != provider.FailedPrecondition {
				t.Errorf("domain %s without the mark: NotAdoptable is %q, and Adopt returns %v", name, one.NotAdoptable, err)
			}
			continue
		}
		if one.NotAdoptable != "" || err != nil || one.Metadata["pool"] != strings.Split(name, "-")[0] ||
			one.Metadata["machine.adoptable"] != "true" {
			t.Errorf("domain %s: Find returns %+v, and Adopt returns %v", name, one, err)
		}
	}
	for name, one := range find() {
		if adopted := name != "web-2"; adopted != (one.Instance.MachineUID == machineOf(name).UID) {
			t.Errorf("after the adoption, domain %s belongs to machine %q", name, one.Instance.MachineUID)
		}
		if is := dump(name); withoutMetadata(is) != withoutMetadata(definitions[name]) {
			t.Errorf("the definition of domain %s was %s, and is %s", name, definitions[name], is)
		}
		err := d.Disown(t.Context(), provider.DisownRequest{Machine: machineOf(name), Class: class, ClusterID: cluster,
			ProviderID: one.Instance.ProviderID})
		if err != nil {
			t.Error(err)
		}
		if is := metadataOf(name); is != metadata[name] {
			t.Errorf("before the adoption, domain %s had the metadata\n%s\nAfter the adoption was undone, it has\n%s", name,
				metadata[name], is)
		}
		pid, err := h.GuestPID(strings.TrimPrefix(one.Instance.ProviderID, "libvirt:///"))
		if err != nil || pid != pids[name] {
			t.Errorf("the process of domain %s was %d, and is %d, %v", name, pids[name], pid, err)
		}
	}
}
