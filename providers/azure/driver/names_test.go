package driver

import (
	"reflect"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/azure/machine"
)

func TestLongestNamesFit(t *testing.T) {
	longest := provider.Machine{Name: strings.Repeat("long-", 12) + "abc", UID: "3"}
	if name := dataDiskName(naming.Instance("c", longest, "3-9999"), 63); len(name) > 80 {
		t.Errorf("the disk name %s is longer than the 80 characters that Azure accepts", name)
	}
}

func TestScopeEncodesParts(t *testing.T) {
	lun := func(n int32) machine.DataDisk { return machine.DataDisk{LUN: &n} }
	s := &machine.Spec{NetworkInterfaces: []machine.NetworkInterface{{PublicIP: true}, {}, {PublicIP: true}},
		DataDisks: []machine.DataDisk{lun(0), lun(63)}}
	scope := scopeOf(s)
	if scope != "n3.i0.i2.d0.d63" {
		t.Errorf("got scope %q", scope)
	}
	read, ok := partsIn("vm", scope)
	if want := partsOf("vm", s); !ok || !reflect.DeepEqual(read, want) {
		t.Errorf("partsIn: got %v, want %v", read, want)
	}
	for _, invalid := range []string{"", "x", "n", "n-1", "nx", "d0", "n1.n1", "n1.x0", "n1..", "n1.d64", "n1.d0x"} {
		if p, ok := partsIn("vm", invalid); ok {
			t.Errorf("partsIn(%q): got %v, want false", invalid, p)
		}
	}
}
