package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestSharesOfProcesses(t *testing.T) {
	before := map[string]time.Duration{"etcd": time.Second, "ended": time.Second}
	after := map[string]time.Duration{"etcd": 4 * time.Second, "begun": time.Second}
	got := sharesOf(before, after, 5*time.Second, 2)
	if want := (shares{"etcd": 3, otherShare: 7}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := sharesOf(before, after, time.Second, 2); got[otherShare] != 0 {
		t.Errorf("got the rest %g, want 0, because two readings may differ by more than the elapsed time", got[otherShare])
	}
	var out strings.Builder
	got.show(&out, "create")
	if want := "create: 10.0 processor seconds: rest 7.0 (70 %), etcd 3.0 (30 %)\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	shares(nil).show(&out, "create")
	if out.Len() > 0 {
		t.Errorf("no shares: got %q, want nothing", out.String())
	}
	var mean shares
	mean.add(got, 2)
	mean.add(shares{"etcd": 1}, 2)
	if want := (shares{"etcd": 2, otherShare: 3.5}); !maps.Equal(mean, want) {
		t.Errorf("got the mean %v, want %v", mean, want)
	}
}
