package machinedeployment

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func TestDeploymentStateHasNoNilMaps(t *testing.T) {
	r := reflect.ValueOf(newSharedState().get(types.NamespacedName{Name: "web"}, "uid")).Elem()
	for i := range r.NumField() {
		if f := r.Field(i); f.Kind() == reflect.Map && f.IsNil() {
			t.Errorf("%s is nil", r.Type().Field(i).Name)
		}
	}
}

// Rule: rollout-steps-overlap.
func TestDebounce(t *testing.T) {
	for _, test := range []struct {
		name          string
		machines      int
		generation    int64
		ago, want     time.Duration
		machineEvents int32
	}{
		{"first pass", 0, 1, time.Hour, 0, 0},
		{"a small deployment waits very briefly", 10, 7, 0, 4 * time.Millisecond, 0},
		{"a large deployment waits longer", 2000, 7, 0, 1600 * time.Millisecond, 0},
		{"the wait is limited", 1000000, 7, 0, 4 * time.Second, 0},
		{"part of the wait has passed", 5000, 7, 40 * time.Millisecond, 3960 * time.Millisecond, 0},
		{"the wait has passed", 5000, 7, 4001 * time.Millisecond, 0, 0},
		{"a changed deployment does not wait", 5000, 8, 0, 0, 0},
		{"a rollout collects events for one step", 1010, 7, 100 * time.Millisecond, 900 * time.Millisecond, 9},
		{"a large rollout waits at least as long as without a rollout",
			5000, 7, 100 * time.Millisecond, 3900 * time.Millisecond, 9},
		{"a rollout with enough events", 1000, 7, 10 * time.Millisecond, 390 * time.Millisecond, 10},
	} {
		r := &deploymentState{generation: 7, decidedAt: noon.Add(-test.ago), machines: test.machines}
		if test.machineEvents > 0 {
			r.batch = 10
		}
		if got := r.debounce(test.generation, test.machineEvents, noon); got != test.want {
			t.Errorf("%s: waits %s, expected %s", test.name, got, test.want)
		}
	}
}

// Rule: rollout-steps-overlap.
func TestBatch(t *testing.T) {
	for _, test := range []struct {
		name        string
		surge, down int32
		old, wanted Set
		scales      []Scale
		want        int32
		strategy    v1beta1.DeploymentStrategyType
	}{
		{name: "half of what may be replaced at a time", surge: 10, old: Set{Replicas: 90, Live: 100, Ready: 100},
			wanted: Set{Replicas: 10, Live: 10}, want: 5},
		{name: "at least one", surge: 1, old: Set{Replicas: 3, Live: 3}, wanted: Set{Replicas: 1}, want: 1},
		{name: "no more than are in progress", surge: 10, down: 10, old: Set{Replicas: 3, Live: 4, Deleting: 1},
			wanted: Set{Replicas: 8, Live: 8, Ready: 7}, want: 3},
		{name: "machines of this plan are in progress too", surge: 10, old: Set{Replicas: 10, Live: 10},
			scales: []Scale{{Set: 0, From: 10, To: 8}, {Set: 1, To: 1}}, want: 3},
		{name: "no machines in progress", surge: 10, old: Set{Replicas: 4, Live: 4},
			wanted: Set{Replicas: 6, Live: 6, Ready: 6}},
		{name: "no rollout", surge: 10, old: Set{Deleting: 3}, wanted: Set{Replicas: 5}},
		{name: "another strategy", strategy: v1beta1.StrategyRecreate, surge: 10, old: Set{Replicas: 3, Live: 5},
			wanted: Set{Replicas: 5}},
	} {
		strategy := test.strategy
		if strategy == "" {
			strategy = v1beta1.StrategyRollingUpdate
		}
		limits := Bounds{MaxSurge: test.surge, MaxUnavailable: test.down}
		v := &view{bounds: limits, plan: Plan{Scales: test.scales}, history: history{currentIndex: 1},
			state: State{Strategy: strategy, Bounds: limits, Sets: []Set{test.old, test.wanted}, CurrentIndex: 1}}
		if got := v.batch(); got != test.want {
			t.Errorf("%s: %d, expected %d", test.name, got, test.want)
		}
	}
}

func TestWrittenReplicasCountUntilObserved(t *testing.T) {
	tests := []struct {
		name              string
		live, before, now int32
		least, most       int32 // while the set has not observed the change
	}{
		{"lowered before all machines were created", 1, 3, 2, 2, 3},
		{"lowered after all machines were created", 3, 3, 2, 2, 2},
		{"raised before all surplus machines were deleted", 3, 1, 2, 1, 2},
		{"raised after all surplus machines were deleted", 1, 1, 2, 2, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newSharedState().get(types.NamespacedName{}, "d")
			set := setOf("a", 1, noon)
			r.recordWrite(set.UID, test.live, test.before, test.now, 5)
			set.Status.ObservedGeneration = 4
			counted := Set{Replicas: test.now, MinReplicas: test.now, MaxReplicas: test.now}
			if r.includeUnobserved(set, &counted); counted.MinReplicas != test.least || counted.MaxReplicas != test.most {
				t.Errorf("the set may act upon %d to %d, expected %d to %d", counted.MinReplicas, counted.MaxReplicas, test.least, test.most)
			}
			set.Status.ObservedGeneration = 5
			counted = Set{Replicas: test.now, MinReplicas: test.now, MaxReplicas: test.now}
			if r.includeUnobserved(set, &counted); counted.MinReplicas != test.now || counted.MaxReplicas != test.now ||
				len(r.unobservedSets) != 0 {
				t.Errorf("earlier replicas are remembered after the set has observed the change: %d to %d", counted.MinReplicas,
					counted.MaxReplicas)
			}
		})
	}
	r := newSharedState().get(types.NamespacedName{}, "d")
	r.recordWrite("x", 0, 3, 2, 5)
	r.recordWrite("x", 0, 2, 1, 6)
	set := setOf("a", 1, noon)
	set.UID, set.Status.ObservedGeneration = "x", 5
	counted := Set{Replicas: 1, MinReplicas: 1, MaxReplicas: 1}
	if r.includeUnobserved(set, &counted); counted.MaxReplicas != 3 {
		t.Errorf("with replicas 3, 2, 1 in turn the set may act upon %d at most, expected 3", counted.MaxReplicas)
	}
	if r.keepOnly(nil); len(r.unobservedSets) != 0 {
		t.Error("a deleted set is remembered")
	}
}

func TestNewDeploymentWithTheSameNameHasNewState(t *testing.T) {
	m := newSharedState()
	key := types.NamespacedName{Namespace: "ns", Name: "web"}
	first := m.get(key, "1")
	first.cache.Confirm(first.cache.Mark())
	if !m.takeOrphanSetSeen(first) || m.takeOrphanSetSeen(first) {
		t.Error("sets without an owner must be listed once, in the first pass")
	}
	m.orphanSetSeen(key)
	if !m.takeOrphanSetSeen(first) {
		t.Error("a set without an owner that was seen is not listed")
	}
	for _, name := range []string{"a", "b", "a"} {
		m.launchFailed(key, seenFailing("s", name, 0))
	}
	if got := m.takeFailed(first); len(got) != 2 || len(m.takeFailed(first)) != 0 {
		t.Errorf("takeFailed returns %d failures, expected those of 2 machines, once", len(got))
	}
	if m.get(key, "1") != first {
		t.Error("the state of the deployment is lost")
	}
	if second := m.get(key, "2"); second.cache.IsConfirmed() || second == first {
		t.Error("a new deployment has the state of an earlier one with the same name")
	}
	m.forget(key)
	if m.orphanSetSeen(key); len(m.deployments) != 0 {
		t.Error("a deleted deployment is remembered")
	}
}
