package main

import (
	"slices"
	"testing"
)

func TestVariantsComeWithWhatTheyAreComparedWith(t *testing.T) {
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
		t.Errorf("a key of no variant chooses %q", keys(chosen))
	}
}

func TestCostsAreMediansAtOneSpeed(t *testing.T) {
	kind := writeKinds[0].name
	costs := writeSamples{
		{kind, "a", 100, 1}, {kind, "a", 50, 2}, {kind, "a", 900, 3}, // The same work, but for one that was disturbed.
		{kind, "b", 20, 2},
	}.costs()
	if got := costs[0]; got.Write != kind || got.Microseconds["a"] != 50 || got.Microseconds["b"] != 20 {
		t.Errorf("got %+v", got)
	}
	if got := (writeSamples{}).costs(); got != nil {
		t.Errorf("without a complete round: got %+v", got)
	}
}
