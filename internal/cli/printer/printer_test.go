package printer

import (
	"strings"
	"testing"
)

func TestCleanRemovesControlCharacters(t *testing.T) {
	for given, want := range map[string]string{
		"plain words":                       "plain words",
		"two\nlines\r\nand a\ttab":          "two lines and a tab",
		"\x1b[2J\x1b]0;title\x07gone":       "[2J]0;titlegone",
		"c1 \u009b31m":                      "c1 31m",
		"name\u202egnp.exe":                 "namegnp.exe",
		"not \xff valid":                    "not \uFFFD valid",
		"replicas 3 − maxUnavailable 1, ü…": "replicas 3 − maxUnavailable 1, ü…",
	} {
		if got := Sanitize(given); got != want {
			t.Errorf("Clean(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestColoursHaveNoWidthInATable(t *testing.T) {
	rows := func(s Style) string {
		var out strings.Builder
		if err := Table(&out, []string{"NAME", "STATE", ""},
			[][]string{{"a", s.Green("ok"), "x"}, {"longer", s.Red("broken"), ""}}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	plain := rows(Style{})
	if want := "NAME     STATE\na        ok       x\nlonger   broken\n"; plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
	if coloured := rows(Style{Colour: true}); colours.ReplaceAllString(coloured, "") != plain || coloured == plain {
		t.Errorf("with colours:\n%q", coloured)
	}
}
