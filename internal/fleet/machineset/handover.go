package machineset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wording"
)

const handOverPoll = time.Second

// handOver plans to hand over at most n machines. The order may limit the hand-over to selected machines, or to
// machines whose class remains.
func (p *Plan) handOver(s State, active []*v1beta1.Machine, n int, order handover.Order) {
	if order.OnlySelected {
		active = slices.DeleteFunc(slices.Clone(active), func(m *v1beta1.Machine) bool { return !handover.IsSelected(m) })
		n = min(n, len(active))
	}
	if n <= 0 {
		return
	}
	if s.Receiver == nil {
		p.waitFor(handOverPoll)
		return
	}
	t := templateOf(s.Receiver)
	if order.OnlyKept {
		for _, m := range handOverOrder(keptBy(s.Receiver, active)) {
			if len(p.HandOver) < n {
				p.HandOver = append(p.HandOver, Update{From: m, To: t.toReceived(m, s.Set)})
			}
		}
		return
	}
	active = slices.DeleteFunc(slices.Clone(active), func(m *v1beta1.Machine) bool { return changesClassInLaunch(s, m) })
	if len(active) == 0 {
		p.waitFor(handOverPoll)
	}
	may, denied := p.ask(s, handOverOrder(active), func(*v1beta1.Machine) v1beta1.DisruptionReason {
		return v1beta1.DisruptionInPlaceUpdate
	})
	may = may[:min(n, len(may))]
	p.deny(denied[:min(len(denied), n-len(may))])
	for _, m := range may {
		p.HandOver = append(p.HandOver, Update{From: m, To: t.toReceived(m, s.Set)})
	}
}

// changesClassInLaunch reports whether a hand-over would change the class of a machine that may be requesting an
// instance in another zone. The token of the request prevents a second instance only in one zone, so such a machine
// stays until it has an instance or has failed.
func changesClassInLaunch(s State, m *v1beta1.Machine) bool {
	from, to := s.Set.Spec.Placement, s.Receiver.Spec.Placement
	if from == nil && to == nil || m.Spec.ProviderID != "" || places.AwaitsCapacity(m) || machinestate.HasFailed(m) {
		return false
	}
	class := s.Receiver.Spec.Template.Spec.ClassRef
	if to != nil {
		class = &v1beta1.LocalRef{Name: receivedPlace(m, from, to).ClassName}
	}
	return m.Spec.ClassRef == nil || class == nil || *class != *m.Spec.ClassRef
}

// keptBy returns the machines whose class belongs to the receiver, except for failed machines.
func keptBy(receiver *v1beta1.MachineSet, machines []*v1beta1.Machine) (kept []*v1beta1.Machine) {
	classes := receiver.Spec.Placement.ClassNames()
	if ref := receiver.Spec.Template.Spec.ClassRef; ref != nil {
		classes = []string{ref.Name}
	}
	for _, m := range machines {
		if m.Spec.ClassRef != nil && !machinestate.HasFailed(m) && slices.Contains(classes, m.Spec.ClassRef.Name) {
			kept = append(kept, m)
		}
	}
	return kept
}

// handOverOrder sorts machines for a hand-over. Machines that are not Ready or not up to date come first, because they
// serve no pods whose service the hand-over would interrupt. Machines with a delete mark come later. Within each group,
// machines that no controller may change come last.
func handOverOrder(machines []*v1beta1.Machine) []*v1beta1.Machine {
	ordered := slices.Clone(machines)
	slices.SortFunc(ordered, func(a, b *v1beta1.Machine) int {
		return cmp.Or(
			machinestate.FalseFirst(handover.Interrupts(a), handover.Interrupts(b)),
			machinestate.FalseFirst(machinestate.MarkedForDeletion(a), machinestate.MarkedForDeletion(b)),
			machinestate.FalseFirst(machinestate.IsUnchangeable(a), machinestate.IsUnchangeable(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return ordered
}

// toReceived returns the machine as it must be after the hand-over to the template's set: with the owner, labels and
// instance spec of that set. The label that selected the machine for this update is removed.
func (t template) toReceived(m *v1beta1.Machine, from *v1beta1.MachineSet) *v1beta1.Machine {
	changed := t.propagate(m)
	if changed == nil {
		changed = m.DeepCopy()
	}
	changed.OwnerReferences = append(slices.DeleteFunc(slices.Clone(m.OwnerReferences),
		func(o metav1.OwnerReference) bool { return o.UID == from.UID }), t.owner)
	delete(changed.Labels, v1beta1.LabelSelectedForUpdate)
	want := t.spec.DeepCopy()
	spec := &changed.Spec
	spec.ClassRef, spec.Provider, spec.ProviderSpec = want.ClassRef, want.Provider, want.ProviderSpec
	spec.CredentialsRef, spec.UserDataRef, spec.Version = want.CredentialsRef, want.UserDataRef, want.Version
	if t.placement != nil {
		setPlace(changed, receivedPlace(m, from.Spec.Placement, t.placement))
	} else {
		delete(changed.Labels, v1beta1.LabelPlacementDomain)
	}
	return changed
}

// receivedPlace returns the place of a machine in the placement of the set that receives it. The machine keeps its
// class if the class remains, and otherwise its domain if the domain remains. The set decides about machines that can
// keep neither: they get the first option.
func receivedPlace(m *v1beta1.Machine, from, to *v1beta1.Placement) placement.Choice {
	own := places.Of(m, to)
	if own.Domain != "" {
		return own
	}
	domain := &to.Domains[0]
	before := places.Of(m, from).Domain
	for i := range to.Domains {
		if to.Domains[i].Name == before {
			domain = &to.Domains[i]
		}
	}
	return placement.Choice{Domain: domain.Name, ClassName: domain.Options[0].ClassName}
}

// readPartner reads the set that receives this set's machines, and the set that hands machines over to this set.
func (p *pass) readPartner(ctx context.Context) error {
	if from := p.state.Set.Annotations[v1beta1.AnnotationReceiveFrom]; handover.Receives(p.state.Set) &&
		len(validation.IsDNS1123Label(from)) == 0 {
		set := &v1beta1.MachineSet{}
		if err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: from},
			set); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get set %s, which may hand over machines to this set: %w", from, err)
		}
		order, ok := handover.Ordered(set)
		p.state.Expecting = ok && order.Receiver == p.key.Name && handover.ReceivesFrom(p.state.Set, set) &&
			set.DeletionTimestamp.IsZero()
	}
	order, ok := handover.Ordered(p.state.Set)
	if !ok || len(validation.IsDNS1123Label(order.Receiver)) > 0 {
		return nil
	}
	to := &v1beta1.MachineSet{}
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: order.Receiver}, to)
	switch {
	case apierrors.IsNotFound(err):
		return nil // The deployment will change the order.
	case err != nil:
		return fmt.Errorf("get set %s, which receives machines of this set: %w", order.Receiver, err)
	}
	if _, unusable := selectorOf(to); unusable.Reason == "" && handover.ReceivesFrom(to, p.state.Set) {
		p.state.Receiver = to
	}
	return nil
}

// handOver moves machines to another set. handOver patches each machine separately, and the patch fails if the
// machine has changed since. A live read first confirms that the receiving set exists, because the garbage collector
// would delete its machines otherwise.
func (p *pass) handOver(ctx context.Context, plan Plan) error {
	updates := plan.HandOver
	if len(updates) == 0 {
		return nil
	}
	to := &v1beta1.MachineSet{}
	switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(p.state.Receiver), to); {
	case apierrors.IsNotFound(err):
		p.requeueIn(queueing.ConflictDelay)
		return nil
	case err != nil:
		return fmt.Errorf("get set %s, which receives machines of this set: %w", p.state.Receiver.Name, err)
	case to.UID != p.state.Receiver.UID || to.Generation != p.state.Receiver.Generation ||
		!handover.ReceivesFrom(to, p.state.Set):
		p.requeueIn(queueing.ConflictDelay)
		return nil
	}
	machines := make([]*v1beta1.Machine, 0, len(updates))
	desired := make(map[*v1beta1.Machine]*v1beta1.Machine, len(updates))
	for _, u := range updates[:min(len(updates), maxBatch)] {
		machines = append(machines, u.From)
		desired[u.From] = u.To
	}
	machines, err := p.grant(ctx, plan, machines)
	if err != nil {
		return err
	}
	handed, err := p.forEach("hand over", machines, func(m *v1beta1.Machine) (bool, error) {
		err := p.Client.Patch(ctx, desired[m], optimisticPatch(m))
		p.Ledger.Settle(m, err)
		return true, err
	})
	p.done.handedOver.add(handed...)
	if err != nil && !onlyConflicts(err) {
		p.failure = ConditionReason{reasonHandOverFailed, wording.Shorten(err.Error())}
	}
	return err
}
