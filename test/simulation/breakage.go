package simulation

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// These faults do not affect the process that causes an effect. Instead, something in the fleet breaks at the
// effect. Each scenario with a fleet runs with each of these faults, at effects that depend on the seed.
const (
	// BreakSilent stops the reports of a Node for some time.
	BreakSilent Fault = "machine-silent"
	// BreakVanished deletes the instance of a machine.
	BreakVanished Fault = "machine-vanishes"
	// BreakReplacement deletes the instance of a machine, and the next new instance does not start, or joins late.
	BreakReplacement Fault = "replacement-fails"
	// BreakBudget creates a budget that allows no disruption for some time.
	BreakBudget Fault = "budget-denies"
)

// Breakages returns all faults that break something in the fleet.
func Breakages() []Fault { return []Fault{BreakSilent, BreakVanished, BreakReplacement, BreakBudget} }

// breakageBudget is the name of the budget of BreakBudget.
const breakageBudget = "breakage"

// repair ends a breakage. Copies of the world share the function do, so it must find its objects in the given world.
type repair struct {
	at   time.Time
	name string
	do   func(*World) error
}

// endOfRetries is the time for which a machine must run so that the failures of its predecessors no longer count
// towards maxRetries.
const endOfRetries = time.Hour

// breakable returns the instances of running machines that a set owns and would replace.
func (w *World) breakable() (found []*instance) {
	for _, m := range w.machines() {
		in := w.cloud.byID(m.Spec.ProviderID)
		if in == nil || in.hung || !in.dying.IsZero() || in.MachineUID != m.UID || !m.DeletionTimestamp.IsZero() ||
			m.Status.Phase != v1beta1.MachineRunning || metav1.GetControllerOfNoCopy(m) == nil ||
			annotated(m, v1beta1.AnnotationSkipRemediation) ||
			w.cloud.troubles.mostSilent > 0 && w.clock.Since(m.CreationTimestamp.Time) <= endOfRetries {
			continue
		}
		if node := w.node(in.NodeName); node != nil && node.Spec.ProviderID == in.ProviderID &&
			readiness(node) == corev1.ConditionTrue {
			found = append(found, in)
		}
	}
	return found
}

// breakFleet carries out a breakage, and plans its repair. breakFleet does nothing if the fault is not a breakage,
// or if no machine can break.
func (w *World) breakFleet(f Fault) {
	candidates := w.breakable()
	if !slices.Contains(Breakages(), f) || len(candidates) == 0 {
		return
	}
	if f == BreakBudget {
		err := setBudget(budget(breakageBudget, "0")).Do(context.Background(), w, w.hand(w.control))
		if err != nil && !apierrors.IsForbidden(err) { // The namespace may be terminating.
			w.oracle.broken(fmt.Errorf("create a budget: %w", err))
		}
		w.repairIn(breakageTime, "delete the budget", func(w *World) error {
			return dropBudget(breakageBudget).Do(context.Background(), w, w.hand(w.control))
		})
		return
	}
	in := candidates[w.random.IntN(len(candidates))]
	w.logf("instance %s of %s breaks", in.ProviderID, in.MachineKey)
	w.broken++
	if f == BreakSilent {
		w.silence(in)
		return
	}
	w.cloud.instances = slices.DeleteFunc(w.cloud.instances, func(other *instance) bool { return other == in })
	if f == BreakReplacement {
		w.cloud.troubles.nextFails = []nextFailure{failsToStart, joinsSlowly}[w.random.IntN(2)]
		w.cloud.troubles.replaced = in.MachineUID
	}
}

// breakageTime limits how long a breakage lasts. It is longer than the timeout of health checks, and shorter than the
// join timeout.
const breakageTime = healthTimeout + 3*time.Minute

func (w *World) silence(in *instance) {
	in.hung = true
	id := in.ProviderID
	w.repairIn(breakageTime, "the kubelet reports again", func(w *World) error {
		if in := w.cloud.byID(id); in != nil {
			in.hung = false
		}
		return nil
	})
}

func (w *World) repairIn(most time.Duration, name string, do func(*World) error) {
	at := w.clock.at.Add(time.Duration(1 + w.random.Int64N(int64(most))).Truncate(time.Second))
	w.repairs = append(slices.Clip(w.repairs), repair{at, name, do})
	w.mustEnd = w.mustEnd.Add(most)
}

// repairChoices returns the repairs that are due.
func (w *World) repairChoices() (out []choice) {
	for i, r := range w.repairs {
		if !r.at.After(w.clock.at) {
			out = append(out, choice{"repair", func() error {
				w.logf("repair: %s", r.name)
				w.repairs = slices.Delete(slices.Clone(w.repairs), i, i+1)
				w.disturbed, w.lastFault, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
				return client.IgnoreNotFound(r.do(w))
			}})
		}
	}
	return out
}

func (w *World) nextRepair() (at time.Time, any bool) {
	for _, r := range w.repairs {
		if !any || r.at.Before(at) {
			at, any = r.at, true
		}
	}
	return at, any
}

// nextFailure describes how the next new instance fails.
type nextFailure int

const (
	failsToStart nextFailure = iota + 1
	joinsSlowly
)

// failNew makes a new instance fail if a breakage requires it and a set would replace its machine.
func (w *World) failNew(in *instance) {
	owned := slices.ContainsFunc(w.machines(), func(m *v1beta1.Machine) bool {
		return m.UID == in.MachineUID && metav1.GetControllerOfNoCopy(m) != nil
	})
	troubles := &w.cloud.troubles
	broken := w.oracle.machines[troubles.replaced]
	// If retries are limited, another new machine may be one that would not be replaced.
	isOther := troubles.mostSilent > 0 && broken != nil && broken.Status.Phase == v1beta1.MachineRunning
	if !owned || isOther {
		return
	}
	switch troubles.nextFails {
	case failsToStart:
		in.willFail = true
	case joinsSlowly:
		w.silence(in)
	}
	troubles.nextFails = 0
}

// breakages returns the given number of effects for each kind of breakage. The effects depend on the seed.
func (r *recording) breakages(moments int) (out []FaultAt) {
	var possible []Effect
	for _, e := range r.effects {
		if e.Breakable {
			possible = append(possible, e)
		}
	}
	kinds := Breakages()
	// Migrations and incidents state exactly which machines are replaced.
	if r.scenario.OldSystem != nil || r.scenario.Group == Incidents {
		kinds = []Fault{BreakBudget}
		if !r.scenario.Controllers.has(Health) {
			kinds = append(kinds, BreakSilent)
		}
	}
	for _, f := range kinds {
		hash := (&recording{scenario: r.scenario, seed: r.seed, plan: Plan{{0, f}}}).hash()
		for _, i := range spreadIndexes(len(possible), float64(moments), hash) {
			out = append(out, FaultAt{possible[i].N, f})
		}
	}
	return out
}

func (p Plan) hasBreakage() bool {
	return slices.ContainsFunc(p, func(at FaultAt) bool { return slices.Contains(Breakages(), at.Fault) })
}

// requestText matches annotations that the users of scenarios add to some of the machines and Nodes.
var requestText = regexp.MustCompile(`(machinist\.dev/(do-not-disrupt|delete-priority)|cni\.example\.com/address) `)

// withoutRequests returns the end without the annotations of users. If a machine breaks, its replacement does not have
// these annotations.
func (e End) withoutRequests() End {
	out := End{}
	for line, n := range e {
		out[requestText.ReplaceAllString(line, "")] += n
	}
	return out
}
