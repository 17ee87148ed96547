// Package preview tells what a change of a MachineDeployment would do to its machines, without doing it. It plays the
// production controllers' decisions, wave after wave, in a world where everything succeeds: machines that are made
// become available, those that are deleted go, and neither takes time.
package preview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Fleet is a deployment as it would be, and what there is of it.
type Fleet struct {
	// Before is the deployment as it is, nil if there is none.
	Before *v1beta1.MachineDeployment
	// After is the deployment as it would be.
	After *v1beta1.MachineDeployment
	// Sets are the deployment's own, Machines those of the sets.
	Sets     []*v1beta1.MachineSet
	Machines []*v1beta1.Machine
	// Disruptions are how far the budgets of the namespace are used, nil if that is not known.
	Disruptions *disruption.View
	// Warnings are those of the API server and its webhooks about After.
	Warnings []string
	// Unread says what could not be read, each in a sentence.
	Unread []string
	// Class says what is known of the class that After names.
	Class ClassKnown
	// UserDataHash is that of the user data that the class has now, and Account what its credentials open; each is empty
	// where it is not known.
	UserDataHash, Account string
	Now                   time.Time
}

// ClassKnown says what is known of a class.
type ClassKnown int

// What may be known of a class.
const (
	ClassUnknown ClassKnown = iota
	ClassExists
	ClassMissing
	ClassGoing
)

// mostWaves bounds what is previewed: the largest fleet that the API admits, one machine at a time, each in a wave to
// come and in one to go.
const mostWaves = 250000

// Make previews what the change would do.
func Make(f Fleet) (*Plan, error) {
	p := &Plan{
		Kind: "RolloutPlan", Namespace: f.After.Namespace, Name: f.After.Name, New: f.Before == nil,
		Strategy: string(f.After.Spec.Strategy.TypeOrDefault()), Replicas: f.After.ReplicasOrDefault(),
		// Programs find lists, if empty ones.
		Changes: []Change{}, Waves: []Wave{}, Blockers: []Blocker{}, Notes: []string{},
		Machines: Machines{Deleted: []string{}, Updated: []string{}, Unchanged: []string{}, Propagated: []string{}},
	}
	if f.Before != nil {
		if err := p.compare(f); err != nil {
			return nil, err
		}
		p.otherInputs(f)
		p.warnings(f)
		if len(p.Changes) == 0 {
			p.Machines.Unchanged = names(f.Machines)
			return p, nil
		}
	}
	if f.Before == nil {
		p.warnings(f)
	}
	p.block(f)
	p.Notes = append(p.Notes, f.Unread...)
	w := newSimulation(f)
	if f.Before != nil && meta.IsStatusConditionTrue(f.Before.Status.Conditions, v1beta1.ConditionFrozen) {
		p.frozen(f.Before)
		w.thaw()
	}
	if err := p.simulate(w); err != nil {
		return nil, err
	}
	p.sumUp(f, w)
	p.budgets(f)
	return p, nil
}

// simulate plays until nothing more would happen, and goes on from what only a person or time ends, as if it had ended.
func (p *Plan) simulate(w *simulation) error {
	once := p.once()
	for {
		wave, err := w.decide()
		if err != nil {
			return err
		}
		if len(p.Waves) == 0 {
			p.MaxSurge, p.MaxUnavailable = w.last.MaxSurge, w.last.MaxUnavailable
		}
		if wave != nil {
			wave.Once = once
			p.Waves = append(p.Waves, *wave)
		}
		if len(p.Waves) > mostWaves {
			return errEndless
		}
		if w.follow() || wave != nil {
			continue
		}
		_, labelled := w.deployment.Labels[v1beta1.LabelFreeze]
		switch {
		case labelled:
			p.frozen(w.deployment)
			w.thaw()
		case w.deployment.Spec.Paused && (w.last.Outdated > 0 || w.last.Current < 0):
			p.hinder("Paused", "resumed",
				"The deployment is paused: nothing is exchanged until it is resumed (machinist rollout resume).")
			w.deployment.Spec.Paused = false
		case w.last.StartsIn > 0:
			at := w.deployment.Spec.RolloutAfter.Time
			p.hinder("Scheduled", "it is "+at.UTC().Format(time.RFC3339),
				fmt.Sprintf("spec.rolloutAfter is %s: then all machines are renewed.", at.UTC().Format(time.RFC3339)))
			w.now = at
		default:
			return nil
		}
		once = p.once()
	}
}

// once says what must have come about before the waves that are played now.
func (p *Plan) once() string {
	var all []string
	for _, b := range p.Blockers {
		if b.once != "" {
			all = append(all, b.once)
		}
	}
	return strings.Join(all, " and ")
}

func (p *Plan) hinder(reason, once, message string) {
	p.Blockers = append(p.Blockers, Blocker{Reason: reason, Message: message, once: once})
}

func (p *Plan) frozen(d *v1beta1.MachineDeployment) {
	message := "It has the label " + v1beta1.LabelFreeze + "."
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
		c.Status == metav1.ConditionTrue {
		message = c.Reason + ": " + c.Message
	}
	p.hinder("Frozen", "thawed", "The deployment is frozen: nothing is added or exchanged until that ends. "+message)
}

// thaw ends a freeze.
func (p *simulation) thaw() {
	delete(p.deployment.Labels, v1beta1.LabelFreeze)
	for _, set := range p.sets {
		delete(set.Labels, v1beta1.LabelFreeze)
	}
}

// block names what would keep the change from being carried out and is known beforehand.
func (p *Plan) block(f Fleet) {
	if f.Before != nil && !f.Before.DeletionTimestamp.IsZero() {
		p.hinder("Deleting", "", "The deployment is being deleted: nothing is rolled out any more.")
	}
	ref := f.After.Spec.Template.Spec.ClassRef
	if ref == nil {
		return
	}
	switch f.Class {
	case ClassMissing:
		p.hinder("ClassNotFound", "",
			fmt.Sprintf("The class %s does not exist in namespace %s: machines of it are not launched, and the rollout stops after three.", ref.Name, f.After.Namespace))
	case ClassGoing:
		p.hinder("ClassNotFound", "", fmt.Sprintf("The class %s is being deleted.", ref.Name))
	case ClassUnknown:
		p.Notes = append(p.Notes, fmt.Sprintf("Whether the class %s exists could not be seen.", ref.Name))
	}
}

// compare says what differs, and which of it makes a new revision.
func (p *Plan) compare(f Fleet) error {
	changes, err := change.Between("spec", f.Before.Spec, f.After.Spec)
	if err != nil {
		return err
	}
	for _, c := range changes {
		effect, err := effectOf(c.Path, &f.Before.Spec, &f.After.Spec)
		if err != nil {
			return err
		}
		p.Changes = append(p.Changes, Change{Change: c, Effect: effect})
	}
	labels, err := change.Between("metadata.labels", freezeOnly(f.Before), freezeOnly(f.After))
	if err != nil {
		return err
	}
	for _, c := range labels {
		p.Changes = append(p.Changes, Change{Change: c, Effect: EffectNone})
	}
	return nil
}

// freezeOnly returns the one label of a deployment that matters to its machines.
func freezeOnly(d *v1beta1.MachineDeployment) map[string]string {
	if value, ok := d.Labels[v1beta1.LabelFreeze]; ok {
		return map[string]string{v1beta1.LabelFreeze: value}
	}
	return map[string]string{}
}

// budgets says which disruption budgets the rollout has to ask, and names as blockers those that let no machine go now.
func (p *Plan) budgets(f Fleet) {
	if f.Disruptions == nil {
		return
	}
	var candidates []disruption.Candidate
	for _, m := range f.Machines {
		switch {
		case slices.Contains(p.Machines.Updated, m.Name):
			candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionInPlaceUpdate})
		case slices.Contains(p.Machines.Deleted, m.Name) && f.After.ReplicasOrDefault() > 0:
			candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRollout})
		}
	}
	for _, use := range f.Disruptions.Uses(candidates) {
		if use.Allowed > 0 {
			p.Notes = append(p.Notes, use.String()+".")
			continue
		}
		p.hinder("DisruptionBudget", "", use.String()+".")
	}
	for _, c := range candidates {
		if until, exempt := disruption.ExemptUntil(c.Machine, f.Now); exempt {
			text := fmt.Sprintf("Machine %s has the annotation %s", c.Machine.Name, v1beta1.AnnotationDoNotDisrupt)
			if !until.IsZero() {
				text += " until " + until.UTC().Format(time.RFC3339)
			}
			p.hinder("DoNotDisrupt", "", text+": the rollout waits for it.")
		}
	}
}

// sumUp says what became of each machine there was, and how far the numbers went.
func (p *Plan) sumUp(f Fleet, w *simulation) {
	p.Peak, p.Least = int32(len(f.Machines)), int32(0)
	for _, m := range f.Machines {
		if w.available(m) {
			p.Least++
		}
	}
	for _, wave := range p.Waves {
		p.Peak, p.Least = max(p.Peak, wave.Existing), min(p.Least, wave.Available)
		for _, n := range wave.Create {
			p.Machines.Created += n
		}
		for _, name := range wave.Delete {
			if strings.HasPrefix(name, previewed) {
				p.Machines.Transient++
			}
		}
	}
	owner := map[string]string{}
	for _, machines := range w.machines {
		for _, m := range machines {
			owner[m.Name] = string(metav1.GetControllerOfNoCopy(m).UID)
		}
	}
	blocked := map[string]*v1beta1.Machine{}
	for _, m := range f.Machines {
		now, there := owner[m.Name]
		was := metav1.GetControllerOfNoCopy(m)
		switch {
		case !m.DeletionTimestamp.IsZero():
			continue // it goes in any case
		case w.released[m.Name]:
			p.Machines.Unchanged = append(p.Machines.Unchanged, m.Name)
		case !there && was != nil:
			p.Machines.Deleted = append(p.Machines.Deleted, m.Name)
			blocked[m.Name] = m
		case was != nil && now != string(was.UID):
			p.Machines.Updated = append(p.Machines.Updated, m.Name)
			blocked[m.Name] = m
		default:
			p.Machines.Unchanged = append(p.Machines.Unchanged, m.Name)
			if w.propagated[m.Name] {
				p.Machines.Propagated = append(p.Machines.Propagated, m.Name)
			}
		}
	}
	for _, list := range [][]string{p.Machines.Deleted, p.Machines.Updated, p.Machines.Unchanged, p.Machines.Propagated} {
		slices.Sort(list)
	}
	p.Rolls = rolls(f, w)
	p.holdUps(blocked)
	p.Notes = append(p.Notes, p.notes(f)...)
	if w.last.Waiting != "" {
		p.hinder("Waiting", "", "In the end it waits: "+w.last.Waiting+".")
	}
}

// rolls reports whether machines of one revision are exchanged for those of another.
func rolls(f Fleet, w *simulation) bool {
	if w.last.Current < 0 {
		return false
	}
	current := w.last.Sets[w.last.Current]
	return slices.ContainsFunc(f.Machines, func(m *v1beta1.Machine) bool {
		owner := metav1.GetControllerOfNoCopy(m)
		return m.DeletionTimestamp.IsZero() && owner != nil && owner.UID != current.UID
	})
}

func names(machines []*v1beta1.Machine) []string {
	out := []string{}
	for _, m := range machines {
		if m.DeletionTimestamp.IsZero() {
			out = append(out, m.Name)
		}
	}
	slices.Sort(out)
	return out
}

// holdUps names what people have put on machines that keeps them from going or changing.
func (p *Plan) holdUps(machines map[string]*v1beta1.Machine) {
	var paused, hooked []string
	for name, m := range machines {
		if machinestate.Paused(m) {
			paused = append(paused, name)
		}
		if len(m.Spec.LifecycleHooks.PreDrain)+len(m.Spec.LifecycleHooks.PreTerminate) > 0 &&
			slices.Contains(p.Machines.Deleted, name) {
			hooked = append(hooked, name)
		}
	}
	slices.Sort(paused)
	slices.Sort(hooked)
	if len(paused) > 0 {
		p.hinder("MachinePaused", "", fmt.Sprintf("Paused, and so neither deleted nor changed until that ends: %s.",
			some(paused, 5)))
	}
	if len(hooked) > 0 {
		p.hinder("LifecycleHook", "", fmt.Sprintf("Deleted only when their lifecycle hooks are taken off: %s.",
			some(hooked, 5)))
	}
}

// notes says what could not be previewed.
func (p *Plan) notes(f Fleet) (notes []string) {
	if len(p.Machines.Updated) > 0 {
		notes = append(notes,
			"Whether a machine is changed in place is for its provider to say when the time comes: one that cannot be changed so gets another instance under the same name.")
		if machinedeployment.SameRevision(&f.Before.Spec.Template.Spec, &f.After.Spec.Template.Spec) &&
			f.After.Spec.RolloutAfter != nil {
			notes = append(notes,
				"spec.rolloutAfter changes nothing of an instance: with strategy InPlace machines are handed over to the new revision and stay what they are.")
		}
	}
	if len(p.Machines.Deleted) > 0 {
		notes = append(notes, "Drains and their PodDisruptionBudgets, quotas and the cloud's pace are not previewed.")
	}
	return notes
}
