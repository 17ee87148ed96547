package simulation

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Prepared holds a scenario and a world in which the fleet of the scenario has settled. Each run starts from a clone of
// this world.
type Prepared struct {
	Scenario
	// Habits lists the unusual behavior of the cloud in these runs. Every run also includes some unusual behavior that
	// is not listed in Habits.
	Habits Habits
	// If OnStored is not nil, it is called with each Machine that a process of Machinist writes.
	OnStored func(*v1beta1.Machine)
	base     *World
}

// Prepare creates the fleet of the scenario, without faults.
func (s Scenario) Prepare(scheme *runtime.Scheme) (*Prepared, error) {
	w, err := New(scheme, s.Controllers)
	if err != nil {
		return nil, err
	}
	if err := classes(context.Background(), w.hand(w.control)); err != nil {
		return nil, err
	}
	if err := w.deploy(s.Apps); err != nil {
		return nil, err
	}
	if s.OldSystem != nil {
		if err := w.installOldSystem(*s.OldSystem); err != nil {
			return nil, fmt.Errorf("prepare scenario %s: %w", s.Name, err)
		}
	}
	if s.Base != nil {
		w.script = []Action{create(s.Base)}
	}
	w.script = append(w.script, s.InitialActions...)
	if err := w.Run(SettledDifference); err != nil {
		return nil, fmt.Errorf("prepare scenario %s: %w", s.Name, err)
	}
	if err := w.runFor(s.Age); err != nil {
		return nil, fmt.Errorf("age the fleet of scenario %s: %w", s.Name, err)
	}
	return &Prepared{Scenario: s, base: w}, nil
}

// Result is what a finished run reports.
type Result struct {
	Err            error
	Steps, Effects int
	Crashes        int
	Path           uint64
	// SettleSteps is the number of steps from the last fault, or from the beginning, until the world was settled.
	SettleSteps int
	// CreatedInstances is the number of instances that were created in the run.
	CreatedInstances int
	// BrokenInstances counts the instances that broke although the script did not request this.
	BrokenInstances int
	// Machines is the total number of machines that were created. TakenBack is true if users withdrew their requests:
	// machines were created, but no machine exists at the end.
	Machines  int
	TakenBack bool
	// Judged is how often the oracle checked each rule.
	Judged map[string]int
	// FinalState is the final state of a run without an error.
	FinalState End
}

// Run runs the scenario. The seed determines the choices. Without a plan, Run causes random faults. With a plan, only
// its faults occur, and the result is compared with the run without faults. story, if set, receives a line for each
// event.
func (p *Prepared) Run(seed uint64, plan Plan, story func(string)) Result {
	w, err := p.begin(seed, len(plan) > 0)
	if err != nil {
		return Result{Err: err}
	}
	w.story = story
	if len(plan) == 0 {
		w.disturb()
		return w.finish()
	}
	w.faults = plan
	r := &recording{scenario: p, seed: seed, plan: plan, result: w.finish()}
	r.result.Err = r.failure(p.record(seed).result)
	return r.result
}

// RunWithoutFaults runs the scenario without faults. The seed determines the choices. If Habits is not empty,
// RunWithoutFaults compares the result with a run without unusual behavior of the cloud. If story is not nil, it
// receives a line for each event.
func (p *Prepared) RunWithoutFaults(seed uint64, story func(string)) Result {
	w, err := p.begin(seed, true)
	if err != nil {
		return Result{Err: err}
	}
	w.story = story
	r := &recording{scenario: p, seed: seed, result: w.finish()}
	if r.result.Err == nil && len(p.Habits) > 0 {
		r.result.Err = r.failureAgainstBaseline(p.Under(nil).RunWithoutFaults(seed, nil))
	}
	return r.result
}

func (p *Prepared) begin(seed uint64, planned bool) (*World, error) {
	w, err := p.base.Clone(seed)
	if err != nil {
		return nil, err
	}
	w.script, w.hasPlan, w.onStored = p.Script(w.random), planned, p.OnStored
	w.cloud.past = past{habits: p.Habits, began: w.clock.at}
	w.mustEnd = w.clock.at.Add(within)
	for _, action := range w.script {
		w.mustEnd = w.mustEnd.Add(action.MinDelay)
	}
	return w, nil
}

func (w *World) finish() (result Result) {
	defer func() {
		if r := recover(); r != nil {
			result.Err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		result.Steps, result.Effects, result.Crashes, result.Path = w.steps, w.effects, w.crashes, w.path
		result.Judged = w.oracle.judged
		result.CreatedInstances, result.BrokenInstances = w.cloud.madeInAll(), w.broken
		result.Machines, result.TakenBack = w.machinesMade, len(w.machines()) == 0
	}()
	if err := w.Run(SettledDifference); err != nil {
		return Result{Err: err}
	}
	return Result{FinalState: endOf(w), SettleSteps: w.stepsWhenSettled - w.stepsAtFault}
}

func (w *World) disturb() {
	r := w.random
	w.laziness = map[string]int{}
	for _, p := range w.processes {
		for _, v := range p.views() {
			w.laziness[p.name+v.gvk.Kind] = []int{1, 1, 3, 20}[r.IntN(4)]
		}
	}
	w.cloud.Boot = []time.Duration{0, 20 * time.Second}[r.IntN(2)]
	w.cloud.Shutdown = []time.Duration{0, 10 * time.Second}[r.IntN(2)]
	if r.IntN(3) == 0 {
		death := kill([]string{Manager, Provider}[r.IntN(2)])
		death.MinDelay = []time.Duration{0, 0, 5 * time.Second, 70 * time.Second}[r.IntN(4)]
		w.script = slices.Insert(slices.Clone(w.script), r.IntN(len(w.script)+1), death)
	}
	w.faults = &randomFaults{left: []int{0, 1, 1, 2, 4}[r.IntN(5)], every: 4 + r.IntN(40)}
}

type randomFaults struct{ left, every int }

// Next implements Faults.
func (a *randomFaults) Next(w *World, e Effect) Fault {
	if a.left == 0 || w.random.IntN(a.every) > 0 {
		return NoFault
	}
	a.left--
	possible := faultsOf(e)
	return possible[w.random.IntN(len(possible))]
}
