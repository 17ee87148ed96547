package driver

import (
	"encoding/xml"
	"maps"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

// liveDomain is the XML of a running domain, as libvirt reports it.
const liveDomain = `<domain type='qemu' id='3'>
  <name>web-1</name>
  <title>Web server</title>
  <description>
    rack 7
  </description>
  <metadata>
    <machinist:machine xmlns:machinist="https://machinist.dev/libvirt/v1" adoptable="true"/>
    <pool:pool xmlns:pool="https://example.com/pool">blue</pool:pool>
    <app:pool xmlns:app="https://example.com/app" stage="prod">green</app:pool>
  </metadata>
  <memory unit='KiB'>131072</memory>
  <vcpu placement='static' current='1'>1</vcpu>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <devices>
    <disk type='file' device='cdrom'><source file='/seed.iso'/><target dev='sda'/></disk>
    <disk type='volume' device='disk'>
      <source pool='machines' volume='web-1' index='2'/>
      <backingStore type='file' index='4'>
        <source file='/var/lib/machines/snapshot'/>
        <backingStore type='file' index='5'><source file='/var/lib/machines/debian-12'/><backingStore/></backingStore>
      </backingStore>
      <target dev='vda'/>
    </disk>
    <disk type='volume' device='disk'><target dev='vdb'/><serial>data</serial></disk>
    <disk type='volume' device='disk'><target dev='vdc'/><serial>seed</serial></disk>
    <interface type='network'><mac address='52:54:00:00:00:01'/><source network='nodes' bridge='virbr1'/></interface>
  </devices>
</domain>`

func describeLive(t *testing.T, edits ...string) *description {
	t.Helper()
	described := &description{}
	if err := xml.Unmarshal([]byte(strings.NewReplacer(edits...).Replace(liveDomain)), described); err != nil {
		t.Fatal(err)
	}
	return described
}

func TestFoundDomainHasTagsAndNetworks(t *testing.T) {
	described := describeLive(t)
	want := map[string]string{"title": "Web server", "description": "rack 7", "machine.adoptable": "true", "pool": "blue",
		"pool.stage": "prod"}
	if got := described.tags(); !maps.Equal(got, want) {
		t.Errorf("got the tags %q, want %q", got, want)
	}
	if got := described.networks(); !slices.Equal(got, []string{"nodes", "virbr1"}) {
		t.Errorf("got the networks %q", got)
	}
}

func TestFoundDomainIsComparedWithClass(t *testing.T) {
	for name, test := range map[string]struct {
		edits, want []string
		changes     []any
	}{
		"as the class":       {},
		"processors":         {changes: []any{"vcpus", 2}, want: []string{"vcpus", "1", "2"}},
		"memory":             {changes: []any{"memoryMiB", 256}, want: []string{"memoryMiB", "128", "256"}},
		"virtualization":     {changes: []any{"domainType", "kvm"}, want: []string{"domainType", "qemu", "kvm"}},
		"architecture":       {edits: []string{"x86_64", "aarch64"}, want: []string{"architecture", "arm64", "amd64"}},
		"firmware":           {edits: []string{"<os>", "<os firmware='efi'>"}, want: []string{"firmware", "uefi", "bios"}},
		"loader":             {edits: []string{"<os>", "<os><loader type='pflash'>/x</loader>"}, want: []string{"firmware", "uefi", "bios"}},
		"kernel":             {changes: []any{"kernel", map[string]any{"image": "vmlinuz"}}, want: []string{"kernel", "no", "yes"}},
		"network":            {changes: []any{"networks[0].network", "other"}, want: []string{"networks", "network nodes", "network other"}},
		"bridge":             {edits: []string{"type='network'", "type='bridge'"}, want: []string{"networks", "bridge virbr1", "network nodes"}},
		"no interface":       {edits: []string{"interface", "hostdev"}, want: []string{"networks", "none", "network nodes"}},
		"more disks":         {changes: []any{"disks", nil}, want: []string{"disks", "1", "0"}},
		"another image":      {changes: []any{"volume.base", "debian-13"}, want: []string{"volume.base", "snapshot", "debian-13"}},
		"no image":           {edits: []string{"<source file='/var/lib/machines/snapshot'/>", "", "<source file='/var/lib/machines/debian-12'/>", ""}, want: []string{"volume.base", "none", "debian-12"}},
		"unknown image":      {edits: []string{"backingStore", "other"}},
		"class has no image": {changes: []any{"volume.base", nil}, want: []string{"volume.base", "snapshot", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := machine.ParseSpec(sample.Spec(test.changes...))
			if err != nil {
				t.Fatal(err)
			}
			var want []provider.Difference
			if test.want != nil {
				want = []provider.Difference{{Field: test.want[0], Instance: test.want[1], Class: test.want[2]}}
			}
			if got := describeLive(t, test.edits...).differences(&spec); !slices.Equal(got, want) {
				t.Errorf("got the differences %+v, want %+v", got, want)
			}
		})
	}
}
