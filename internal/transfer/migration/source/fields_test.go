package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: migration-loses-nothing-silently.
func TestUnreadFieldsAreReportedWithTheirPaths(t *testing.T) {
	var findings []provider.Finding
	f := newFields(map[string]any{
		"known": "x", "size": int64(3), "odd": true, "status": map[string]any{"phase": "y"}, "wrong": int64(1),
		"inner": map[string]any{"known": "x", "odd": []any{}},
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
