package machine_test

import (
	"errors"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
	"machinist.dev/machinist/providers/vsphere/machine/sample"
)

func TestInvalidFieldsAreNamed(t *testing.T) {
	many := func(n int, entry any) []any {
		var all []any
		for range n {
			all = append(all, entry)
		}
		return all
	}
	type object = map[string]any
	for _, test := range []struct {
		field string
		value any
		want  string // the field in the error, or "" if the value is valid
	}{
		{"vcenter", "lab-2", ""},
		{"vcenter", "vcenter.example", "vcenter"},
		{"vcenter", nil, "vcenter"},
		{"datacenter", "europe/dc-1", ""},
		{"datacenter", "/dc-1", "datacenter"},
		{"datacenter", nil, "datacenter"},
		{"folder", "a//b", "folder"},
		{"folder", "a/", "folder"},
		{"folder", "a\nb", "folder"},
		{"folder", nil, "folder"},
		{"template", strings.Repeat("x", 81), "template"},
		{"cluster", "", "cluster"},
		{"resourcePool", "pool/child", ""},
		{"datastore", nil, "datastore"},
		{"datastoreCluster", "both", "datastore"},
		{"networks", []any{}, "networks"},
		{"networks", many(11, object{"path": "a"}), "networks"},
		{"networks", many(2, object{"path": "a", "adapter": "e1000e"}), ""},
		{"networks", []any{object{"path": ""}}, "networks[0].path"},
		{"networks", []any{object{"path": "a", "adapter": "ne2000"}}, "networks[0].adapter"},
		{"networks", []any{object{"path": "a", "address": "10.0.0.5/24"}}, "networks[0].address"},
		{"cpus", 0, "cpus"},
		{"cpus", 769, "cpus"},
		{"coresPerSocket", 2, ""},
		{"coresPerSocket", 3, "coresPerSocket"},
		{"memoryMiB", 4095, "memoryMiB"},
		{"memoryMiB", 0, "memoryMiB"},
		{"rootDiskGiB", -1, "rootDiskGiB"},
		{"rootDiskGiB", 20, ""},
		{"disks", []any{object{"sizeGiB": 0}}, "disks[0].sizeGiB"},
		{"disks", many(14, object{"sizeGiB": 1}), "disks"},
		{"vgpuProfiles", []any{"grid_t4-4q"}, ""},
		{"vgpuProfiles", []any{""}, "vgpuProfiles[0]"},
		{"vgpuProfiles", many(5, "a"), "vgpuProfiles"},
		{"pciDevices", []any{object{"vendorID": 4318, "deviceID": 0}}, "pciDevices[0].deviceID"},
		{"pciDevices", []any{object{"vendorID": 65536, "deviceID": 1}}, "pciDevices[0].vendorID"},
		{"region", "a b", "region"},
		{"zone", strings.Repeat("x", 64), "zone"},
		{"password", "secret", "password"},
	} {
		_, err := machine.ParseSpec(sample.Spec(test.field, test.value))
		var e *provider.Error
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v: %v", test.field, test.value, err)
		case test.want != "" && (!errors.As(err, &e) || e.Field != test.want || e.Code != provider.InvalidArgument):
			t.Errorf("%s: %v: got %v, want an error about %s", test.field, test.value, err, test.want)
		}
	}
}

func TestDiskOfLinkedCloneCannotGrow(t *testing.T) {
	_, err := machine.ParseSpec(sample.Spec("linkedClone", true, "rootDiskGiB", 20))
	if e, ok := errors.AsType[*provider.Error](err); !ok || e.Field != "rootDiskGiB" {
		t.Errorf("got %v, want an error about rootDiskGiB", err)
	}
}

// The virtual machines of a class must be found although another field has become invalid.
func TestLocationOfInvalidClass(t *testing.T) {
	at, err := machine.ParseLocation(sample.Spec("cpus", -1, "unknown", true))
	if err != nil || at != (machine.Location{VCenter: sample.VCenter, Datacenter: sample.Datacenter,
		Folder: sample.Folder}) {
		t.Errorf("got %+v, %v", at, err)
	}
	for field, value := range map[string]any{"vcenter": "a.b", "datacenter": "", "folder": nil, "kind": "Other"} {
		if _, err := machine.ParseLocation(sample.Spec(field, value)); provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("%s: %v: got %v, want InvalidArgument", field, value, err)
		}
	}
}
