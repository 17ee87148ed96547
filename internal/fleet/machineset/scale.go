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

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// maxReplicas is what the CRD admits. The controller does nothing about a set that has more anyway.
	maxReplicas = 100000

	// maxRejectedMachines is how many machines of one configuration may be unlaunchable before the set creates no more
	// of it.
	maxRejectedMachines = 3

	// frozenPoll is how often a set that would create machines checks whether the process may do so again.
	frozenPoll = 10 * time.Second
)

// State is what Decide needs to know.
type State struct {
	Set *v1beta1.MachineSet
	// Machines are those that the set controls, those being deleted included, without preserved ones.
	Machines []*v1beta1.Machine
	// Plain are those of the Machines that are known to be plain, Others the rest. Without Plain ones, all are checked.
	Plain, Others []*v1beta1.Machine
	// Receiver is the set that machines are handed over to; nil if no set is ready for them.
	Receiver *v1beta1.MachineSet
	// Expecting says that machines are being handed over to the set. It creates none then, because arriving machines may
	// be enough.
	Expecting bool
	// Orphans have no controller and match the selector. Preserved is how many machines are preserved that belonged to the
	// set or to another one of its deployment, Released how many of those have lost their labels and their owner.
	Orphans             []*v1beta1.Machine
	Preserved, Released int
	// Alone says that the set has no deployment. Exchanges is how many machines may be exchanged for others at a time.
	Alone     bool
	Exchanges int
	// Surge is how many machines the set's deployment may have above its replicas.
	Surge int
	// OverCapacity is by how many the set's replicas exceed what replicas + maxSurge of its deployment leave to it.
	OverCapacity int
	// Availability limits the deletion of available machines.
	Availability Availability
	Disruption
	// MaxInFlight is how many failed or unhealthy machines may be in the course of being replaced; InFlight is how many
	// are, over all sets of the deployment.
	MaxInFlight, InFlight int
	// Recoveries are when this process first saw each machine that is Ready although a check requested its remediation.
	Recoveries recoveries
	// NextRemediation and NextCreation are the times before which the set remediates or creates nothing, after failures.
	NextRemediation, NextCreation time.Time
	// Failing is the row of machines that failed in the same way.
	Failing failingRow
	// LostReplacements are the machines that replace some whose instance vanished and that are not available yet. Before
	// NextLost they are not replaced because their own instance vanished.
	LostReplacements Replacements
	NextLost         time.Time
	// CreationFailure is why the set creates nothing before NextCreation.
	CreationFailure Reason
	// Stopped says why this process must not create or remediate now; its reason is empty if it may.
	Stopped Reason
	Now     time.Time
}

// sorted returns the machines that are known to be plain, and all others.
func (s *State) sorted() (plain, others []*v1beta1.Machine) {
	if len(s.Plain) == 0 {
		return nil, s.Machines
	}
	return s.Plain, s.Others
}

// Reason is a reason of a condition with its message.
type Reason struct{ Reason, Message string }

// Plan is what a set does next. Its parts are independent: carried out in any order, or only in part, they keep every
// bound. After that the set makes another plan, until one is Settled.
type Plan struct {
	// Release are machines that no longer match.
	Release []*v1beta1.Machine
	// Adopt are orphans to take over.
	Adopt []*v1beta1.Machine
	// Update are machines to be patched, each with its desired state.
	Update []Update
	// HandOver are machines to move to another set of the deployment.
	HandOver []Update
	// Delete are surplus machines, chosen from a larger number if Chosen. Blocked are available surplus machines that stay
	// until the deployment can spare them.
	Delete, Blocked []*v1beta1.Machine
	Chosen          bool
	// Remediate are machines to be deleted in order to replace them.
	Remediate []*v1beta1.Machine
	// Denied are machines that budgets hold back.
	Denied []disruption.Denial
	// Create is how many machines to make.
	Create int

	// CreationBlocked says why fewer machines are created than are missing.
	CreationBlocked Reason
	// Frozen says why the set creates none, if that is for safety.
	Frozen Reason
	// Unadopted are orphans that the set does not adopt, and why.
	Unadopted       []*v1beta1.Machine
	UnadoptedReason string
	// BackingOff says that the replacement of failed machines waits because earlier replacements failed too.
	BackingOff bool
	// Postponed says that the plan leaves out what depends on the number of machines until the cache is new enough.
	Postponed bool
	// Wait is when to plan again without an event; zero is never.
	Wait time.Duration

	// asked are the machines that budgets allow to disrupt, to be asked for once more right before.
	asked map[types.UID]disruption.Candidate
	// planned are those of them that the plan disrupts, also where it is postponed.
	planned []disruption.Candidate
	// expiring are the machines to be marked as too old.
	expiring map[types.UID]bool
}

// Update is a machine as it is and as desired.
type Update struct{ From, To *v1beta1.Machine }

// Settled reports whether there is nothing to do.
func (p Plan) Settled() bool { return !p.DependsOnCount() && len(p.Release) == 0 && len(p.Update) == 0 }

// DependsOnCount reports whether the plan depends on the number of machines.
func (p Plan) DependsOnCount() bool {
	return len(p.Adopt) > 0 || len(p.HandOver) > 0 || len(p.Delete) > 0 || len(p.Remediate) > 0 || p.Create > 0
}

// withoutCounting returns the plan without what depends on the number of machines, to be made again after d.
func (p Plan) withoutCounting(d time.Duration) Plan {
	p.Adopt, p.HandOver, p.Delete, p.Remediate, p.Create = nil, nil, nil, nil, 0
	p.Postponed = true
	p.waitFor(d)
	return p
}

// Decide returns what the set does next.
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

	plain, others := s.sorted()
	members := make([]*v1beta1.Machine, 0, len(others))
	active := append(make([]*v1beta1.Machine, 0, len(s.Machines)), plain...)
	for _, m := range others {
		matches := selector.Matches(labels.Set(m.Labels))
		if matches {
			members = append(members, m)
		}
		switch {
		case !machinestate.Live(m):
		case matches:
			active = append(active, m)
		default:
			p.Release = append(p.Release, m)
		}
	}
	notable := active[len(plain):]
	replaced := s.replacedOnRequest(notable)
	// Machines being released count until the cache shows them released: they cause neither deletions nor creations yet.
	order, handing := handover.Ordered(s.Set)
	switch surplus := len(active) - replicas; {
	case handing:
		p.handOver(s, active, min(surplus, int(order.Machines)), order.Selected)
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	case surplus > 0 && handover.Receives(s.Set):
		// The surplus was handed over, and the deployment has not counted it yet.
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	case len(replaced) > 0 && (surplus == 0 || surplus == 1):
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
		if p.remediate(s, notable); len(p.Remediate) == 0 {
			p.replaceOnRequest(s, replaced, active, surplus)
		}
	case surplus > 0:
		// Machines due for preservation leave by themselves: neither they nor others in their stead are deleted.
		staying := slices.Concat(plain, withoutDueForPreservation(notable))
		surplus = max(0, len(staying)-replicas)
		order := machinestate.DeletionOrder(staying, s.Set.DeletePolicyOrDefault(), s.Set.Generation)
		p.Delete, p.Blocked = s.Availability.choose(s, exemptLast(order, notable, s.Now), surplus)
		p.hold(s)
		p.Chosen = surplus < len(staying)
		if len(p.Blocked) > 0 {
			p.waitFor(availabilityPoll)
		}
		// The surplus may stay for as long as a budget or the deployment needs it.
		if len(p.Delete) == 0 {
			p.remediate(s, notable)
		}
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
	default:
		missing := -surplus - len(p.Release)
		missing -= p.adopt(s, missing)
		p.create(s, missing)
		p.remediate(s, notable)
	}
	p.expire(s, active)
	p.update(s, members)
	p.waitForWindows(s.Now)
	p.takeTurns()
	if has(s.Set.Labels, v1beta1.LabelFreeze) {
		p.Frozen = s.frozen()
	}
	if s.Set.Spec.MinReadySeconds > 0 {
		for _, m := range notable {
			if in, ok := machinestate.AvailableIn(m, s.Set.Spec.MinReadySeconds, s.Now); ok && in > 0 {
				p.waitFor(in)
			}
		}
	}
	return p
}

// selectorOf returns the selector of a valid set, or why the set is invalid. The API rejects invalid sets, but one
// that exists anyway must do no harm: an empty selector would adopt all machines, and a set whose new machines do not
// match its selector, or whose template annotates them for deletion, would create machines without end.
func selectorOf(set *v1beta1.MachineSet) (labels.Selector, Reason) {
	if n := set.ReplicasOrDefault(); n < 0 || n > maxReplicas {
		return nil, Reason{v1beta1.ReasonInvalidConfiguration, fmt.Sprintf("spec.replicas is %d, not between 0 and %d", n,
			maxReplicas)}
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return nil, Reason{v1beta1.ReasonInvalidSelector, "spec.selector: " + err.Error()}
	}
	requirements, _ := selector.Requirements()
	switch {
	case len(requirements) == 0:
		return nil, Reason{v1beta1.ReasonInvalidSelector, "spec.selector is empty"}
	case !selector.Matches(labels.Set(templateOf(set).labels)):
		return nil, Reason{v1beta1.ReasonInvalidSelector, "spec.selector does not match spec.template.metadata.labels"}
	}
	for _, r := range requirements {
		if r.Key() == v1beta1.LabelProvider {
			return nil, Reason{v1beta1.ReasonInvalidSelector, "spec.selector must not select by " + r.Key() +
				", which machines get later"}
		}
	}
	if errs := validation.Template(&set.Spec.Template); len(errs) > 0 {
		return nil, Reason{v1beta1.ReasonInvalidConfiguration, errs[0].Error()}
	}
	return selector, Reason{}
}

// adopt plans to take over up to missing orphans, the best first, and returns how many.
func (p *Plan) adopt(s State, missing int) int {
	if missing <= 0 || has(s.Set.Annotations, v1beta1.AnnotationNoCreate) {
		p.leaveUnadopted(s.Orphans, v1beta1.ReasonEnoughReplicas)
		return 0
	}
	best := machinestate.DeletionOrder(s.Orphans, s.Set.DeletePolicyOrDefault(), s.Set.Generation)
	slices.Reverse(best)
	for i, m := range best {
		if i == missing {
			p.leaveUnadopted(best[i:], v1beta1.ReasonEnoughReplicas)
			break
		}
		p.Adopt = append(p.Adopt, m)
	}
	return len(p.Adopt)
}

func (p *Plan) leaveUnadopted(orphans []*v1beta1.Machine, reason string) {
	if len(orphans) > 0 {
		p.Unadopted, p.UnadoptedReason = orphans, reason
	}
}

// create plans to make up to missing machines.
func (p *Plan) create(s State, missing int) {
	if missing <= 0 || has(s.Set.Annotations, v1beta1.AnnotationNoCreate) {
		return
	}
	if s.Expecting {
		p.waitFor(handOverPoll)
		return
	}
	if p.Frozen = s.frozen(); p.Frozen.Reason != "" {
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
	capacity := max(0, ceiling-len(s.Machines)-len(p.Adopt)-s.Preserved-s.Released)
	if missing > capacity {
		p.CreationBlocked = tooManyMachines(ceiling, s.Preserved, s.Released)
		if s.Preserved+s.Released > 0 {
			p.waitFor(preservedPoll)
		}
	}
	p.Create = min(missing, capacity)
}

// requeueFrozen asks for another plan if the process is stopped. A change of the freeze label comes as an event.
func (p *Plan) requeueFrozen(s State) {
	if s.Stopped.Reason != "" {
		p.waitFor(frozenPoll)
	}
}

// frozen says why the set creates nothing, if that is for safety.
func (s State) frozen() Reason {
	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok {
		return frozenBy(s.Set, reason)
	}
	return s.Stopped
}

// unknownSchema says that the template has a schema that this process does not support.
func (s State) unknownSchema() Reason {
	if templateLabels := s.Set.Spec.Template.ObjectMeta.Labels; machinestate.UnsupportedSchema(templateLabels) {
		return Reason{v1beta1.ReasonUnknownTypeVersion, fmt.Sprintf("the template's label %s is %q; this process knows %q",
			v1beta1.LabelTypeVersion, templateLabels[v1beta1.LabelTypeVersion], v1beta1.TypeVersion)}
	}
	return Reason{}
}

// rejectedConfiguration says why no machine of the template may be created.
func (s State) rejectedConfiguration() Reason {
	if unknown := s.unknownSchema(); unknown.Reason != "" {
		return unknown
	}
	var without []*v1beta1.Machine
	_, others := s.sorted()
	for _, m := range others {
		if machinestate.Live(m) && machinestate.Unlaunchable(m) != nil &&
			sameInstanceSpec(&m.Spec, &s.Set.Spec.Template.Spec) {
			without = append(without, m)
		}
	}
	if len(without) < maxRejectedMachines {
		return Reason{}
	}
	why := machinestate.Unlaunchable(first(without, 1)[0])
	return Reason{v1beta1.ReasonInvalidConfiguration,
		fmt.Sprintf("Machines %s cannot be launched, and no more are made of the same configuration: %s: %s",
			namesOf(without), why.Reason, wording.Brief(why.Message))}
}

// update plans to patch the members, machines being deleted included, that differ from the template in a field that is
// propagated in place, or have a stale delete annotation of an autoscaler.
func (p *Plan) update(s State, members []*v1beta1.Machine) {
	t := templateOf(s.Set)
	mayRemoveAnnotation := len(p.Delete)+len(p.Blocked)+len(p.Denied) == 0 &&
		!has(t.annotations, v1beta1.AnnotationDeleteMachine)
	leaving := make(map[types.UID]bool)
	for _, m := range slices.Concat(p.Delete, p.Remediate) {
		leaving[m.UID] = true
	}
	for _, u := range p.HandOver {
		leaving[u.From.UID] = true
	}
	for _, m := range members {
		to := p.markExpired(s, m, t.propagate(m))
		in, marked := deleteAnnotationExpiresIn(m, s.Now)
		if to == nil && !marked {
			continue // The common case.
		}
		if leaving[m.UID] || machinestate.Unchangeable(m) {
			continue
		}
		if marked && machinestate.Live(m) && mayRemoveAnnotation {
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
	if p.Wait == 0 || d < p.Wait {
		p.Wait = d
	}
}

// first returns the n machines that come first by name, or all if there are fewer.
func first(machines []*v1beta1.Machine, n int) []*v1beta1.Machine {
	sorted := slices.SortedFunc(slices.Values(machines), func(a, b *v1beta1.Machine) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return sorted[:min(n, len(sorted))]
}

// namesOf names some of the machines.
func namesOf(machines []*v1beta1.Machine) string {
	var t tally
	t.add(machines...)
	return t.String()
}

// tally counts machines and has the first of their names. It does not keep the machines: a pass may delete thousands,
// and the cache has newer versions of them at once.
type tally struct {
	n     int
	names []string
}

func (t *tally) add(machines ...*v1beta1.Machine) {
	const shown = 3
	t.n += len(machines)
	for _, m := range first(machines, shown) {
		t.names = append(t.names, m.Name)
	}
	slices.Sort(t.names)
	t.names = t.names[:min(len(t.names), shown)]
}

// String names some of the machines.
func (t tally) String() string {
	if more := t.n - len(t.names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(t.names, ", "), more)
	}
	return strings.Join(t.names, ", ")
}
