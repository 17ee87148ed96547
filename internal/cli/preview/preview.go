// Package preview computes how a change of a MachineDeployment would affect its machines. The package runs the code
// of the controllers on a simulated fleet, wave after wave. In the simulation, every operation succeeds at once.
package preview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Fleet is a deployment before and after a change, with its sets and machines.
type Fleet struct {
	// OldDeployment holds the deployment before the change, or nil for a new deployment.
	OldDeployment *v1beta1.MachineDeployment
	// NewDeployment holds the deployment after the change.
	NewDeployment *v1beta1.MachineDeployment
	// Sets are the sets of the deployment, and Machines are their machines.
	Sets     []*v1beta1.MachineSet
	Machines []*v1beta1.Machine
	// Disruptions computes how many machines the budgets still allow to disrupt. It is nil if the budgets are unknown.
	Disruptions *disruption.View
	// Warnings lists what the API server and its webhooks warned about in the dry run of the change.
	Warnings []string
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string
	// Classes are the classes of the changed deployment, by name.
	Classes map[string]Class
	// Capacity is what is known about the capacity of the classes of a placement, by name.
	Capacity map[string]placement.Capacity
	Now      time.Time
}

// Class is what is known about a class.
type Class struct {
	// State says whether the class exists.
	State ClassKnown
	// UserDataHash is the hash of the class's current user data. Account is the cloud account to which the class's
	// credentials belong. UserDataHash and Account may be empty. They are also empty if the class is new to the
	// deployment.
	UserDataHash, Account string
}

// ClassNames returns the classes of a deployment: those of its template and its steps, or those of its placement.
func ClassNames(d *v1beta1.MachineDeployment) []string {
	if ref := d.Spec.Template.Spec.ClassRef; ref != nil {
		names := []string{ref.Name}
		for _, step := range d.Spec.VersionSteps {
			if step.ClassName != "" && !slices.Contains(names, step.ClassName) {
				names = append(names, step.ClassName)
			}
		}
		return names
	}
	return d.Spec.Placement.ClassNames()
}

// ClassKnown says whether a class exists, as far as the command can tell.
type ClassKnown int

// ClassGoing means that the class is being deleted.
const (
	ClassUnknown ClassKnown = iota
	ClassExists
	ClassMissing
	ClassGoing
)

// maxWaves is enough for the largest fleet, even if each wave creates or deletes only one machine.
const maxWaves = 250000

// Make computes what would happen to the machines of the fleet.
func Make(f Fleet) (*Plan, error) {
	p := &Plan{
		Kind: "RolloutPlan", Namespace: f.NewDeployment.Namespace, Name: f.NewDeployment.Name, New: f.OldDeployment == nil,
		Strategy: string(f.NewDeployment.Spec.Strategy.TypeOrDefault()), Replicas: f.NewDeployment.ReplicasOrDefault(),
		// A nil list would be null in JSON instead of [].
		Changes: []Change{}, Waves: []Wave{}, Blockers: []Blocker{}, Notes: []string{},
		Machines: Machines{Deleted: []string{}, Updated: []string{}, Unchanged: []string{}, Propagated: []string{}},
	}
	if f.OldDeployment != nil {
		if err := p.compare(f); err != nil {
			return nil, err
		}
		p.addInputNotes(f)
		p.addWarnings(f)
		if len(p.Changes) == 0 {
			p.Machines.Unchanged = names(f.Machines)
			return p, nil
		}
	}
	if f.OldDeployment == nil {
		p.addWarnings(f)
	}
	p.addKnownBlockers(f)
	p.Notes = append(p.Notes, f.ReadErrors...)
	w := newSimulation(f)
	if f.OldDeployment != nil && meta.IsStatusConditionTrue(f.OldDeployment.Status.Conditions, v1beta1.ConditionFrozen) {
		p.addFreeze(f.OldDeployment)
		w.endFreeze()
	}
	if err := p.simulate(w); err != nil {
		return nil, err
	}
	p.addResults(f, w)
	p.addBudgets(f)
	return p, nil
}

// simulate runs the simulation until the controllers do nothing more. A blocker does not stop the simulation: simulate
// only adds it to p.Blockers.
func (p *Plan) simulate(w *simulation) error {
	once := p.startCondition()
	for {
		wave, err := w.decide()
		if err != nil {
			return err
		}
		if len(p.Waves) == 0 {
			p.MaxSurge, p.MaxUnavailable = w.last.MaxSurge, w.last.MaxUnavailable
		}
		if wave != nil {
			wave.StartCondition = once
			p.Waves = append(p.Waves, *wave)
		}
		if len(p.Waves) > maxWaves {
			return errEndless
		}
		if w.carryOut() || wave != nil {
			continue
		}
		_, labelled := w.deployment.Labels[v1beta1.LabelFreeze]
		switch {
		case labelled:
			p.addFreeze(w.deployment)
			w.endFreeze()
		case w.deployment.Spec.Paused && (w.last.OutdatedMachines > 0 || w.last.CurrentIndex < 0):
			p.addBlocker("Paused", "resumed",
				"The deployment is paused: no machine is replaced until you resume it (machinist rollout resume).")
			w.deployment.Spec.Paused = false
		case w.last.StopReason == v1beta1.ReasonWaitingForPromotion:
			p.addBlocker(v1beta1.ReasonWaitingForPromotion, "the revision is promoted", "The rollout pauses after its first "+
				"machines (spec.strategy.rollingUpdate.pauseAfter): "+w.last.WaitMessage+".")
			metav1.SetMetaDataAnnotation(&w.deployment.ObjectMeta, v1beta1.AnnotationPromoteRevision,
				strconv.FormatInt(w.last.Revision, 10))
		case w.last.StartsIn > 0:
			at := w.deployment.Spec.RolloutAfter.Time
			p.addBlocker("Scheduled", "it is "+at.UTC().Format(time.RFC3339),
				fmt.Sprintf("spec.rolloutAfter is %s. At that time, the replacement of all machines starts.",
					at.UTC().Format(time.RFC3339)))
			w.now = at
		default:
			return nil
		}
		once = p.startCondition()
	}
}

// startCondition returns the condition for the start of the next waves, as text that can follow the word "once".
func (p *Plan) startCondition() string {
	var all []string
	for _, b := range p.Blockers {
		if b.endCondition != "" {
			all = append(all, b.endCondition)
		}
	}
	return strings.Join(all, " and ")
}

func (p *Plan) addBlocker(reason, once, message string) {
	p.Blockers = append(p.Blockers, Blocker{Reason: reason, Message: message, endCondition: once})
}

func (p *Plan) addFreeze(d *v1beta1.MachineDeployment) {
	message := "The deployment has the label " + v1beta1.LabelFreeze + "."
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionFrozen); c != nil &&
		c.Status == metav1.ConditionTrue {
		message = c.Reason + ": " + c.Message
	}
	p.addBlocker("Frozen", "the freeze has ended",
		"The deployment is frozen: no machine is created or replaced until the freeze ends. "+message)
}

func (p *simulation) endFreeze() {
	delete(p.deployment.Labels, v1beta1.LabelFreeze)
	for _, set := range p.sets {
		delete(set.Labels, v1beta1.LabelFreeze)
	}
}

func (p *Plan) addKnownBlockers(f Fleet) {
	if f.OldDeployment != nil && !f.OldDeployment.DeletionTimestamp.IsZero() {
		p.addBlocker("Deleting", "", "The deployment is being deleted, so the change is not rolled out.")
	}
	names := ClassNames(f.NewDeployment)
	placed := f.NewDeployment.Spec.Placement != nil
	var unusable []string
	for _, name := range names {
		state := f.Classes[name].State
		text := ""
		switch {
		case state == ClassUnknown:
			p.Notes = append(p.Notes, fmt.Sprintf("The existence of the class %s could not be checked.", name))
			continue
		case state == ClassExists:
			continue
		case state == ClassGoing:
			text = fmt.Sprintf("The class %s is being deleted.", name)
		default:
			text = fmt.Sprintf("The class %s does not exist in namespace %s", name, f.NewDeployment.Namespace)
			if placed {
				text += "."
			} else {
				text += ": its machines get no instances, and the rollout stops after three machines."
			}
		}
		unusable = append(unusable, text)
	}
	switch {
	case len(unusable) == 0:
	case !placed:
		p.addBlocker("ClassNotFound", "", unusable[0])
	case len(unusable) == len(names):
		p.addBlocker("ClassNotFound", "", "No class of spec.placement can be used, so no machine is created. "+
			strings.Join(unusable, " "))
	default:
		for _, text := range unusable {
			p.Notes = append(p.Notes, text+" No machine is created from it.")
		}
	}
}

func (p *Plan) compare(f Fleet) error {
	changes, err := change.Diff("spec", f.OldDeployment.Spec, f.NewDeployment.Spec)
	if err != nil {
		return err
	}
	for _, c := range changes {
		effect, err := effectOf(c.Path, &f.OldDeployment.Spec, &f.NewDeployment.Spec)
		if err != nil {
			return err
		}
		p.Changes = append(p.Changes, Change{Change: c, Effect: effect})
	}
	labels, err := change.Diff("metadata.labels", freezeOnly(f.OldDeployment), freezeOnly(f.NewDeployment))
	if err != nil {
		return err
	}
	for _, c := range labels {
		p.Changes = append(p.Changes, Change{Change: c, Effect: EffectNone})
	}
	return nil
}

// freezeOnly returns the freeze label of a deployment, the only label that affects the machines.
func freezeOnly(d *v1beta1.MachineDeployment) map[string]string {
	if value, ok := d.Labels[v1beta1.LabelFreeze]; ok {
		return map[string]string{v1beta1.LabelFreeze: value}
	}
	return map[string]string{}
}

// addBudgets adds a note for each disruption budget of the rollout, and a blocker for a budget that allows no
// disruption.
func (p *Plan) addBudgets(f Fleet) {
	if f.Disruptions == nil {
		return
	}
	var candidates []disruption.Candidate
	for _, m := range f.Machines {
		switch {
		case slices.Contains(p.Machines.Updated, m.Name):
			candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionInPlaceUpdate})
		case slices.Contains(p.Machines.Deleted, m.Name) && f.NewDeployment.ReplicasOrDefault() > 0:
			candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRollout})
		}
	}
	for _, use := range f.Disruptions.BudgetUses(candidates) {
		if use.Allowed > 0 {
			p.Notes = append(p.Notes, use.String()+".")
			continue
		}
		p.addBlocker("DisruptionBudget", "", use.String()+".")
	}
	for _, c := range candidates {
		if until, exempt := disruption.ExemptUntil(c.Machine, f.Now); exempt {
			text := fmt.Sprintf("Machine %s has the annotation %s", c.Machine.Name, v1beta1.AnnotationDoNotDisrupt)
			if !until.IsZero() {
				text += " until " + until.UTC().Format(time.RFC3339)
			}
			p.addBlocker("DoNotDisrupt", "", text+". The rollout waits for this machine.")
		}
	}
}

// addResults adds what happens to each machine, the highest number of machines, and the lowest number of available
// machines.
func (p *Plan) addResults(f Fleet, w *simulation) {
	p.Peak, p.Least = int32(len(f.Machines)), int32(0)
	for _, m := range f.Machines {
		if w.isAvailable(m) {
			p.Least++
		}
	}
	for _, wave := range p.Waves {
		p.Peak, p.Least = max(p.Peak, wave.Existing), min(p.Least, wave.Available)
		for _, n := range wave.Create {
			p.Machines.Created += n
		}
		for _, name := range wave.Delete {
			if strings.HasPrefix(name, simulatedPrefix) {
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
		newOwner, exists := owner[m.Name]
		oldOwner := metav1.GetControllerOfNoCopy(m)
		switch {
		case !m.DeletionTimestamp.IsZero():
			continue
		case w.releasedMachines[m.Name]:
			p.Machines.Unchanged = append(p.Machines.Unchanged, m.Name)
		case !exists && oldOwner != nil:
			p.Machines.Deleted = append(p.Machines.Deleted, m.Name)
			blocked[m.Name] = m
		case oldOwner != nil && newOwner != string(oldOwner.UID) && !w.keptMachines[m.Name]:
			p.Machines.Updated = append(p.Machines.Updated, m.Name)
			blocked[m.Name] = m
		default:
			p.Machines.Unchanged = append(p.Machines.Unchanged, m.Name)
			if w.propagatedMachines[m.Name] {
				p.Machines.Propagated = append(p.Machines.Propagated, m.Name)
			}
		}
	}
	for _, list := range [][]string{p.Machines.Deleted, p.Machines.Updated, p.Machines.Unchanged, p.Machines.Propagated} {
		slices.Sort(list)
	}
	p.addPlaces(f, w)
	p.Rolls = isRollout(f, w)
	p.addMachineBlockers(blocked)
	p.Notes = append(p.Notes, p.notes(f)...)
	if w.last.WaitMessage != "" {
		p.addBlocker("Waiting", "", "The rollout then waits: "+w.last.WaitMessage+".")
	}
}

// isRollout reports whether one revision replaces or adopts the machines of another revision.
func isRollout(f Fleet, w *simulation) bool {
	if w.last.CurrentIndex < 0 {
		return false
	}
	current := w.last.Sets[w.last.CurrentIndex]
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

func (p *Plan) addMachineBlockers(machines map[string]*v1beta1.Machine) {
	var paused, hooked []string
	for name, m := range machines {
		if machinestate.IsPaused(m) {
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
		p.addBlocker("MachinePaused", "", fmt.Sprintf("These machines are neither deleted nor changed until their pause ends: %s.",
			firstNames(paused, 5)))
	}
	if len(hooked) > 0 {
		p.addBlocker("LifecycleHook", "", fmt.Sprintf("These machines are deleted only after their lifecycle hooks are removed: %s.",
			firstNames(hooked, 5)))
	}
}

func (p *Plan) notes(f Fleet) (notes []string) {
	if len(p.Machines.Updated) > 0 {
		notes = append(notes,
			"The provider decides for each machine whether it can be changed in place. Otherwise the machine gets a new instance under the same name.")
		if machinedeployment.SameRevision(machinedeployment.TemplateOf(f.OldDeployment),
			machinedeployment.TemplateOf(f.NewDeployment)) &&
			f.NewDeployment.Spec.RolloutAfter != nil {
			notes = append(notes,
				"With strategy InPlace, spec.rolloutAfter does not change any instance: the machines are only handed over to the new revision.")
		}
	}
	if len(p.Machines.Deleted) > 0 {
		notes = append(notes, "The preview ignores drains, PodDisruptionBudgets, quotas and the speed of the cloud.")
	}
	return notes
}
