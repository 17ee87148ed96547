package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestSharesAreWhatEachProcessUsedAndTheRest(t *testing.T) {
	before := map[string]time.Duration{"etcd": time.Second, "ended": time.Second}
	after := map[string]time.Duration{"etcd": 4 * time.Second, "begun": time.Second}
	got := sharesOf(before, after, 5*time.Second, 2)
	if want := (shares{"etcd": 3, unaccounted: 7}); !maps.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
	if got := sharesOf(before, after, time.Second, 2); got[unaccounted] != 0 {
		t.Errorf("the rest is %g, expected none: what is read at two times may exceed what there was", got[unaccounted])
	}
	var out strings.Builder
	got.show(&out, "create")
	if want := "create: 10.0 processor seconds: rest 7.0 (70 %), etcd 3.0 (30 %)\n"; out.String() != want {
		t.Errorf("shown is %q, expected %q", out.String(), want)
	}
	out.Reset()
	shares(nil).show(&out, "create")
	if out.Len() > 0 {
		t.Errorf("of nothing is shown %q", out.String())
	}
	var mean shares
	mean.add(got, 2)
	mean.add(shares{"etcd": 1}, 2)
	if want := (shares{"etcd": 2, unaccounted: 3.5}); !maps.Equal(mean, want) {
		t.Errorf("the mean is %v, expected %v", mean, want)
	}
}
