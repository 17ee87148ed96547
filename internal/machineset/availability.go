package machineset

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/index"
	"machinist.dev/machinist/internal/machinestate"
	"machinist.dev/machinist/internal/rollout/bounds"
	"machinist.dev/machinist/internal/rollout/handover"
)

// keptPoll is how often a set that holds available machines back looks whether the deployment can do without them: no event
// of another set's machines tells it.
const availabilityPoll = time.Second

// Kept is how many available machines a deployment needs.
//
// A deployment tells its sets to have fewer machines by what it knows then, and one that was of no use may have become
// available when the set acts: then the set would delete an available one that the deployment did not mean to lose. So it
// looks itself, right before, what is left over all sets. A machine that is not available may always go. The deployment
// counts what is held back as what it is: machines that are there (draft.held).
type Availability struct {
	// Least is how many machines must stay available over all sets of the deployment; 0 for a set alone.
	MinAvailable int
	// Elsewhere is how many are available in its other sets.
	Elsewhere int
	// UpToDate says that only machines count whose instance is what they ask for.
	UpToDate bool
}

// counts reports whether a machine of the set is one of those that must stay.
func (k Availability) counts(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	return live(m) && machinestate.Available(m, minReadySeconds, now) && !(k.UpToDate && handover.Updating(m))
}

// victims returns the first of the machines that go, of a surplus, and which of those have to stay for the time being.
// Where some have to, what is beyond help goes in their place: nobody would replace it while there are too many.
func (k Availability) split(s State, order []*v1beta1.Machine, surplus int) (may, blocked []*v1beta1.Machine) {
	may, blocked = k.splitVictims(s, order[:surplus])
	for _, m := range order[surplus:] {
		if len(blocked) > 0 && !k.counts(m, s.Set.Spec.MinReadySeconds, s.Now) && (remediable(m) || machinestate.Unlaunchable(m) != nil && !machinestate.Paused(m)) {
			may, blocked = append(may, m), blocked[:len(blocked)-1]
		}
	}
	return may, blocked
}

// divide returns which of the victims, the first to go first, may go now, and which have to stay for the time being.
func (k Availability) splitVictims(s State, victims []*v1beta1.Machine) (may, blocked []*v1beta1.Machine) {
	if k.MinAvailable <= 0 {
		return victims, nil
	}
	spare := k.Elsewhere - k.MinAvailable
	for _, m := range s.Machines {
		if k.counts(m, s.Set.Spec.MinReadySeconds, s.Now) {
			spare++
		}
	}
	for _, m := range victims {
		switch {
		case !k.counts(m, s.Set.Spec.MinReadySeconds, s.Now):
			may = append(may, m)
		case spare > 0:
			may = append(may, m)
			spare--
		default:
			blocked = append(blocked, m)
		}
	}
	return may, blocked
}

// message says why machines are held back.
func (k Availability) message(blocked []*v1beta1.Machine) string {
	return fmt.Sprintf("Machine %s is available and stays while the deployment needs it: at least %d must be.", first(blocked, 1)[0].Name, k.MinAvailable)
}

// countKept finds out what keeps available machines of a set that has too many.
func (p *pass) readAvailability(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.Availability = Availability{}
	// What is on its way out itself, or cannot be read, must not hold anything up.
	if d == nil || !d.DeletionTimestamp.IsZero() || countLive(s.Machines) <= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.Resolve(d.Spec.Strategy, replicas)
	if err != nil {
		return nil
	}
	k := Availability{MinAvailable: int(limits.MinAvailable(replicas)), UpToDate: d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace}
	if k.MinAvailable > 0 {
		if k.Elsewhere, err = p.availableElsewhere(ctx, k); err != nil {
			return err
		}
	}
	s.Availability = k
	return nil
}

// availableElsewhere counts the available machines of the deployment's other sets: in the cache, if that is as new as a live
// list that this process made since its start and its last write of unknown outcome, or else in such a list.
func (p *pass) availableElsewhere(ctx context.Context, k Availability) (n int, err error) {
	siblings, err := p.siblings(ctx)
	if err != nil || len(siblings) == 0 {
		return 0, err
	}
	add := func(sibling *v1beta1.MachineSet, machines ...*v1beta1.Machine) {
		for _, m := range machines {
			if k.counts(m, sibling.Spec.MinReadySeconds, p.state.Now) {
				n++
			}
		}
	}
	if minResourceVersion, _ := p.shared.cacheRequirement(); minResourceVersion != "" && reached(p.cacheVersion(), minResourceVersion) {
		for _, sibling := range siblings {
			machines, err := p.cachedMachines(ctx, sibling)
			if err != nil {
				return 0, err
			}
			add(sibling, machines...)
		}
		return n, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.deployment.Spec.Selector)
	if err != nil {
		return 0, nil // Nothing is known of them.
	}
	_, ambiguousBefore := p.shared.cacheRequirement()
	list := &v1beta1.MachineList{}
	machines, err := index.Shared[v1beta1.Machine](ctx, p.Live, list, &client.ListOptions{Namespace: p.key.Namespace, LabelSelector: selector})
	if err != nil {
		return 0, fmt.Errorf("list the machines of the deployment live: %w", err)
	}
	p.shared.confirmCache(list.ResourceVersion, ambiguousBefore)
	byUID := make(map[types.UID]*v1beta1.MachineSet, len(siblings))
	for _, sibling := range siblings {
		byUID[sibling.UID] = sibling
	}
	for _, m := range machines {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil && byUID[owner.UID] != nil && !preserved(m) {
			add(byUID[owner.UID], m)
		}
	}
	return n, nil
}

// keep returns those of the victims that may still go, by what the deployment asks for at this moment: what it asked for when
// the set was told may be over. Other sets of the deployment count the same machines, so where they have any the caller
// holds memory.shrinking until the victims are deleted.
func (p *pass) deletable(ctx context.Context, victims []*v1beta1.Machine) ([]*v1beta1.Machine, error) {
	d := &v1beta1.MachineDeployment{}
	switch err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.deployment), d); {
	case apierrors.IsNotFound(err), err == nil && d.UID != p.deployment.UID:
		p.deployment = nil
	case err != nil:
		return nil, fmt.Errorf("get the set's deployment: %w", err)
	default:
		p.deployment = d
	}
	if err := p.readAvailability(ctx); err != nil {
		return nil, err
	}
	may, blocked := p.state.Availability.splitVictims(p.state, victims)
	if p.deletionBlocked = len(blocked) > 0; p.deletionBlocked {
		p.requeueIn(availabilityPoll)
	}
	return may, nil
}
