package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"

	"machinist.dev/machinist/test/invariants"
)

// Clone returns a copy of a world between two steps, with the memory of its processes. The seed determines the random
// choices of the copy. The oracle of the copy does not check what happened before.
func (w *World) Clone(seed uint64) (*World, error) {
	f, err := w.snapshot()
	if err != nil {
		return nil, err
	}
	f.source = rand.NewPCG(seed, 0)
	f.random = rand.New(f.source)
	f.faults, f.script, f.laziness = nil, nil, nil
	f.effects, f.crashes, f.steps, f.stepsAtFault, f.behind, f.path, f.broken = 0, 0, 0, 0, 0, 0, 0
	f.disturbed, f.lastAction = f.clock.at, f.clock.at
	f.oracle.begin(f)
	return f, nil
}

func (w *World) snapshot() (*World, error) {
	f := &World{}
	*f = *w
	source := *w.source
	f.source, f.random = &source, rand.New(&source)
	f.clock, f.story, f.betweenSteps, f.frames, f.processes = &clock{w.clock.at}, nil, nil, nil, nil
	f.control, f.target = w.control.Clone(f.clock.Now), w.target.Clone(f.clock.Now)
	f.cloud = w.cloud.clone(f.clock.Now)
	f.script, f.laziness, f.warnings = slices.Clone(w.script), maps.Clone(w.laziness), maps.Clone(w.warnings)
	f.oracle, f.secrets, f.safety = w.oracle.clone(f), w.secrets.clone(f), w.safety.clone()
	f.legacy = w.legacy.clone(f)
	f.outside = w.outside.clone()
	if w.volumes != nil {
		f.volumes = w.volumes.Clone(f.volumesOf)
	}
	for _, p := range w.processes {
		copied, err := p.clone(f)
		if err != nil {
			return nil, err
		}
		f.processes = append(f.processes, copied)
	}
	var err error
	f.autoscaler, err = w.autoscaler.clone(f)
	return f, err
}

func (o *oracle) clone(w *World) oracle {
	f := *o
	f.world, f.machines = w, maps.Clone(o.machines)
	f.managerSeen, f.judged = maps.Clone(o.managerSeen), maps.Clone(o.judged)
	f.cordoned, f.scaleDowns = maps.Clone(o.cordoned), maps.Clone(o.scaleDowns)
	f.history, f.instructions = make(map[uid][]version, len(o.history)), make(map[uid][]instruction, len(o.instructions))
	for id, versions := range o.history {
		f.history[id] = slices.Clone(versions)
	}
	for id, instructed := range o.instructions {
		f.instructions[id] = slices.Clip(instructed)
	}
	f.sets, f.deployments = cloneOwners(o.sets), cloneOwners(o.deployments)
	return f
}

func cloneOwners(all map[uid]*invariants.Owner) map[uid]*invariants.Owner {
	out := make(map[uid]*invariants.Owner, len(all))
	for id, o := range all {
		out[id] = &invariants.Owner{Controller: o.Controller, Versions: slices.Clip(o.Versions)}
	}
	return out
}
