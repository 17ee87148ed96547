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
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wording"
)

// availabilityPoll is the time between two checks whether the deployment of a set permits the deletion of its surplus
// machines. The set gets no events about machines of other sets.
const availabilityPoll = time.Second

// Availability describes how many available machines a deployment needs.
//
// A deployment may lower a set's replicas so that the set deletes unavailable machines. If such a machine becomes
// available before the deletion, the set might delete an available machine that the deployment needs. Therefore the set
// counts the available machines of all sets immediately before each deletion (package victims). The deployment keeps
// counting a machine whose deletion is blocked (draft.blockedDeletions).
type Availability struct {
	// MinAvailable is how many machines of the deployment must stay available. For a standalone set, MinAvailable is
	// the number of replicas. So the set deletes an available machine only after all unavailable machines.
	MinAvailable int
	// InOtherSets counts the available machines in the other sets of the deployment.
	InOtherSets int
	// If UpToDate is true, a machine counts as available only if its instance is up to date.
	UpToDate bool
}

func (k Availability) counts(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	return machinestate.IsLive(m) && machinestate.IsAvailable(m, minReadySeconds, now) && !(k.UpToDate &&
		handover.Updating(m))
}

// choose returns the surplus machines that may be deleted now, and those whose deletion is blocked. order holds all
// machines of the set in deletion order.
func (k Availability) choose(s State, order []*v1beta1.Machine, surplus int) (may, blocked []*v1beta1.Machine) {
	if k.MinAvailable <= 0 {
		return order[:surplus], nil
	}
	available := func(m *v1beta1.Machine) bool { return k.counts(m, s.Set.Spec.MinReadySeconds, s.Now) }
	steady, others := s.splitSteady()
	spare := k.InOtherSets - k.MinAvailable + len(steady)
	for _, m := range others {
		if available(m) {
			spare++
		}
	}
	return victims.Choose(order, surplus, spare, available)
}

func (k Availability) message(blocked []*v1beta1.Machine) string {
	return fmt.Sprintf("Machine %s is available and is not deleted yet: at least %s must stay available.",
		firstByName(blocked, 1)[0].Name, wording.Count(k.MinAvailable, "machine"))
}

func (p *pass) readAvailability(ctx context.Context) error {
	s, d := &p.state, p.deployment
	s.Availability = Availability{}
	if s.Standalone {
		s.Availability.MinAvailable = int(s.Set.ReplicasOrDefault())
	}
	// A deployment that is being deleted or has an invalid strategy blocks no deletion.
	if d == nil || !d.DeletionTimestamp.IsZero() || p.live <= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.ForDeployment(d)
	if err != nil {
		return nil
	}
	k := Availability{MinAvailable: int(limits.MinAvailable(replicas)),
		UpToDate: d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace}
	if k.MinAvailable > 0 {
		if k.InOtherSets, err = p.availableElsewhere(ctx, k); err != nil {
			return err
		}
	}
	s.Availability = k
	return nil
}

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
	if p.shared.trustsCache(p.cacheVersion()) {
		for _, sibling := range siblings {
			machines, err := p.cachedMachines(ctx, sibling, nil)
			if err != nil {
				return 0, err
			}
			add(sibling, machines...)
		}
		return n, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.deployment.Spec.Selector)
	if err != nil {
		return 0, nil // With an invalid selector, the machines cannot be listed.
	}
	began := p.shared.cacheMark()
	list := &v1beta1.MachineList{}
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.LiveReader, list, &client.ListOptions{Namespace: p.key.Namespace,
		LabelSelector: selector})
	if err != nil {
		return 0, fmt.Errorf("list the machines of the deployment at the API server: %w", err)
	}
	p.shared.recordList(began, list.ResourceVersion)
	byUID := make(map[types.UID]*v1beta1.MachineSet, len(siblings))
	for _, sibling := range siblings {
		byUID[sibling.UID] = sibling
	}
	for _, m := range machines {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil && byUID[owner.UID] != nil && !preservation.IsPreserved(m) {
			add(byUID[owner.UID], m)
		}
	}
	return n, nil
}

// deletable reads the deployment live and returns the chosen machines that may still be deleted. The result relies on
// the available machines of other sets. If other sets have available machines, the caller must hold the lock
// sharedState.shrinkLocks until the deletion. Otherwise two sets could rely on the same available machines.
func (p *pass) deletable(ctx context.Context, chosen []*v1beta1.Machine) ([]*v1beta1.Machine, error) {
	d := &v1beta1.MachineDeployment{}
	switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(p.deployment), d); {
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
	may, blocked := p.state.Availability.choose(p.state, chosen, len(chosen))
	if p.deletionBlocked = len(blocked) > 0; p.deletionBlocked {
		p.requeueIn(availabilityPoll)
	}
	return may, nil
}
