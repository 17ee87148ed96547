package source

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: migration-loses-nothing-silently.
func TestUnreadFieldsAreReportedWithTheirPaths(t *testing.T) {
	var findings []provider.Finding
	f := newFields(map[string]any{
		"known": "x", "size": int64(3), "odd": true, "status": map[string]any{"phase": "y"}, "wrong": int64(1),
		"inner": map[string]any{"known": "x", "odd": []any{"x"}},
		"list":  []any{map[string]any{"odd": "x"}, "not an object"},
		"none":  map[string]any{}, "lost": "x",
	}, "spec", &findings)
	f.ignore("status")
	f.reportLoss("Machinist has no counterpart.", "none", "lost", "absent")
	if f.text("known") != "x" || *f.number("size") != 3 || f.text("wrong") != "" || f.child("inner").text("known") != "x" {
		t.Error("a known field has the wrong value")
	}
	f.objects("list")
	f.child("absent").reportUnread()
	f.reportUnread()
	var got []string
	for _, finding := range findings {
		got = append(got, string(finding.Level)+" "+finding.Code+" "+finding.Path)
	}
	if diff := cmp.Diff([]string{
		"Loss NotSupported spec.lost",
		"Blocker WrongType spec.wrong",
		"Blocker WrongType spec.list[1]",
		"Loss UnknownField spec.odd",
		"Loss UnknownField spec.inner.odd",
		"Loss UnknownField spec.list[0].odd",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// Rules: migration-ignores-empty-fields, migration-reads-names-without-case.
func TestEmptyFieldsAndCaseOfNames(t *testing.T) {
	var findings []provider.Finding
	f := newFields(map[string]any{
		"network": map[string]any{"cidr": "", "dns": map[string]any{"servers": nil}},
		"real":    map[string]any{"cidr": "10.0.0.0/8"}, "unknown": []any{}, "off": false, "Size": "large",
	}, "", &findings)
	f.reportLoss("Lost.", "network", "real")
	if got := f.text("size"); got != "large" {
		t.Errorf("the size is %q", got)
	}
	f.reportUnread()
	var got []string
	for _, one := range findings {
		got = append(got, one.Code+" "+one.Path)
	}
	if want := []string{"NotSupported real", "UnknownField off"}; !slices.Equal(got, want) {
		t.Errorf("got the findings %q, want %q", got, want)
	}
}

// Rule: migration-ignores-empty-fields.
func TestDescriptionsThatDifferInEmptyFieldsAreOneClass(t *testing.T) {
	class := func(spec map[string]any) *Class { return &Class{Provider: "p", Spec: spec} }
	base := class(map[string]any{"size": "a"})
	for name, test := range map[string]struct {
		spec map[string]any
		same bool
	}{
		"empty fields": {map[string]any{"size": "a", "zone": "", "disk": map[string]any{"id": nil}, "keys": []any{}},
			true},
		"a value":     {map[string]any{"size": "a", "zone": "1"}, false},
		"false":       {map[string]any{"size": "a", "public": false}, false},
		"presence":    {map[string]any{"size": "a", "spotVMOptions": map[string]any{}}, false},
		"no presence": {map[string]any{"size": "a", "spotVMOptions": nil}, true},
	} {
		other := class(test.spec)
		if base.SameInstances(other) != test.same || (base.ContentName("x") == other.ContentName("x")) != test.same {
			t.Errorf("%s: same instances %t, names %s and %s", name, base.SameInstances(other), base.ContentName("x"),
				other.ContentName("x"))
		}
	}
}
