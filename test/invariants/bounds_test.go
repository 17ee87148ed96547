package invariants

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

func TestDeploymentBoundsFollowStrategy(t *testing.T) {
	percent, two := intstr.FromString("25%"), intstr.FromInt32(2)
	for name, test := range map[string]struct {
		strategy    v1beta1.DeploymentStrategy
		most, least int
	}{
		"default":  {v1beta1.DeploymentStrategy{}, 11, 10},
		"recreate": {v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRecreate}, 10, 0},
		"onDelete": {v1beta1.DeploymentStrategy{Type: v1beta1.StrategyOnDelete}, 10, 10},
		"inPlace":  {v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}, 10, 9},
		"percent rounds surge up and unavailable down": {v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate,
			RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &percent, MaxUnavailable: &percent}}, 13, 8},
		"numbers": {v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate,
			RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &two, MaxUnavailable: &two}}, 12, 8},
	} {
		d, n := &v1beta1.MachineDeployment{}, int32(10)
		d.Spec.Replicas, d.Spec.Strategy = &n, test.strategy
		if got := BoundsOfDeployment(d); got.MaxLive != test.most || got.MinAvailable != test.least {
			t.Errorf("%s: got at most %d and at least %d, want %d and %d", name, got.MaxLive, got.MinAvailable, test.most, test.least)
		}
	}
}

func TestVersionCountsUntilNextVersionWasSeen(t *testing.T) {
	o := &Owner{}
	for position, n := range []int32{3, 3, 5, 1} {
		s := &v1beta1.MachineSet{}
		s.Spec.Replicas = &n
		o.Note(int64(position), s, BoundsOfSet(s))
	}
	for since, want := range [][2]int{{5, 1}, {5, 1}, {5, 1}, {1, 1}} {
		most, least := o.BoundsSince(int64(since))
		if most != want[0] || least != want[1] {
			t.Errorf("since %d: got at most %d and at least %d, want %v", since, most, least, want)
		}
	}
	if len(o.Versions) != 3 {
		t.Errorf("got %d versions, want 3, because the second one equals the first", len(o.Versions))
	}
}

func TestEndOfAvailabilityCountsOnceKnown(t *testing.T) {
	for name, test := range map[string]struct {
		last Version
		want bool
	}{
		"failed after the position":            {Version{Position: 5}, true},
		"deleted by the judged process":        {Version{Position: 5, OwnEnd: true}, false},
		"failed before the position, so known": {Version{Position: 2}, false},
	} {
		versions := []Version{{Position: 1, Available: true}, test.last}
		at := func(i int) Version { return versions[i] }
		if got := AvailableSince(len(versions), at, 3); got != test.want {
			t.Errorf("%s: got %v for availability since position 3, want %v", name, got, test.want)
		}
	}
}
