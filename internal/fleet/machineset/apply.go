package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wording"
)

type actions struct {
	created, adopted, released, handedOver machineTally
	deleted, remediated                    deletions
}

// apply carries out at most one batch of the plan. It returns true if the pass may continue with another round.
func (p *pass) apply(ctx context.Context, plan Plan) (again bool, err error) {
	if plan.DependsOnCount() {
		if confirmed, err := p.confirm(ctx); err != nil || !confirmed {
			p.requeueIn(queueing.ConflictDelay)
			return false, err
		}
	}
	err = errors.Join(
		p.release(ctx, plan.Release),
		p.update(ctx, plan.Update),
		p.adopt(ctx, plan.Adopt),
		p.handOver(ctx, plan),
		p.scaleDown(ctx, plan),
	)
	remediated, failed := p.remediate(ctx, plan)
	failed = errors.Join(failed, p.reboot(ctx, plan))
	switch err = errors.Join(err, failed); {
	case err != nil && onlyConflicts(err):
		p.requeueIn(queueing.ConflictDelay)
		return false, nil
	case err != nil, p.deletionBlocked:
		return false, err
	case len(plan.Places) > 0 && remediated < len(plan.Remediate):
		// The places are those of a distribution without all these machines.
		p.requeueIn(queueing.ConflictDelay)
		return false, nil
	}
	again = p.create(ctx, plan)
	return again && !p.cacheStale, err
}

// confirm reports whether the plan still applies to the set in the API server.
func (p *pass) confirm(ctx context.Context) (bool, error) {
	set, decided := &v1beta1.MachineSet{}, p.state.Set
	if err := p.LiveReader.Get(ctx, p.key, set); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return set.UID == decided.UID && set.Generation == decided.Generation && set.DeletionTimestamp.IsZero() &&
		has(set.Labels, v1beta1.LabelFreeze) == has(decided.Labels, v1beta1.LabelFreeze) &&
		has(set.Annotations, v1beta1.AnnotationNoCreate) == has(decided.Annotations, v1beta1.AnnotationNoCreate) &&
		set.Annotations[v1beta1.AnnotationMoveTo] == decided.Annotations[v1beta1.AnnotationMoveTo] &&
		set.Annotations[v1beta1.AnnotationReceiveFrom] == decided.Annotations[v1beta1.AnnotationReceiveFrom], nil
}

func (p *pass) release(ctx context.Context, machines []*v1beta1.Machine) error {
	released, err := p.forEach("release", machines, func(m *v1beta1.Machine) (bool, error) {
		changed := m.DeepCopy()
		changed.OwnerReferences = p.withoutOwner(m)
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1beta1.AnnotationReleasedFrom, fleetUID(p.state.Set))
		if m.Labels[v1beta1.LabelMachineSet] == p.state.Set.Name {
			delete(changed.Labels, v1beta1.LabelMachineSet)
		}
		return true, p.Client.Patch(ctx, changed, optimisticPatch(m))
	})
	p.done.released.add(released...)
	return err
}

func (p *pass) update(ctx context.Context, updates []Update) error {
	machines := make([]*v1beta1.Machine, 0, len(updates))
	desired := make(map[*v1beta1.Machine]*v1beta1.Machine, len(updates))
	for _, u := range updates {
		machines = append(machines, u.From)
		desired[u.From] = u.To
	}
	updated, err := p.forEach("update", machines, func(m *v1beta1.Machine) (bool, error) {
		changed := desired[m]
		patch := client.MergeFrom(m)
		// A merge patch replaces whole lists, an autoscaler may just have renewed its delete annotation, and the provider
		// may just have begun to create an instance of the class. Such a patch must fail on a concurrent change.
		if !sameLists(m, changed) ||
			m.Annotations[v1beta1.AnnotationDeleteMachine] != changed.Annotations[v1beta1.AnnotationDeleteMachine] ||
			!equality.Semantic.DeepEqual(m.Spec.ClassRef, changed.Spec.ClassRef) ||
			m.Spec.PowerState != changed.Spec.PowerState {
			patch = optimisticPatch(m)
		}
		return true, p.Client.Patch(ctx, changed, patch)
	})
	p.known.sent(updated, p.state.Now)
	for _, m := range updated {
		if isRebalanced(m) && !isRebalanced(desired[m]) {
			p.known.rebalancing.fail(p.state.Now, minRebalancingBackoff, maxRebalancingBackoff)
		}
	}
	return err
}

// adopt adopts orphans. A live read of each orphan first confirms that it may still be adopted.
func (p *pass) adopt(ctx context.Context, orphans []*v1beta1.Machine) error {
	if len(orphans) == 0 {
		return nil
	}
	t := templateOf(p.state.Set)
	selector, _ := selectorOf(p.state.Set)
	provider := p.provider(ctx)
	adopted, err := p.forEach("adopt", orphans, func(cached *v1beta1.Machine) (bool, error) {
		m := &v1beta1.Machine{}
		if err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(cached), m); err != nil {
			return false, err
		}
		if m.UID != cached.UID || !adoptable(m, selector) {
			return false, nil
		}
		changed := t.propagate(m)
		if changed == nil {
			changed = m.DeepCopy()
		}
		changed.OwnerReferences = append(p.withoutOwner(m), t.owner)
		if p.state.Set.Spec.Placement != nil {
			setPlace(changed, p.state.placeOf(m))
		}
		delete(changed.Annotations, v1beta1.AnnotationReleasedFrom)
		if !slices.Contains(changed.Finalizers, v1beta1.MachineFinalizer) {
			changed.Finalizers = append(changed.Finalizers, v1beta1.MachineFinalizer)
		}
		if provider != "" && changed.Labels[v1beta1.LabelProvider] == "" {
			changed.Labels[v1beta1.LabelProvider] = provider
		}
		return true, p.Client.Patch(ctx, changed, optimisticPatch(m))
	})
	p.done.adopted.add(adopted...)
	for _, m := range orphans {
		if !slices.Contains(adopted, m) {
			p.notAdoptable[m.UID] = true
		}
	}
	return err
}

// scaleDown deletes surplus machines. A victim that was chosen among several machines, or because it was unavailable,
// is deleted only if it has not changed since. Otherwise the next round decides again.
func (p *pass) scaleDown(ctx context.Context, plan Plan) (err error) {
	victims := plan.Delete[:min(len(plan.Delete), maxBatch)]
	if len(victims) > 0 && p.deployment != nil {
		if p.state.Availability.InOtherSets > 0 { // Other sets may be about to delete machines because of the same count.
			defer p.shared.shrinkLocks.Lock(fleetUID(p.state.Set))()
		}
		if victims, err = p.deletable(ctx, victims); err != nil {
			return err
		}
	}
	if victims, err = p.grant(ctx, plan, victims); err != nil {
		return err
	}
	availability := p.state.Availability
	deleted, err := p.forEach("delete", victims, func(m *v1beta1.Machine) (bool, error) {
		preconditions := client.Preconditions{UID: &m.UID}
		if plan.Chosen ||
			availability.MinAvailable > 0 && !availability.counts(m, p.state.Set.Spec.MinReadySeconds, p.state.Now) {
			preconditions.ResourceVersion = &m.ResourceVersion
		}
		began := p.traceBegins()
		err := p.Client.Delete(ctx, reference(m), preconditions)
		p.Ledger.Settle(m, err)
		p.traceDeleted(m, began, plan.reasonsToDelete[m.UID], err)
		return true, err
	})
	if err == nil && len(deleted) < len(victims) {
		p.markCacheStale()
	}
	for _, m := range deleted {
		p.done.deleted.add(plan.reasonsToDelete[m.UID], m)
		if isRebalanced(m) {
			p.known.rebalancing = backoff{}
		}
	}
	p.deletionFailed(err)
	return err
}

// remediate deletes machines that must be replaced. A live read first confirms that the reason still applies.
func (p *pass) remediate(ctx context.Context, plan Plan) (remediated int, err error) {
	candidates := plan.Remediate
	if len(candidates) == 0 {
		return 0, nil
	}
	defer p.shared.remediating.Lock(fleetUID(p.state.Set))()
	if err := p.countInFlight(ctx); err != nil {
		return 0, err
	}
	lost, broken := splitLost(candidates)
	free := max(0, p.state.MaxInFlight-p.state.InFlight)
	tried, err := p.grant(ctx, plan, slices.Concat(lost[:min(len(lost), maxBatch)], broken[:min(len(broken), free)]))
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	reasons := make(map[types.UID]string, len(tried))
	deleted, err := p.forEach("replace", tried, func(cached *v1beta1.Machine) (done bool, err error) {
		var wrote error
		defer func() { p.Ledger.Settle(cached, wrote) }()
		m := &v1beta1.Machine{}
		if err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(cached), m); err != nil {
			return false, err
		}
		if m.UID != cached.UID || !remediable(m) || p.state.Recoveries.graceLeft(m, p.state.Now) > 0 ||
			!metav1.IsControlledBy(m, p.state.Set) ||
			instanceLost(m) != instanceLost(cached) {
			return false, nil
		}
		began, reason := p.traceBegins(), remediationReason(m)
		wrote = p.Client.Delete(ctx, reference(m),
			client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
		p.traceDeleted(m, began, reason, wrote)
		mu.Lock()
		defer mu.Unlock()
		reasons[m.UID] = reason
		return true, wrote
	})
	for _, m := range deleted {
		p.done.remediated.add(reasons[m.UID], m)
		if p.Remediated != nil {
			p.Remediated(reasons[m.UID])
		}
	}
	p.recordRemediated(deleted)
	if err == nil && len(deleted) < len(tried) {
		p.markCacheStale()
	}
	p.deletionFailed(err)
	return len(deleted), err
}

func (p *pass) recordRemediated(deleted []*v1beta1.Machine) {
	lost, broken := splitLost(deleted)
	in, _ := p.shared.replacementsOf(p.state.Set.UID)
	again := false
	for _, m := range lost {
		// A lost machine that was itself a replacement no longer counts against the budget.
		again = again || slices.Contains(p.known.lostReplacements, m.Name)
		p.known.lostReplacements = p.known.lostReplacements.Begin(m.Name)
		in = in.without(m.Name)
	}
	if again {
		p.known.lostBackoff.fail(p.state.Now, minRemediationBackoff, maxRemediationBackoff)
	}
	for _, m := range broken {
		in = in.Begin(m.Name)
		p.known.lostReplacements = p.known.lostReplacements.without(m.Name)
	}
	p.known.failureStreak.add(broken, p.state.Now)
	if len(broken) > 0 {
		p.known.remediation.fail(p.state.Now, minRemediationBackoff, maxRemediationBackoff)
	}
	p.shared.keepReplacements(p.state.Set.UID, in)
}

// forEach calls f for every machine and returns the machines for which f succeeded. NotFound errors are ignored.
func (p *pass) forEach(verb string, machines []*v1beta1.Machine,
	f func(*v1beta1.Machine) (done bool, err error)) ([]*v1beta1.Machine, error) {
	done := make([]bool, len(machines))
	errs := make([]error, len(machines))
	p.ForEach(len(machines), func(i int) {
		ok, err := f(machines[i])
		done[i] = ok && err == nil
		if client.IgnoreNotFound(err) != nil {
			errs[i] = fmt.Errorf("%s machine %s: %w", verb, machines[i].Name, err)
		}
	})
	var succeeded []*v1beta1.Machine
	for i, m := range machines {
		if done[i] {
			succeeded = append(succeeded, m)
		}
		if freshness.Ambiguous(errs[i]) {
			p.known.cache.Invalidate()
			p.shared.invalidateCache()
		}
	}
	return succeeded, errors.Join(errs...)
}

// markCacheStale ends the pass after this round, because another round would decide from the same stale cache.
func (p *pass) markCacheStale() {
	p.cacheStale = true
	p.requeueIn(queueing.ConflictDelay)
}

// deletionFailed records an error for the condition ReplicaFailure. Conflicts are ignored, because the next pass tries
// again.
func (p *pass) deletionFailed(err error) {
	if err != nil && !onlyConflicts(err) {
		p.failure = ConditionReason{v1beta1.ReasonMachineDeleteFailed, wording.Shorten(err.Error())}
	}
}

func (p *pass) withoutOwner(m *v1beta1.Machine) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(m.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.UID == p.state.Set.UID
	})
}

func reference(m *v1beta1.Machine) *v1beta1.Machine {
	return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}}
}

// optimisticPatch returns a merge patch that fails if another client has changed the machine.
func optimisticPatch(m *v1beta1.Machine) client.Patch {
	return client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{})
}

func onlyConflicts(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !onlyConflicts(e) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err)
}
