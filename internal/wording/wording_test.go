package wording

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 machines", 1: "1 machine", 2: "2 machines"} {
		if got := Count(n, "machine"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
