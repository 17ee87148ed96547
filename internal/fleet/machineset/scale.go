package machineset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// maxReplicas is the CRD's maximum. The controller ignores a set with more replicas.
	maxReplicas = 100000

	// frozenPoll is how often a frozen set with missing machines checks whether the process may create machines again.
	frozenPoll = 10 * time.Second
)

// State is the input of Decide.
type State struct {
	Set *v1beta1.MachineSet
	// Machines holds all machines that the set controls, including those being deleted, without preserved ones.
	Machines []*v1beta1.Machine
	// SteadyMachines contains the Machines for which isSteady is known to be true. OtherMachines contains all
	// remaining Machines. If SteadyMachines is empty, Decide checks all Machines.
	SteadyMachines, OtherMachines []*v1beta1.Machine
	// Receiver is the set that receives machines, or nil if no set is ready for that.
	Receiver *v1beta1.MachineSet
	// Expecting is true while another set hands machines over to this set. Until the hand-over ends, the set creates no
	// machines.
	Expecting bool
	// Orphans are machines that have no controller and match the selector.
	Orphans []*v1beta1.Machine
	// PreservedCount and ReleasedCount count the deployment's machines that left their set. Preserved machines were
	// taken out for inspection. Released machines lost the selector's labels.
	PreservedCount, ReleasedCount int
	// Standalone is true for a set without an owner. MaxReplacing is how many machines may be marked for replacement at
	// a time.
	Standalone   bool
	MaxReplacing int
	// Surge is the maxSurge of the set's deployment as a number of machines.
	Surge int
	// OverCapacity is the number of missing machines that must not be created now because of the machines in other
	// sets. The sets of a deployment may have at most replicas + maxSurge machines in total.
	OverCapacity int
	// Availability limits the deletion of available machines.
	Availability Availability
	Disruption
	Places
	// MaxInFlight is how many replacements of broken machines may be in progress at a time. InFlight is how many
	// replacements are in progress now, in all sets of the deployment.
	MaxInFlight, InFlight int
	// Recoveries contains the machines that became Ready again although a health check has requested their replacement.
	// The value is the time at which this process first saw the recovery.
	Recoveries recoveries
	// NextRemediation and NextCreation end the backoffs after failures.
	NextRemediation, NextCreation time.Time
	// FailureStreak counts the consecutive machines that failed for the same reason.
	FailureStreak failureStreak
	// LostReplacements holds the replacements in progress for machines whose instances vanished. If the instance of
	// such a replacement vanishes too, the next replacement is not created before NextLost.
	LostReplacements Replacements
	NextLost         time.Time
	// CreationFailure is the reason why the set creates no machines before NextCreation.
	CreationFailure ConditionReason
	// StopReason is the reason why this process must not create or remediate machines, or empty.
	StopReason ConditionReason
	Now        time.Time
}

func (s *State) splitSteady() (steady, others []*v1beta1.Machine) {
	if len(s.SteadyMachines) == 0 {
		return nil, s.Machines
	}
	return s.SteadyMachines, s.OtherMachines
}

// unsteady returns the machines that may need a decision.
func (s *State) unsteady() []*v1beta1.Machine {
	_, others := s.splitSteady()
	return others
}

// ConditionReason holds the reason and message of a condition. If the field Reason is empty, the condition does not
// become True.
type ConditionReason struct{ Reason, Message string }

// Plan describes the next changes of a set. The parts of a Plan are independent: all bounds hold even if only some
// parts are carried out, in any order. The set repeats planning until a plan is empty (see IsEmpty).
type Plan struct {
	// Release contains machines that no longer match the selector.
	Release []*v1beta1.Machine
	// Adopt contains orphans to adopt.
	Adopt []*v1beta1.Machine
	// Update contains machines to patch, each with its desired state.
	Update []Update
	// HandOver contains machines to move to another set of the deployment.
	HandOver []Update
	// Delete is the list of surplus machines that the set deletes. Chosen is true if there were more machines to
	// choose from than surplus machines. BlockedDeletions contains the surplus machines that the deployment still
	// needs, because it would have too few available machines without them.
	Delete, BlockedDeletions []*v1beta1.Machine
	Chosen                   bool
	// reasonsToDelete contains the reason of each deletion in Delete.
	reasonsToDelete map[types.UID]string
	// Remediate is the list of broken machines that the set deletes in order to replace them.
	Remediate []*v1beta1.Machine
	// Reboot is the list of unhealthy machines whose reboot the set requests.
	Reboot []*v1beta1.Machine
	// Denials is the list of disruptions that budgets or exemptions prevent now.
	Denials []disruption.Denial
	// Create is the number of machines that the set creates. With a placement, Places has a place for each of them.
	Create int
	Places []placement.Choice

	// CreationBlocked is the reason why the set creates fewer machines than are missing.
	CreationBlocked ConditionReason
	// FreezeReason is the reason of the condition Frozen, if the set must not create machines for safety.
	FreezeReason ConditionReason
	// UnadoptedOrphans holds orphans that the set does not adopt, for the reason UnadoptedReason.
	UnadoptedOrphans []*v1beta1.Machine
	UnadoptedReason  string
	// BackingOff means that failed machines stay for now because earlier replacements failed too.
	BackingOff bool
	// IsPostponed is true if the plan omits all changes that depend on the count, until the cache is new enough.
	IsPostponed bool
	// RequeueAfter is the time after which the set must be planned again even if no event occurs. If RequeueAfter is
	// zero, only an event triggers the next plan.
	RequeueAfter time.Duration

	// permitted contains the candidates that the budgets permitted. Before each disruption, the set also needs a
	// grant from the Ledger.
	permitted map[types.UID]disruption.Candidate
	// plannedDisruptions contains the permitted candidates that the plan disrupts, even if the plan is postponed.
	plannedDisruptions []disruption.Candidate
	expiring           map[types.UID]bool
	// moves contains the new places of machines that wait for capacity. rebalanced is the machine that the plan marks for
	// replacement to restore the balance of the placement.
	moves      map[types.UID]placement.Choice
	planner    *placement.Planner
	rebalanced *v1beta1.Machine
}

// Update contains the current and the desired state of a machine.
type Update struct{ From, To *v1beta1.Machine }

// IsEmpty reports whether there is nothing to do.
func (p Plan) IsEmpty() bool { return !p.DependsOnCount() && len(p.Release) == 0 && len(p.Update) == 0 }

// DependsOnCount reports whether the plan depends on the number of machines.
func (p Plan) DependsOnCount() bool {
	return len(p.Adopt) > 0 || len(p.HandOver) > 0 || len(p.Delete) > 0 || len(p.Remediate) > 0 ||
		len(p.Reboot) > 0 || p.Create > 0
}

// withoutCounting returns the plan without the changes that depend on the number of machines. The next plan is made
// after the duration d.
func (p Plan) withoutCounting(d time.Duration) Plan {
	p.Adopt, p.HandOver, p.Delete, p.Remediate, p.Reboot, p.Create, p.Places = nil, nil, nil, nil, nil, 0, nil
	p.IsPostponed = true
	p.waitFor(d)
	return p
}

// Decide returns the next plan of the set.
func Decide(s State) Plan {
	var p Plan
	selector, unusable := selectorOf(s.Set)
	if unusable.Reason != "" {
		p.CreationBlocked = unusable
		return p
	}
	if !s.Set.DeletionTimestamp.IsZero() {
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonSetDeleting)
		return p
	}
	replicas := int(s.Set.ReplicasOrDefault())

	steady, others := s.splitSteady()
	members := make([]*v1beta1.Machine, 0, len(others))
	active := append(make([]*v1beta1.Machine, 0, len(s.Machines)), steady...)
	for _, m := range others {
		matches := selector.Matches(labels.Set(m.Labels))
		if matches {
			members = append(members, m)
		}
		switch {
		case !machinestate.IsLive(m):
		case matches:
			active = append(active, m)
		default:
			p.Release = append(p.Release, m)
		}
	}
	unsteady := active[len(steady):]
	replaced := s.replacedOnRequest(unsteady)
	// A machine that this plan releases still counts, until the cache shows the release. Only then may the set create a
	// machine in its place.
	order, handing := handover.Ordered(s.Set)
	switch surplus := len(active) - replicas; {
	case handing:
		p.handOver(s, active, min(surplus, int(order.Machines)), order)
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	case surplus > 0 && handover.Receives(s.Set):
		// Do not delete the surplus machines. The set has received these machines from another set, and the
		// deployment has not raised the replicas yet.
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	case len(replaced) > 0 && (surplus == 0 || surplus == 1):
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
		if p.remediate(s, unsteady); len(p.Remediate) == 0 {
			p.replaceOnRequest(s, replaced, active, surplus)
		}
	case surplus > 0:
		// Machines due for preservation leave the set on their own, so no machine is deleted instead.
		staying := slices.Concat(steady, withoutDueForPreservation(unsteady))
		surplus = max(0, len(staying)-replicas)
		p.Delete, p.BlockedDeletions = s.Availability.choose(s, exemptLast(s.deletionOrder(staying), unsteady, s.Now), surplus)
		p.removeDenied(s)
		p.Chosen = surplus < len(staying)
		if len(p.BlockedDeletions) > 0 {
			p.waitFor(availabilityPoll)
		}
		// Remediation must not wait for a budget or for the deployment's availability.
		if len(p.Delete) == 0 {
			p.remediate(s, unsteady)
		}
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	default:
		missing := -surplus - len(p.Release)
		missing -= p.adopt(s, missing)
		p.create(s, missing)
		p.remediate(s, unsteady)
	}
	p.distribute(s, unsteady)
	p.expire(s, active)
	p.rebalance(s, active)
	p.update(s, members)
	p.waitForWindows(s.Now)
	p.recordPlanned()
	if has(s.Set.Labels, v1beta1.LabelFreeze) || s.Set.Spec.Hibernated {
		p.FreezeReason = s.freezeReason()
	}
	if s.Set.Spec.MinReadySeconds > 0 {
		for _, m := range unsteady {
			if in, ok := machinestate.AvailableIn(m, s.Set.Spec.MinReadySeconds, s.Now); ok && in > 0 {
				p.waitFor(in)
			}
		}
	}
	return p
}

// selectorOf returns the selector of a valid set, or the reason why the set is invalid. An invalid set that bypassed
// the API's checks must do no damage: it could adopt all machines or create machines endlessly.
func selectorOf(set *v1beta1.MachineSet) (labels.Selector, ConditionReason) {
	if n := set.ReplicasOrDefault(); n < 0 || n > maxReplicas {
		return nil, ConditionReason{v1beta1.ReasonInvalidConfiguration,
			fmt.Sprintf("spec.replicas is %d, but must be between 0 and %d", n, maxReplicas)}
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return nil, ConditionReason{v1beta1.ReasonInvalidSelector, "spec.selector: " + err.Error()}
	}
	requirements, _ := selector.Requirements()
	switch {
	case len(requirements) == 0:
		return nil, ConditionReason{v1beta1.ReasonInvalidSelector, "spec.selector is empty: it would match every machine"}
	case !selector.Matches(labels.Set(templateOf(set).labels)):
		return nil, ConditionReason{v1beta1.ReasonInvalidSelector, "spec.selector does not match spec.template.metadata.labels"}
	}
	for _, r := range requirements {
		if r.Key() == v1beta1.LabelProvider {
			return nil, ConditionReason{v1beta1.ReasonInvalidSelector, "spec.selector must not use the label " + r.Key() +
				", because machines may get it only after their creation"}
		}
	}
	errs := validation.Template(&set.Spec.Template)
	errs = append(errs, placement.Validate(field.NewPath("spec", "placement"), set.Spec.Placement)...)
	if len(errs) > 0 {
		return nil, ConditionReason{v1beta1.ReasonInvalidConfiguration, errs[0].Error()}
	}
	return selector, ConditionReason{}
}

// adopt plans the adoption of orphans, the most suitable first, for the given number of missing machines. It returns
// how many orphans will be adopted.
func (p *Plan) adopt(s State, missing int) int {
	if missing <= 0 || has(s.Set.Annotations, v1beta1.AnnotationNoCreate) {
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
		return 0
	}
	orphans, ofOtherClasses := s.adoptableByPlacement()
	best := machinestate.DeletionOrder(orphans, s.Set.DeletePolicyOrDefault(), s.Set.Generation)
	slices.Reverse(best)
	for i, m := range best {
		if i == missing {
			p.leaveUnadopted(best[i:], v1beta1.ReasonEnoughReplicas)
			break
		}
		p.Adopt = append(p.Adopt, m)
	}
	p.leaveUnadopted(ofOtherClasses, v1beta1.ReasonOtherClass)
	return len(p.Adopt)
}

func (p *Plan) leaveUnadopted(orphans []*v1beta1.Machine, reason string) {
	if len(orphans) > 0 {
		p.UnadoptedOrphans, p.UnadoptedReason = orphans, reason
	}
}

func (p *Plan) create(s State, missing int) {
	if missing <= 0 || has(s.Set.Annotations, v1beta1.AnnotationNoCreate) {
		return
	}
	if s.Expecting {
		p.waitFor(handOverPoll)
		return
	}
	if p.FreezeReason = s.freezeReason(); p.FreezeReason.Reason != "" {
		p.requeueFrozen(s)
		return
	}
	if p.CreationBlocked = s.rejectedConfiguration(); p.CreationBlocked.Reason != "" {
		return
	}
	if wait := s.NextCreation.Sub(s.Now); wait > 0 {
		p.CreationBlocked = s.CreationFailure
		p.waitFor(wait)
		return
	}
	if s.OverCapacity > 0 {
		missing = max(0, missing-s.OverCapacity)
		p.waitFor(capacityPoll)
	}
	ceiling := 2*max(int(s.Set.ReplicasOrDefault()), int(s.Set.Status.Replicas)) + s.Surge + 10
	capacity := max(0, ceiling-len(s.Machines)-len(p.Adopt)-s.PreservedCount-s.ReleasedCount)
	if missing > capacity {
		p.CreationBlocked = tooManyMachines(ceiling, s.PreservedCount, s.ReleasedCount)
		if s.PreservedCount+s.ReleasedCount > 0 {
			p.waitFor(preservedPoll)
		}
	}
	p.Create = min(missing, capacity)
}

// requeueFrozen requests another plan if the whole process is stopped. Removing the freeze label triggers an event.
func (p *Plan) requeueFrozen(s State) {
	if s.StopReason.Reason != "" {
		p.waitFor(frozenPoll)
	}
}

// freezeReason returns why the set must not create machines: the freeze label, the hibernation, or StopReason.
func (s State) freezeReason() ConditionReason {
	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok {
		return frozenBy(s.Set, reason)
	}
	if s.Set.Spec.Hibernated {
		return hibernation
	}
	return s.StopReason
}

// unknownSchema returns a reason if the template needs a newer version of the types than this process supports.
func (s State) unknownSchema() ConditionReason {
	if templateLabels := s.Set.Spec.Template.ObjectMeta.Labels; machinestate.UnsupportedSchema(templateLabels) {
		return ConditionReason{v1beta1.ReasonUnknownTypeVersion,
			fmt.Sprintf("the template's label %s is %q, but this process supports only %q", v1beta1.LabelTypeVersion,
				templateLabels[v1beta1.LabelTypeVersion], v1beta1.TypeVersion)}
	}
	return ConditionReason{}
}

// rejectedConfiguration returns why no machine may be created from the template, or an empty reason.
func (s State) rejectedConfiguration() ConditionReason {
	if unknown := s.unknownSchema(); unknown.Reason != "" {
		return unknown
	}
	if s.Set.Spec.Placement != nil {
		return ConditionReason{} // The planner avoids classes that are rejected.
	}
	var rejected []*v1beta1.Machine
	_, others := s.splitSteady()
	for _, m := range others {
		if machinestate.IsLive(m) && machinestate.UnlaunchableCondition(m) != nil &&
			sameInstanceSpec(&m.Spec, &s.Set.Spec.Template.Spec) {
			rejected = append(rejected, m)
		}
	}
	if len(rejected) < places.MaxUnlaunchable {
		return ConditionReason{}
	}
	why := machinestate.UnlaunchableCondition(firstByName(rejected, 1)[0])
	return ConditionReason{v1beta1.ReasonInvalidConfiguration,
		fmt.Sprintf("Machines %s cannot be launched, so no more are created with the same configuration: %s: %s",
			namesOf(rejected), why.Reason, wording.Shorten(why.Message))}
}

// update plans the patches of machines that differ from the template in a field that is propagated in place, or have a
// stale delete annotation.
func (p *Plan) update(s State, members []*v1beta1.Machine) {
	t := templateOf(s.Set)
	mayRemoveAnnotation := len(p.Delete)+len(p.BlockedDeletions)+len(p.Denials) == 0 &&
		!has(t.annotations, v1beta1.AnnotationDeleteMachine)
	leaving := make(map[types.UID]bool)
	for _, m := range slices.Concat(p.Delete, p.Remediate) {
		leaving[m.UID] = true
	}
	for _, u := range p.HandOver {
		leaving[u.From.UID] = true
	}
	if p.rebalanced != nil && !slices.Contains(members, p.rebalanced) {
		members = append(slices.Clone(members), p.rebalanced) // The machine is steady.
	}
	for _, m := range members {
		to := hibernate(s.Set, m, p.markRebalanced(s, m, p.setPlace(s, m, p.markExpired(s, m, t.propagate(m)))))
		in, marked := deleteAnnotationExpiresIn(m, s.Now)
		if to == nil && !marked {
			continue // The common case.
		}
		if leaving[m.UID] || machinestate.IsUnchangeable(m) {
			continue
		}
		if marked && machinestate.IsLive(m) && mayRemoveAnnotation {
			if in > 0 {
				p.waitFor(min(in, deleteAnnotationLifetime))
			} else {
				if to == nil {
					to = m.DeepCopy()
				}
				delete(to.Annotations, v1beta1.AnnotationDeleteMachine)
			}
		}
		if to != nil {
			p.Update = append(p.Update, Update{From: m, To: to})
		}
	}
}

func (p *Plan) waitFor(d time.Duration) {
	if p.RequeueAfter == 0 || d < p.RequeueAfter {
		p.RequeueAfter = d
	}
}

func firstByName(machines []*v1beta1.Machine, n int) []*v1beta1.Machine {
	sorted := slices.SortedFunc(slices.Values(machines), func(a, b *v1beta1.Machine) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return sorted[:min(n, len(sorted))]
}

// namesOf returns the first names for the message of a condition, which should change rarely.
func namesOf(machines []*v1beta1.Machine) string {
	const shown = 3
	t := machineTally{n: len(machines)}
	for _, m := range firstByName(machines, shown) {
		t.names = append(t.names, m.Name)
	}
	return t.String()
}

// machineTally counts machines and keeps the first names for an event. A pass may delete thousands of machines, so it
// does not keep the objects.
type machineTally struct {
	n     int
	names []string
}

func (t *machineTally) add(machines ...*v1beta1.Machine) {
	const shown = 10
	t.n += len(machines)
	for _, m := range firstByName(machines, shown) {
		t.names = append(t.names, m.Name)
	}
	slices.Sort(t.names)
	t.names = t.names[:min(len(t.names), shown)]
}

func (t machineTally) String() string {
	if more := t.n - len(t.names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(t.names, ", "), more)
	}
	return strings.Join(t.names, ", ")
}
