package invariants

import "testing"

func TestSkippedMinor(t *testing.T) {
	for _, test := range []struct {
		versions []string
		want     string
	}{
		{nil, ""},
		{[]string{"v1.36.3", "", "v1.36.4"}, ""},
		{[]string{"v1.38.0", "v1.36.3", "v1.37.1"}, ""},
		{[]string{"v1.38.0", "v1.36.3"}, "1.37"},
		{[]string{"v1.9.0", "v1.11.0"}, "1.10"},
	} {
		if got := SkippedMinor(test.versions); got != test.want {
			t.Errorf("%v: got %q, want %q", test.versions, got, test.want)
		}
	}
}
