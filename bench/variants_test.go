package main

import (
	"slices"
	"strings"
	"testing"
)

func TestChosenVariantsIncludeComparisons(t *testing.T) {
	keys := func(chosen []variant) (keys []string) {
		for _, v := range chosen {
			keys = append(keys, v.key)
		}
		return keys
	}
	for _, test := range []struct{ wanted, want []string }{
		{nil, keys(variants)},
		{[]string{"schema", "cel"}, []string{"all", "cel", "schema"}},
		{[]string{"audit"}, []string{"all", "roles", "audit"}},
	} {
		chosen, err := chosenVariants(test.wanted)
		if got := keys(chosen); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, %v; want %q", test.wanted, got, err, test.want)
		}
	}
	if chosen, err := chosenVariants([]string{"none"}); err == nil {
		t.Errorf("unknown key: got %q, want an error", keys(chosen))
	}
}

func TestCostsAreMediansAtEqualSpeed(t *testing.T) {
	kind := writeKinds[0].name
	costs := writeSamples{
		{kind, "a", 100, 7, 1}, {kind, "a", 50, 8, 2}, {kind, "a", 900, 9, 3}, // one disturbed sample
		{kind, "b", 20, 4, 2},
	}.costs()
	if got := costs[0]; got.Write != kind || got.Microseconds["a"] != 50 || got.Microseconds["b"] != 20 ||
		got.KiB["a"] != 8 || got.KiB["b"] != 4 {
		t.Errorf("got %+v", got)
	}
	if got := (writeSamples{}).costs(); got != nil {
		t.Errorf("without a complete round: got %+v, want nil", got)
	}
}

func TestHeapProfileIsParsed(t *testing.T) {
	got, err := allocatedBy("heap profile: 1: 2 [3: 4]\n# runtime.MemStats\n# Alloc = 5\n# TotalAlloc = 123456\n# Sys = 7\n")
	if err != nil || got != 123456 {
		t.Errorf("got %g, %v, want 123456", got, err)
	}
	for _, invalid := range []string{"", "# Alloc = 5\n", "# TotalAlloc = many\n"} {
		if got, err := allocatedBy(invalid); err == nil {
			t.Errorf("%q: got %g, want an error", invalid, got)
		}
	}
}

func TestIndependentLimitHasAllWrites(t *testing.T) {
	l := &independentClient{&replay{tape: &tape{node: []byte(`{"metadata":{"name":"` + anyName + `"}}`)}}}
	for _, kind := range writeKinds {
		w, found := l.writeFor(kind.name, "m")
		if reads := strings.HasPrefix(kind.name, "list "); found == reads {
			t.Errorf("%s: got found %t, %+v", kind.name, found, w)
		}
	}
	if w, _ := l.writeFor("create Node", "m"); w.body != `{"metadata":{"name":"m"}}` {
		t.Errorf("got the Node %s", w.body)
	}
}
