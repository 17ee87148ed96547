package driver

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

func TestNamesFitEverywhereAndAreOneMachines(t *testing.T) {
	seen := map[string]string{}
	for _, m := range []struct{ cluster, namespace, name, uid, attempt string }{
		{"c", "ns", "worker", "1", "1"},
		{"c", "ns", "worker", "1", "2"},
		{"c", "ns", "worker", "1", "odd"},
		{"c", "ns", "worker", "2", "1"},
		{"d", "ns", "worker", "1", "1"},
		{"c", "ns", strings.Repeat("long-", 12) + "abc", "3", "1"},
		{"c", "ns", strings.Repeat("long-", 12) + "abc", "3", "9999"},
		{"c", "ns", "-.Ünïcode_-", "4", "1"},
		{"c", "ns", "", "5", "1"},
	} {
		machine := provider.Machine{Namespace: m.namespace, Name: m.name, UID: types.UID(m.uid)}
		name := vmName(m.cluster, machine, m.uid+"-"+m.attempt)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%v is called %s: %v", m, name, problems)
		}
		if !strings.HasPrefix(name+"-", baseName(m.cluster, machine)+"-") {
			t.Errorf("%v is called %s, which does not begin with %s", m, name, baseName(m.cluster, machine))
		}
		if len(dataDiskName(name, 63)) > 80 {
			t.Errorf("the disk of %s has a name that Azure does not take", name)
		}
		if other := seen[name]; other != "" {
			t.Errorf("%v and %s are both called %s", m, other, name)
		}
		seen[name] = m.name + " " + m.uid + " " + m.attempt
	}
	machine := provider.Machine{Name: "worker", UID: "1"}
	if a, b := vmName("c", machine, "1-1"), vmName("c", machine, "1-1"); a != b {
		t.Errorf("the same token gives %s and %s", a, b)
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
