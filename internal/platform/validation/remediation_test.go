package validation_test

import (
	"fmt"
	"strings"
	"testing"

	"machinist.dev/machinist/internal/platform/validation"
)

// Rule: external-remediation-problems.
func TestParseRemediationKinds(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "[]",
		"PowerCycle.example.com":        "[PowerCycle.example.com]",
		" A.b.c, A.b.c,D.e":             "[A.b.c D.e]",
		"PowerCycle":                    `"PowerCycle"; an entry is`,
		"powercycles.example.com":       `"powercycles.example.com"; an entry is`,
		".example.com":                  `".example.com"; an entry is`,
		"PowerCycleTemplate.fencing.io": "name the kind of the remediation, PowerCycle.fencing.io",
		"A.b,C":                         `"C"; an entry is`,
	} {
		var values []string
		if text != "" {
			values = strings.Split(text, ",")
		}
		kinds, err := validation.ParseRemediationKinds(values)
		if got := fmt.Sprint(kinds); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}
