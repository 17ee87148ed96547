package machinedeployment

import (
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

func bySelection(change func(old, wanted *Set)) State {
	s := State{Strategy: v1beta1.StrategyInPlace, Manual: true, Replicas: 4, Bounds: Bounds{MaxUnavailable: 2},
		SizedFor: 4, CurrentIndex: 1, Sets: []Set{
			{Name: "a", Replicas: 2, MinReplicas: 2, MaxReplicas: 2, Live: 4, Ready: 4, Available: 4, Selected: 2,
				Role: Role{MoveTo: "b", Moves: 2, BySelection: true}},
			{Name: "b", Role: Role{ReceiveFrom: "a"}},
		}}
	change(&s.Sets[0], &s.Sets[1])
	return s
}

// Rule: withdrawn-selection-harmless.
func TestHandOverOrderIsTakenBack(t *testing.T) {
	order, takenBack := Role{MoveTo: "b", Moves: 2, BySelection: true}, Role{MoveTo: "b", BySelection: true}
	for name, test := range map[string]struct {
		change   func(old, wanted *Set)
		role     Role
		replicas int32
		waiting  string
	}{
		"all machines are selected": {func(_, _ *Set) {}, order, 2, "set a has yet to hand over 2 machines"},
		"one machine is no longer selected": {func(old, _ *Set) { old.Selected = 1 }, takenBack, 4,
			"set a has not observed yet"},
		"the set has not observed that": {func(old, _ *Set) { old.Role, old.Replicas, old.IsUnobserved = takenBack, 4, true },
			takenBack, 4, "set a has not observed yet"},
		"the set has observed that": {func(old, _ *Set) { old.Role, old.Replicas, old.Selected = takenBack, 4, 0 },
			Role{}, 4, ""},
		"one machine was handed over meanwhile": {func(old, wanted *Set) {
			old.Role, old.Replicas, old.Live, old.Ready, old.Available = takenBack, 4, 3, 3, 3
			wanted.Live = 1
		}, Role{}, 3, ""},
		"the order was not for selected machines": {func(old, _ *Set) { old.Selected, old.BySelection = 0, false },
			Role{MoveTo: "b", Moves: 2}, 2, "set a has yet to hand over 2 machines"},
	} {
		t.Run(name, func(t *testing.T) {
			s := bySelection(test.change)
			plan := MakePlan(s)
			replicas := s.Sets[0].Replicas
			for _, scale := range plan.Scales {
				if scale.Set == 0 {
					replicas = scale.To
				}
			}
			if plan.Roles[0] != test.role || replicas != test.replicas || !strings.HasPrefix(plan.WaitMessage, test.waiting) ||
				(plan.WaitMessage == "") != (test.waiting == "") {
				t.Errorf("role %+v, replicas %d, waiting %q", plan.Roles[0], replicas, plan.WaitMessage)
			}
			if plan.Roles[1].ReceiveFrom != "a" {
				t.Error("the other set no longer receives machines")
			}
		})
	}
}

// Rule: waits-for-selection.
func TestRolloutBySelectionReportsItsWait(t *testing.T) {
	for name, test := range map[string]struct {
		change          func(old, wanted *Set)
		awaitsSelection bool
		waiting         string
	}{
		"no machine is selected": {func(_, _ *Set) {}, true,
			"to update machines of an old revision (3 left), set the label machinist.dev/selected-for-update on them"},
		"an update is in progress": {func(_, wanted *Set) { wanted.Updating = 1 }, false,
			"0 of 1 machines of the new revision are up to date and available; to update machines of an old revision (3 left), set the label machinist.dev/selected-for-update on them"},
		"a selected machine must wait": {func(old, wanted *Set) {
			old.Selected, old.Available, wanted.Updating = 1, 2, 1
		}, false, "2 machines are available"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := MakePlan(bySelection(func(old, wanted *Set) {
				old.Role, old.Replicas, old.Live, old.Ready, old.Available, old.Selected, old.MinReplicas, old.MaxReplicas = Role{}, 3, 3, 3, 3,
					0, 3, 3
				wanted.Replicas, wanted.MinReplicas, wanted.MaxReplicas, wanted.Live, wanted.Ready, wanted.Available = 1, 1, 1, 1, 1, 1
				test.change(old, wanted)
			}))
			if plan.AwaitsSelection != test.awaitsSelection || !strings.HasPrefix(plan.WaitMessage, test.waiting) ||
				len(plan.Scales) > 0 {
				t.Errorf("awaits selection: %v, scales %v, waiting %q", plan.AwaitsSelection, plan.Scales, plan.WaitMessage)
			}
		})
	}
}

// The replicas of the set "a" were lowered, but its machine became available before it was deleted, so the machine is
// kept. Therefore the unavailable machine of the set "b" must be deleted.
//
// Rule: kept-machine-counts.
func TestBlockedDeletionDoesNotStallRollout(t *testing.T) {
	set := func(name string, replicas, live, available int32) Set {
		return Set{Name: name, Replicas: replicas, MinReplicas: replicas, MaxReplicas: replicas, Live: live, Ready: available,
			Available: available}
	}
	a, b, c := set("a", 4, 5, 5), set("b", 1, 1, 0), set("c", 0, 0, 0)
	b.Forecast = forecast(1, 1)
	state := State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 6, Bounds: Bounds{MaxUnavailable: 1}, SizedFor: 6,
		Sets: []Set{a, b, c}, CurrentIndex: 2}

	plan := MakePlan(state)
	if len(plan.Scales) != 1 || plan.Scales[0].Set != 1 || plan.Scales[0].To != 0 {
		t.Fatalf("planned %v, waiting: %s; expected set b to shrink to 0", plan.Scales, plan.WaitMessage)
	}
	state.Sets[1] = set("b", 0, 0, 0)
	plan = MakePlan(state)
	if len(plan.Scales) != 1 || plan.Scales[0].Set != 2 || plan.Scales[0].To != 1 {
		t.Errorf("planned %v, waiting: %s; expected set c to grow to 1", plan.Scales, plan.WaitMessage)
	}

	// A pending deletion of set a prevents the deletion in set b, so that only one machine is deleted at a time.
	state.Sets[1], state.Sets[0] = b, set("a", 5, 6, 6)
	if plan = MakePlan(state); len(plan.Scales) != 0 {
		t.Errorf("planned %v while a machine of a is about to be deleted", plan.Scales)
	}
}

// Rule: scale-during-rollout-in-proportion.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		n       int32
		weights []int32
		want    []int32
	}{
		{0, []int32{1, 2}, []int32{0, 0}},
		{-3, []int32{1, 2}, []int32{0, 0}},
		{5, []int32{0, 0}, []int32{0, 0}},
		{5, nil, []int32{}},
		{6, []int32{1, 2}, []int32{2, 4}},
		{1, []int32{5, 5}, []int32{0, 1}},
		{3, []int32{5, 5}, []int32{1, 2}},
		{10, []int32{1, 1, 1}, []int32{3, 3, 4}},
		{7, []int32{70, 20, 10}, []int32{5, 1, 1}},
		{100000, []int32{100000, 100000, 1}, []int32{50000, 50000, 0}},
	} {
		got := share(test.n, test.weights)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d shared by %v is %v, expected %v", test.n, test.weights, got, test.want)
		}
		var sum int32
		for _, part := range got {
			sum += part
		}
		if test.n > 0 && slices.ContainsFunc(test.weights, func(w int32) bool { return w > 0 }) && sum != test.n {
			t.Errorf("%d shared by %v adds up to %d", test.n, test.weights, sum)
		}
	}
}

func TestDeniedUpdateInPlaceFollowsReplicas(t *testing.T) {
	set := func(name string, replicas, live int32) Set {
		return Set{Name: name, Replicas: replicas, MinReplicas: replicas, MaxReplicas: replicas, Live: live,
			Ready: live, Available: live}
	}
	for name, test := range map[string]struct {
		replicas   int32
		old        Set
		wanted     Set
		toOld, toB int32
	}{
		"scale up":                            {4, set("a", 3, 3), set("b", 0, 0), 3, 1},
		"scale up again":                      {5, set("a", 2, 2), set("b", 1, 1), 2, 3},
		"scale down":                          {2, set("a", 3, 3), set("b", 0, 0), 2, 0},
		"an old machine is lost":              {3, set("a", 3, 2), set("b", 0, 0), 2, 0},
		"the old set's replicas were lowered": {3, set("a", 2, 2), set("b", 0, 0), 2, 1},
		"no change":                           {3, set("a", 3, 3), set("b", 0, 0), 3, 0},
	} {
		plan := MakePlan(State{Strategy: v1beta1.StrategyInPlace, Replicas: test.replicas, Bounds: Bounds{MaxUnavailable: 1},
			SizedFor: 3, DisruptionDenied: "MachineDisruptionBudget pause allows no disruption",
			Sets: []Set{test.old, test.wanted}, CurrentIndex: 1})
		to := []int32{test.old.Replicas, test.wanted.Replicas}
		for _, scale := range plan.Scales {
			to[scale.Set] = scale.To
		}
		if to[0] != test.toOld || to[1] != test.toB || plan.Roles[0] != (Role{}) ||
			!strings.Contains(plan.WaitMessage, "allows no disruption") {
			t.Errorf("%s: replicas become %v with roles %v, waiting %q; want %d and %d", name, to, plan.Roles, plan.WaitMessage,
				test.toOld, test.toB)
		}
	}
}
