package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Scenario is what people do to a fleet at rest, and what shall have become of it.
type Scenario struct {
	Name string
	// Base is the deployment that runs before; nil for none.
	Base *v1beta1.MachineDeployment
	// Script is what people do. It may differ from run to run.
	Script func(r *rand.Rand) []Deed
}

// Scenarios are all that there are.
func Scenarios() []Scenario {
	always := func(deeds ...Deed) func(*rand.Rand) []Deed {
		return func(*rand.Rand) []Deed { return deeds }
	}
	return []Scenario{
		{Name: "create", Script: always(create(fleet(2, "a")))},
		{Name: "create-with-token", Script: always(create(fleet(1, "with-token")))},
		{Name: "create-then-delete", Script: func(r *rand.Rand) []Deed {
			kind := []string{"MachineDeployment", "MachineSet", "Machine", "instance", "Node"}[r.IntN(5)]
			n := 1
			if kind != "MachineDeployment" && kind != "MachineSet" {
				n += r.IntN(2)
			}
			return []Deed{create(fleet(2, "a")), remove().onceThereIs(n, kind)}
		}},
		{Name: "scale-up", Base: fleet(1, "a"), Script: always(scale(3))},
		{Name: "scale-down", Base: fleet(3, "a"), Script: always(scale(1))},
		{Name: "roll", Base: fleet(2, "a"), Script: always(roll("b"))},
		{Name: "delete", Base: fleet(2, "a"), Script: always(remove())},
	}
}

// Prepared is a scenario with its fleet at rest, from which runs are forked.
type Prepared struct {
	Scenario
	base *World
}

// Prepare brings up a scenario's fleet, undisturbed.
func (s Scenario) Prepare(scheme *runtime.Scheme) (*Prepared, error) {
	w, err := New(scheme)
	if err != nil {
		return nil, err
	}
	if err := classes(context.Background(), w.hand(w.control)); err != nil {
		return nil, err
	}
	if s.Base != nil {
		w.script = []Deed{create(s.Base)}
	}
	if err := w.Run(Settled); err != nil {
		return nil, fmt.Errorf("prepare scenario %s: %w", s.Name, err)
	}
	return &Prepared{s, w}, nil
}

// Result is what came of a run.
type Result struct {
	Err            error
	Steps, Effects int
	Crashes        int
	Path           uint64
}

// Run runs the scenario with the choices of a seed. story, if given, takes what happens.
func (p *Prepared) Run(seed uint64, story func(string)) (result Result) {
	var w *World
	defer func() {
		if r := recover(); r != nil {
			result.Err = fmt.Errorf("panic: %v", r)
		}
		if w != nil {
			result.Steps, result.Effects, result.Crashes, result.Path = w.steps, w.effects, w.crashes, w.path
		}
	}()
	w, err := p.base.Fork(seed)
	if err != nil {
		return Result{Err: err}
	}
	w.story = story
	w.script = p.Script(w.random)
	w.disturb()
	return Result{Err: w.Run(Settled)}
}

// disturb chooses how bad a run is.
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
		w.script = slices.Insert(slices.Clone(w.script), r.IntN(len(w.script)+1), kill([]string{Manager, Provider}[r.IntN(2)]))
	}
	w.faults = &atRandom{left: []int{0, 1, 1, 2, 4}[r.IntN(5)], every: 4 + r.IntN(40)}
}

// atRandom is a few faults, at random.
type atRandom struct{ left, every int }

// Of implements Faults.
func (a *atRandom) Of(w *World, e Effect) Fault {
	if a.left == 0 || w.random.IntN(a.every) > 0 {
		return NoFault
	}
	a.left--
	if e.Cloud {
		return []Fault{CrashBefore, CrashAfter, Refused, Lost, Late}[w.random.IntN(5)]
	}
	return []Fault{CrashBefore, CrashAfter, Refused, Lost}[w.random.IntN(4)]
}
