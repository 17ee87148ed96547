package naming_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
)

func TestNamesAreUniqueDNSLabels(t *testing.T) {
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
		name := naming.Instance(m.cluster, machine, m.uid+"-"+m.attempt)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%v has the name %s: %v", m, name, problems)
		}
		if !naming.IsOf(name, naming.Base(m.cluster, machine)) {
			t.Errorf("%v has the name %s, which does not begin with %s", m, name, naming.Base(m.cluster, machine))
		}
		if other := seen[name]; other != "" {
			t.Errorf("%v and %s both have the name %s", m, other, name)
		}
		seen[name] = m.name + " " + m.uid + " " + m.attempt
	}
	machine := provider.Machine{Name: "worker", UID: "1"}
	if a, b := naming.Instance("c", machine, "1-1"), naming.Instance("c", machine, "1-1"); a != b {
		t.Errorf("the same token results in %s and %s", a, b)
	}
}
