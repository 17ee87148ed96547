package printer

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abcd", 0, "abcd"}, {"äöüß", 3, "äö…"}, {"ab", 1, "…"}} {
		if got := Shorten(c.text, c.columns); got != c.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestDrawReplacesThePreviousPicture(t *testing.T) {
	var out strings.Builder
	live := ProgressPrinter{Out: &out, Terminal: true}
	live.Draw([]string{"one", "two"}, "")
	live.Draw([]string{"one", "two"}, "")
	live.Draw([]string{"three"}, "")
	live.Erase()
	live.Erase()
	if want := "one\ntwo\n\x1b[2A\x1b[Jthree\n\x1b[1A\x1b[J"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestPrintfWritesAboveThePicture(t *testing.T) {
	var out strings.Builder
	live := ProgressPrinter{Out: &out, Terminal: true}
	live.Printf("begun %d", 1)
	live.Draw([]string{"one", "two"}, "")
	live.Printf("line")
	live.Draw([]string{"one", "two"}, "")
	if want := "begun 1\none\ntwo\n\x1b[2A\x1b[Jline\none\ntwo\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestDrawWithoutTerminalWritesALineForEachChange(t *testing.T) {
	var out strings.Builder
	live := ProgressPrinter{Out: &out}
	for _, line := range []string{"a", "a", "b", "a"} {
		live.Draw([]string{"picture"}, line)
	}
	live.Erase()
	if want := "a\nb\na\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		n, total int32
		want     string
	}{{0, 4, "...."}, {1, 4, "#..."}, {3, 4, "###."}, {4, 4, "####"}, {9, 4, "####"}, {0, 0, "####"}} {
		if got := Bar(Style{ASCII: true}, c.n, c.total, 4); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.n, c.total, got, c.want)
		}
	}
	if got := Bar(Style{}, 1, 2, 2); got != "█░" {
		t.Errorf("got %q", got)
	}
}
