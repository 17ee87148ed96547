package wording

import (
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 machines", 1: "1 machine", 2: "2 machines"} {
		if got := Count(n, "machine"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	full := strings.Repeat("a", BriefBytes)
	for message, want := range map[string]string{
		"short":                       "short",
		full:                          full,
		full + "b":                    full[:BriefBytes-3] + "…",
		"not \xff UTF-8":              "not � UTF-8",
		full[:BriefBytes-4] + "ü and": full[:BriefBytes-4] + "…", // a whole character is dropped
	} {
		if len(want) > BriefBytes {
			t.Errorf("the case wants %d bytes, more than BriefBytes", len(want))
		}
		if got := Shorten(message); got != want {
			t.Errorf("Brief() of %d bytes = %d bytes, %.20q…", len(message), len(got), got)
		}
	}
}
