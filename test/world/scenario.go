package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// Scenario is what people do to a fleet at rest, and what shall have become of it.
type Scenario struct {
	Name string
	// Group is what the scenario is about.
	Group Group
	// Base is the deployment that runs before; nil for none.
	Base *v1beta1.MachineDeployment
	// Script is what people do. It may differ from run to run.
	Script func(r *rand.Rand) []Deed
}

// Group is scenarios that belong together.
type Group string

// The groups.
const (
	// Lifecycle is one thing at a time that is asked of a fleet.
	Lifecycle Group = "lifecycle"
	// Fleets is several at a time, while instances break.
	Fleets Group = "fleets"
	// Autoscaling is an autoscaler at work.
	Autoscaling Group = "autoscaling"
)

// Groups are all that there are.
func Groups() []Group { return []Group{Lifecycle, Fleets, Autoscaling} }

// Scenarios are all that there are.
func Scenarios() []Scenario {
	always := func(deeds ...Deed) func(*rand.Rand) []Deed {
		return func(*rand.Rand) []Deed { return deeds }
	}
	return []Scenario{
		{Name: "create", Group: Lifecycle, Script: always(create(fleet(2, "a")))},
		{Name: "create-with-token", Group: Lifecycle, Script: always(create(fleet(1, "with-token")))},
		{Name: "create-then-delete", Group: Lifecycle, Script: func(r *rand.Rand) []Deed {
			kind := []string{"MachineDeployment", "MachineSet", "Machine", "instance", "Node"}[r.IntN(5)]
			n := 1
			if kind != "MachineDeployment" && kind != "MachineSet" {
				n += r.IntN(2)
			}
			return []Deed{create(fleet(2, "a")), remove().onceThereIs(n, kind)}
		}},
		{Name: "scale-up", Group: Lifecycle, Base: fleet(1, "a"), Script: always(scale(3))},
		{Name: "scale-down", Group: Lifecycle, Base: fleet(3, "a"), Script: always(scale(1))},
		{Name: "roll", Group: Lifecycle, Base: fleet(2, "a"), Script: always(roll("b"))},
		{Name: "churn", Group: Fleets, Base: fleet(2, "a", strategy(1, 0)), Script: func(r *rand.Rand) []Deed {
			return append([]Deed{setStrategy(strategy(r.IntN(2), r.IntN(3)))}, churn(r)...)
		}},
		{Name: "churn-recreate", Group: Fleets, Base: fleet(2, "a", ofType(v1beta1.StrategyRecreate)), Script: churn},
		{Name: "churn-on-delete", Group: Fleets, Base: fleet(2, "a", ofType(v1beta1.StrategyOnDelete)), Script: churn},
		{Name: "churn-in-place", Group: Fleets, Base: fleet(3, "a", ofType(v1beta1.StrategyInPlace)), Script: churn},
		{Name: "in-place-by-selection", Group: Fleets, Base: fleet(3, "a", bySelection(1)), Script: selections},
		{Name: "update-by-agent", Group: Fleets, Base: fleet(2, agentClass, ofType(v1beta1.StrategyInPlace), ofVersion(firstVersion)), Script: updates},
		{Name: "autoscaler", Group: Autoscaling, Base: fleet(4, "a", nodeGroup), Script: autoscaled},
		{Name: "autoscaler-roll", Group: Autoscaling, Base: fleet(4, "a", nodeGroup), Script: autoscaledRoll},
		{Name: "delete", Group: Lifecycle, Base: fleet(2, "a"), Script: always(remove())},
		{Name: "adopt", Group: Lifecycle, Script: adoptions},
		{Name: "preserve", Group: Lifecycle, Base: fleet(2, "a"), Script: preservations},
	}
}

// churn is what a few impatient people do to a deployment, while instances break.
func churn(r *rand.Rand) []Deed {
	var deeds []Deed
	for range 2 + r.IntN(3) {
		switch r.IntN(9) {
		case 0, 1:
			deeds = append(deeds, scale(int32(r.IntN(4))))
		case 2, 3:
			deeds = append(deeds, roll([]string{"a", "b", "c"}[r.IntN(3)]))
		case 4:
			deeds = append(deeds, pause(r.IntN(2) == 0))
		case 5:
			deeds = append(deeds, deleteMachine(r.IntN(4)))
		case 6:
			deeds = append(deeds, breakInstance(r.IntN(4)))
		case 7:
			deeds = append(deeds, label([]string{"gold", "silver"}[r.IntN(2)]))
		case 8:
			deeds = append(deeds, upgrade([]string{"v1.36.2", "v1.36.3"}[r.IntN(2)]))
		}
	}
	return append(deeds, pause(false))
}

// ofVersion gives a deployment's machines a version.
func ofVersion(version string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = version }
}

// ofType gives a deployment a strategy with its defaults.
func ofType(t v1beta1.DeploymentStrategyType) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: t} }
}

// strategy gives a deployment rolling updates within bounds, of which one is not zero.
func strategy(surge, unavailable int) func(*v1beta1.MachineDeployment) {
	if surge+unavailable == 0 {
		surge = 1
	}
	return func(d *v1beta1.MachineDeployment) {
		s, u := intstr.FromInt(surge), intstr.FromInt(unavailable)
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate, RollingUpdate: &v1beta1.RollingUpdate{MaxSurge: &s, MaxUnavailable: &u}}
	}
}

func setStrategy(change func(*v1beta1.MachineDeployment)) Deed {
	return edit("change the strategy", change)
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

// Run runs the scenario with the choices of a seed: with faults at random or, where at names one, with nothing but that.
// story, if given, takes what happens.
func (p *Prepared) Run(seed uint64, at At, story func(string)) (result Result) {
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
	if at.Fault == NoFault {
		w.disturb()
	} else {
		w.faults = at
	}
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
		death := kill([]string{Manager, Provider}[r.IntN(2)])
		death.Wait = []time.Duration{0, 0, 5 * time.Second, 70 * time.Second}[r.IntN(4)]
		w.script = slices.Insert(slices.Clone(w.script), r.IntN(len(w.script)+1), death)
	}
	w.faults = &atRandom{left: []int{0, 1, 1, 2, 4}[r.IntN(5)], every: 4 + r.IntN(40)}
}

// At is one fault, at one effect of a run.
type At struct {
	Effect int
	Fault  Fault
}

// Of implements Faults.
func (a At) Of(_ *World, e Effect) Fault {
	if e.N == a.Effect {
		return a.Fault
	}
	return NoFault
}

// faultsOf are those that make sense for an effect.
func faultsOf(e Effect) []Fault {
	switch {
	case e.Reads:
		return []Fault{CrashBefore, Refused}
	case e.Cloud:
		return []Fault{CrashBefore, CrashAfter, Refused, Lost, Late}
	}
	return []Fault{CrashBefore, CrashAfter, Refused, Lost}
}

// listing disturbs nothing and notes what could be disturbed.
type listing struct{ effects []Effect }

// Of implements Faults.
func (l *listing) Of(_ *World, e Effect) Fault {
	l.effects = append(l.effects, e)
	return NoFault
}

// plans returns each fault at each effect of a run that is otherwise undisturbed.
func (p *Prepared) plans(seed uint64) ([]At, error) {
	w, err := p.base.Fork(seed)
	if err != nil {
		return nil, err
	}
	seen := &listing{}
	w.script, w.faults = p.Script(w.random), seen
	if err := w.Run(Settled); err != nil {
		return nil, fmt.Errorf("scenario %s, undisturbed: %w", p.Name, err)
	}
	var plans []At
	for _, e := range seen.effects {
		for _, f := range faultsOf(e) {
			plans = append(plans, At{e.N, f})
		}
	}
	return plans, nil
}

// atRandom is a few faults, at random.
type atRandom struct{ left, every int }

// Of implements Faults.
func (a *atRandom) Of(w *World, e Effect) Fault {
	if a.left == 0 || w.random.IntN(a.every) > 0 {
		return NoFault
	}
	a.left--
	possible := faultsOf(e)
	return possible[w.random.IntN(len(possible))]
}
