package machine_test

import (
	"errors"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

type object = map[string]any

// fullSpec returns a providerSpec with every field that can be combined with the others.
func fullSpec() []byte {
	return sample.Spec(
		"vcpus", 512, "memoryMiB", 16<<20, "cpu", object{"mode": "custom", "model": "EPYC-Rome"}, "domainType", "kvm",
		"architecture", "arm64", "machineType", "virt-7.2", "firmware", "uefi",
		"kernel", object{"pool": "kernels", "image": "vmlinuz", "initrd": "initrd.img", "commandLine": "console=ttyS0"},
		"volume", object{"pool": "machines", "base": "Debian 12 (generic).qcow2", "basePool": "images", "sizeGiB": 65536},
		"disks[0]", object{"name": "0123456789abcdef", "sizeGiB": 65536, "pool": "fast"},
		"disks[1]", object{"name": "b", "sizeGiB": 1},
		"networks[1]", object{"bridge": "br0", "model": "e1000e"}, "networks[2]", object{"user": true},
		"addressSource", "agent", "seedPool", "seeds", "networkConfig", "version: 2\n", "consoleLog", true, "zone", "rack-1",
	)
}

func TestFullSpecIsAccepted(t *testing.T) {
	s, err := machine.ParseSpec(fullSpec())
	if err != nil {
		t.Fatal(err)
	}
	if s.Disks[1].Pool != "machines" || s.Networks[0].Model != "virtio" || s.CPU.Mode != machine.CPUCustom {
		t.Errorf("got wrong defaults: %+v", s)
	}
}

func TestMissingFieldsGetDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		changes                            []any
		machineType, firmware, cpu, domain string
	}{
		"amd64":     {[]any{"domainType", nil}, "q35", "bios", "host-passthrough", "kvm"},
		"emulated":  {nil, "q35", "bios", "maximum", "qemu"},
		"arm64":     {[]any{"architecture", "arm64", "domainType", "kvm"}, "virt", "uefi", "host-passthrough", "kvm"},
		"CPU model": {[]any{"cpu", object{"model": "Nehalem"}}, "q35", "bios", "custom", "qemu"},
	} {
		s, err := machine.ParseSpec(sample.Spec(c.changes...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.MachineType != c.machineType || s.Firmware != c.firmware || s.CPU.Mode != c.cpu || s.DomainType != c.domain {
			t.Errorf("%s: got machine type %q, firmware %q, CPU %q, domain type %q", name, s.MachineType, s.Firmware, s.CPU.Mode,
				s.DomainType)
		}
		if s.SeedPool != "machines" || s.Volume.BasePool != "machines" || s.Disks[0].Pool != "machines" ||
			s.AddressSource != "lease" {
			t.Errorf("%s: got wrong defaults: %+v", name, s)
		}
	}
}

// Rule: libvirt-seeds-private.
func TestInvalidValuesAreRefusedWithField(t *testing.T) {
	disk := func(name string) object { return object{"name": name, "sizeGiB": 1} }
	for _, c := range []struct {
		field     string
		value     any
		wantField string // default: field
	}{
		{"vcpus", 0, ""}, {"vcpus", 513, ""}, {"memoryMiB", 63, ""}, {"memoryMiB", 16<<20 + 1, ""},
		{"cpu", object{"mode": "best"}, "cpu.mode"}, {"cpu", object{}, "cpu.model"},
		{"cpu", object{"mode": "maximum", "model": "EPYC"}, "cpu.model"}, {"cpu", object{"mode": "host-model"}, "cpu.mode"},
		{"cpu", object{"model": "<EPYC>"}, "cpu.model"},
		{"domainType", "xen", ""}, {"architecture", "x86_64", ""}, {"machineType", "q35,accel=kvm", ""}, {"firmware", "efi", ""},
		{"kernel", object{}, "kernel.image"}, {"kernel", object{"image": "/boot/vmlinuz"}, "kernel.image"},
		{"kernel", object{"image": "k", "initrd": "../i"}, "kernel.initrd"},
		{"kernel", object{"image": "k", "commandLine": "a\nb"}, "kernel.commandLine"},
		{"kernel", object{"image": "k", "commandLine": strings.Repeat("x", 2049)}, "kernel.commandLine"},
		{"volume", nil, "volume.pool"}, {"volume.pool", "", ""}, {"volume.base", "/etc/shadow", ""}, {"volume.base", "..", ""},
		{"volume.base", "machinist_prod_9d3cbd0e_1_seed", ""},
		{"kernel", object{"image": "k", "initrd": "machinist_prod_9d3cbd0e_1_seed"}, "kernel.initrd"},
		{"volume.sizeGiB", 0, ""}, {"volume.sizeGiB", 65537, ""},
		{"volume", object{"pool": "p", "basePool": "b", "sizeGiB": 1}, "volume.basePool"},
		{"disks[0].name", "", ""}, {"disks[0].name", "Data", ""}, {"disks[0].name", "0123456789abcdefg", ""},
		{"disks[0].name", "a_b", ""}, {"disks[1]", disk("data"), "disks[1].name"}, {"disks[0].sizeGiB", -1, ""},
		{"disks[0].pool", "a/b", ""}, {"disks", make([]object, 17), "disks"},
		{"networks", []any{}, ""}, {"networks", make([]object, 9), "networks"}, {"networks[0]", object{}, ""},
		{"networks[0]", object{"network": "n", "bridge": "b"}, ""}, {"networks[0]", object{"user": false}, ""},
		{"networks[0]", object{"bridge": "a-bridge-with-a-long-name"}, "networks[0].bridge"},
		{"networks[0].model", "ne2000", ""}, {"addressSource", "arp", ""}, {"seedPool", "a/b", ""},
		{"networkConfig", strings.Repeat("x", 16<<10+1), ""}, {"networkConfig", "a\x00b", ""},
		{"zone", "rack 1", ""}, {"zone", strings.Repeat("z", 64), ""}, {"zones", "rack-1", ""},
	} {
		_, err := machine.ParseSpec(sample.Spec(c.field, c.value))
		want := c.wantField
		if want == "" {
			want = c.field
		}
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != provider.InvalidArgument || e.Field != want {
			t.Errorf("%s = %v: got %v, want InvalidArgument with the field %s", c.field, c.value, err, want)
		}
	}
}
