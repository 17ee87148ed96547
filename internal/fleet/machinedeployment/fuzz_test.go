package machinedeployment

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// FuzzPlan (rule surge-and-unavailable-kept, rule kept-machine-counts) runs random steps with slow controllers and
// failing machines. Every write must respect maxSurge and maxUnavailable. Afterwards, the deployment must reach its
// desired state.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		strategies := []v1beta1.DeploymentStrategyType{v1beta1.StrategyRollingUpdate, v1beta1.StrategyRollingUpdate,
			v1beta1.StrategyRollingUpdate, v1beta1.StrategyRecreate, v1beta1.StrategyOnDelete}
		randomSteps(t, strategies[seed%uint64(len(strategies))], seed, 400)
	})
}

// FuzzStops (rule partition-keeps-old, rule pause-after-first-machines) runs random steps of rollouts that partition
// and pauseAfter stop. No write may exceed their limits. Without them, the deployment must reach its desired state.
func FuzzStops(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		randomStepsWith(t, v1beta1.StrategyRollingUpdate, seed, 400, func(w *simulatedDeployment) {
			w.partition, w.pauseAfter, w.stops = int32(seed%5), int32(seed/5%3), true
			if seed%4 == 0 {
				w.classes = map[string]string{"a": "xy", "b": "xz", "c": "xyz", "d": "y", "fixed": "xz"}
			}
		})
	})
}

// FuzzClasses (rule placement-classes-are-revision) runs random steps of rollouts that add and remove classes of a
// placement. Machines whose class remains are handed over.
func FuzzClasses(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		strategies := []v1beta1.DeploymentStrategyType{v1beta1.StrategyRollingUpdate, v1beta1.StrategyRollingUpdate,
			v1beta1.StrategyRecreate, v1beta1.StrategyOnDelete, v1beta1.StrategyInPlace}
		randomStepsWith(t, strategies[seed%uint64(len(strategies))], seed, 400, func(w *simulatedDeployment) {
			w.classes = map[string]string{"a": "xy", "b": "xz", "c": "xyz", "d": "y", "fixed": "xz"}
		})
	})
}

// FuzzInPlace (rule in-place-hands-over, rule updating-counts-as-unavailable) runs random steps of updates in place.
func FuzzInPlace(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		randomSteps(t, v1beta1.StrategyInPlace, seed, 400)
	})
}

// FuzzInPlaceBySelection (rule manual-selection-updates, rule withdrawn-selection-harmless) runs random steps of a
// rollout in which an administrator selects the machines that are updated in place.
func FuzzInPlaceBySelection(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		randomStepsWith(t, v1beta1.StrategyInPlace, seed, 400, func(w *simulatedDeployment) { w.manual = true })
	})
}

// TestCrashAfterAnyStep (rule in-place-hands-over) repeats one rollout and restarts all controllers after a different
// step each time. Every rollout must have the same result and keep the number of machines.
func TestCrashAfterAnyStep(t *testing.T) {
	for unavailable := range int32(4) {
		for crash := 1; ; crash++ {
			w := started(v1beta1.StrategyInPlace, 5, 0, unavailable)(t)
			if w.crashIn = crash; crash%3 == 0 {
				w.set("a").machines[crash%5].marked = true
			}
			w.template = "b"
			w.playUntilStable()
			if w.crashIn == 0 {
				w.playUntilStable() // A crash may have looked like the end of the rollout.
			}
			w.checkDone()
			if w.machines != 5 {
				t.Fatalf("crash %d: %d machines were created for 5 replicas\n%s", crash, w.machines, w.log)
			}
			if w.crashIn > 0 {
				break // The rollout ended before the crash.
			}
		}
	}
}

func randomSteps(t *testing.T, strategy v1beta1.DeploymentStrategyType, seed uint64, steps int) {
	t.Helper()
	randomStepsWith(t, strategy, seed, steps, func(*simulatedDeployment) {})
}

func randomStepsWith(t *testing.T, strategy v1beta1.DeploymentStrategyType, seed uint64, steps int,
	change func(*simulatedDeployment)) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newSimulatedDeployment(t, strategy, r.Int32N(9), r.Int32N(4), r.Int32N(4))
	change(w)
	fmt.Fprintf(w.log, "seed %d: %s, %d replicas, maxSurge %d, maxUnavailable %d\n", seed, w.strategy, w.replicas, w.surge,
		w.unavailable)
	for range steps {
		before := w.String()
		what := w.randomStep(r)
		if after := w.String(); after != before || strings.HasPrefix(what, "—") {
			fmt.Fprintf(w.log, "%-12s %s\n", what, after)
		}
	}
	w.paused, w.frozen, w.crashIn, w.partition, w.pauseAfter = false, false, 0, 0, 0
	if w.versions != nil {
		w.endVersions()
	} else if w.bad[w.template] {
		w.template = "fixed" // A broken template must be fixed by hand.
	}
	w.bad = map[string]bool{}
	for round, quiet := 0, 0; quiet < 2; round++ {
		if round > 500 {
			t.Fatalf("the deployment does not converge, waiting: %s\n%s\n%s", w.waiting, w.log, w)
		}
		wrote := w.pass()
		before := w.String()
		w.runSets()
		w.endFailures()
		w.completeOperations()
		if quiet++; wrote || w.String() != before {
			quiet = 0
		}
	}
	w.checkDone()
	if w.versions != nil && w.template != w.versions.target {
		t.Fatalf("the rollout ended with version %s, want %s\n%s", w.template, w.versions.target, w.log)
	}
}

// randomStep runs one random step and returns its name. The names of steps by users begin with a dash.
func (w *simulatedDeployment) randomStep(r *rand.Rand) string {
	var set *simulatedSet
	var machine *simulatedMachine
	if len(w.sets) > 0 {
		set = w.sets[r.IntN(len(w.sets))]
		if len(set.machines) > 0 {
			machine = set.machines[r.IntN(len(set.machines))]
		}
	}
	w.clock = w.clock.Add(1e9)
	switch n := r.IntN(100); {
	case n < 25 || set == nil:
		w.pass()
		return "pass"
	case n < 35:
		w.decide(set)
		return "decide " + set.name
	case n < 45:
		for w.act(set) && r.IntN(3) > 0 {
		}
		return "act " + set.name
	case n < 52:
		if !w.act(set) {
			set.report()
		}
		return "report " + set.name
	case n < 60:
		w.sync(set)
		return "sync " + set.name
	case n < 84 && machine != nil:
		switch {
		case machine.deleting:
			set.remove(machine)
			return "gone"
		case machine.state == comingUp && w.bad[set.name]:
			w.setState(machine, failed)
			return "fails"
		case machine.state == comingUp && r.IntN(10) > 0:
			w.setState(machine, available)
			return "available"
		case machine.state == unhealthyState:
			w.setState(machine, available)
			return "recovers"
		case machine.state == updatePending && w.bad[set.name]:
			w.setState(machine, updateRejected)
			return "refuses"
		case machine.state == updatePending && r.IntN(2) > 0:
			w.setState(machine, updateInProgress)
			return "is updated"
		case machine.state == updatePending, machine.state == updateInProgress:
			w.setState(machine, available)
			return "updated"
		case machine.state == failed && len(set.victims) == 0 && set.MoveTo == "": // A set does one thing at a time.
			machine.deleting = true
			return "remediated"
		}
	case n < 88 && machine != nil:
		switch state := []machineState{unhealthyState, failed}[r.IntN(2)]; {
		case machine.deleting:
		case machine.state == available && state == unhealthyState, machine.state == comingUp && state == failed:
			w.setState(machine, state)
			return "trouble"
		}
	case n < 90 && machine != nil && w.manual && r.IntN(4) > 0:
		machine.selected = !machine.selected
		return "— select"
	case n < 89 && w.versions != nil:
		return w.randomTarget(r)
	case n < 90 && machine != nil:
		machine.marked = !machine.marked
		return "— mark"
	case n < 92 && machine != nil && len(set.victims) == 0:
		// While a set has chosen victims but not deleted them yet, the simulation deletes no other machine. In a
		// cluster, an administrator may delete another machine between the choice and the deletion of the victims, and
		// a deployment cannot prevent this.
		machine.deleting = true
		return "— deleted"
	case n < 94:
		w.replicas = r.Int32N(9)
		return fmt.Sprintf("— %d replicas", w.replicas)
	case n < 96 && w.versions == nil:
		w.template = string(rune('a' + r.IntN(5)))
		if r.IntN(4) == 0 {
			w.bad[w.template] = true
		}
		return fmt.Sprintf("— template %s, bad: %v", w.template, w.bad[w.template])
	case n < 97 && w.stops:
		w.partition, w.pauseAfter = r.Int32N(6), r.Int32N(4)
		return fmt.Sprintf("— partition %d, pauseAfter %d", w.partition, w.pauseAfter)
	case n < 98:
		w.paused = !w.paused
		return fmt.Sprintf("— paused: %v", w.paused)
	case n < 99:
		w.frozen = !w.frozen
		return fmt.Sprintf("— frozen: %v", w.frozen)
	}
	if w.crashIn == 0 {
		w.crashIn = 1 + r.IntN(4)
	}
	return "— crash soon"
}

func (w *simulatedDeployment) endFailures() {
	for _, s := range w.sets {
		for _, m := range s.machines {
			switch m.state {
			case unhealthyState:
				w.setState(m, available)
			case failed:
				m.deleting = true
			}
			if w.manual && s.name != w.template {
				m.selected = true
			}
			if w.strategy == v1beta1.StrategyOnDelete && s.name != w.template && !m.deleting {
				m.deleting = true
				return
			}
		}
	}
}

func (w *simulatedDeployment) checkDone() {
	w.t.Helper()
	for _, s := range w.sets {
		wanted := w.replicas
		if s.name != w.template {
			wanted = 0
		}
		if s.Role != (Role{}) {
			w.t.Fatalf("set %s still has a role in a hand-over\n%s\n%s", s.name, w.log, w)
		}
		var up int32
		for _, m := range s.machines {
			if m.state == available && !m.deleting {
				up++
			}
		}
		if s.replicas != wanted || up != wanted || int32(len(s.machines)) != wanted {
			w.t.Fatalf("set %s should have %d machines, waiting: %s\n%s\n%s", s.name, wanted, w.waiting, w.log, w)
		}
	}
	if w.waiting != "" {
		w.t.Fatalf("the rollout is done and still waits: %s\n%s", w.waiting, w.log)
	}
}
