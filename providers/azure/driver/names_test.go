package driver

import (
	"reflect"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/azure/machine"
)

func TestTheLongestNamesFit(t *testing.T) {
	longest := provider.Machine{Name: strings.Repeat("long-", 12) + "abc", UID: "3"}
	if name := dataDiskName(naming.Instance("c", longest, "3-9999"), 63); len(name) > 80 {
		t.Errorf("Azure does not take the name %s of a disk", name)
	}
}

func TestTheScopeTellsTheParts(t *testing.T) {
	lun := func(n int32) machine.DataDisk { return machine.DataDisk{LUN: &n} }
	s := &machine.Spec{NetworkInterfaces: []machine.NetworkInterface{{PublicIP: true}, {}, {PublicIP: true}},
		DataDisks: []machine.DataDisk{lun(0), lun(63)}}
	scope := scopeOf(s)
	if scope != "n3.i0.i2.d0.d63" {
		t.Errorf("the scope is %q", scope)
	}
	read, ok := partsIn("vm", scope)
	if want := partsOf("vm", s); !ok || !reflect.DeepEqual(read, want) {
		t.Errorf("read back: %v, want %v", read, want)
	}
	for _, broken := range []string{"", "x", "n", "n-1", "nx", "d0", "n1.n1", "n1.x0", "n1..", "n1.d64", "n1.d0x"} {
		if p, ok := partsIn("vm", broken); ok {
			t.Errorf("%q was read as %v", broken, p)
		}
	}
}
