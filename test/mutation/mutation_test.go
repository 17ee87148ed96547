package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTinyPackage compiles all mutants of a tiny package and judges them. The program without a mutant must pass the
// tests of the package; otherwise, run returns an error.
func TestTinyPackage(t *testing.T) {
	var out strings.Builder
	c := &campaign{patterns: []string{"./testdata/tiny"}, seed: 1, count: 1000, workers: 2, out: &out,
		results: filepath.Join(t.TempDir(), "results"), deadline: time.Now().Add(time.Hour)}
	judged, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, j := range judged {
		got[j.Kind+": "+j.Old+" becomes "+j.New] = j.FoundBy
	}
	want := map[string]string{
		"other operator: limit == 0 becomes limit != 0":                            "tests",
		"other constant: 0 becomes time.Second":                                    "tests",
		"dropped statement: limit = Patience becomes nothing":                      "tests",
		"other constant: Patience becomes 0":                                       "tests",
		"other constant: Patience becomes 2 * Patience":                            "tests",
		"negated condition: waited > limit becomes !(waited > limit)":              "tests",
		"other operator: waited > limit becomes waited >= limit":                   "tests",
		`dropped error: fmt.Errorf("%w by %s", errLate, waited-limit) becomes nil`: "tests",
		"negated result: n >= low && n < high becomes !(n >= low && n < high)":     "tests",
		"other operator: n >= low && n < high becomes n >= low || n < high":        "tests",
		"other operator: n >= low becomes n > low":                                 "tests",
		"other operator: n < high becomes n <= high":                               "tests",
		"negated condition: a < b becomes !(a < b)":                                "tests",
		"dropped statement: a = b becomes nothing":                                 "tests",
		"other operator: n + 1 becomes n - 1":                                      "",
		"other constant: 1 becomes 0":                                              "",
		"other constant: 1 becomes 1 + 1":                                          "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if err := c.report(judged, 60); err != nil {
		t.Error(err)
	}
	if err := c.report(judged, 90); err == nil {
		t.Error("14 of 17 found mutants are reported as enough")
	}

	// Another batch uses the results.
	out.Reset()
	again, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again, judged) || out.Len() > 0 {
		t.Errorf("the second batch tested mutants again: %s", &out)
	}
}
