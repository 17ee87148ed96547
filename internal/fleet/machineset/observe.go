package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/index"
)

var errGone = errors.New("the set no longer exists")

func (p *pass) observe(ctx context.Context) error {
	set := &v1beta1.MachineSet{}
	switch err := p.Client.Get(ctx, p.key, set); {
	case apierrors.IsNotFound(err):
		return errGone
	case err != nil:
		return fmt.Errorf("get the set: %w", err)
	}
	if set.Spec.Replicas == nil && set.DeletionTimestamp.IsZero() {
		return p.storeReplicas(ctx, set)
	}
	p.known = p.shared.get(set)
	p.known.observed(set)
	p.state = State{Set: set, MaxInFlight: remediationLimit(set.Spec.Remediation, set.ReplicasOrDefault()),
		Now: p.Clock.Now()}
	if p.StopReason != nil {
		p.state.StopReason = p.StopReason()
	}
	if err := p.readMachines(ctx); err != nil {
		return err
	}
	var err error
	if p.state.Orphans, err = p.orphans(ctx); err != nil {
		return err
	}
	if err := p.readPartner(ctx); err != nil {
		return err
	}
	return p.readOwner(ctx)
}

// readMachines reads the machines from the cache and determines whether the count may be trusted.
func (p *pass) readMachines(ctx context.Context) (err error) {
	set := p.state.Set
	trustedAt := func(version string) (trusted, asNewAsSpec bool) {
		return p.known.cache.Trusts(version),
			freshness.AtLeastAsNew(version, p.known.specVersion) || p.Decisions.Has(set.UID, set.Generation)
	}
	for range 2 {
		// Read the cache version before the list, so that the list is at least as new as this version.
		p.trusted, p.asNewAsSpec = trustedAt(p.cacheVersion())
		if p.state.Machines, err = p.cachedMachines(ctx, set, &p.known.steadyMachines); err != nil {
			return err
		}
		// The list waits for this process's own writes, and the cache may have become trustworthy meanwhile. If so,
		// list again.
		if trusted, asNew := trustedAt(p.cacheVersion()); trusted == p.trusted && asNew == p.asNewAsSpec {
			break
		}
	}
	p.shared.keepSize(p.key, len(p.state.Machines))
	return nil
}

// cacheVersion returns the resource version up to which the cache of Machines is complete, or "" if unknown.
func (r *Reconciler) cacheVersion() string {
	if r.MachineCacheVersion == nil {
		return ""
	}
	return r.MachineCacheVersion()
}

// cachedMachines returns the set's machines from the cache, without preserved ones. The caller must not change the
// machines. A steady machine is never preserved, so the known steady machines need no check.
func (r *Reconciler) cachedMachines(ctx context.Context, set *v1beta1.MachineSet,
	known *steadyMachines) ([]*v1beta1.Machine, error) {
	machines, err := index.ListShared[v1beta1.Machine](ctx, r.Client, &v1beta1.MachineList{},
		client.InNamespace(set.Namespace), client.MatchingFields{index.MachineByOwner: string(set.UID)})
	if err != nil {
		return nil, fmt.Errorf("list the machines of the set: %w", err)
	}
	return slices.DeleteFunc(machines, func(m *v1beta1.Machine) bool {
		return !known.contains(m) && preservation.IsPreserved(m)
	}), nil
}

// orphans returns the machines in the cache that the set may adopt, and counts preserved and released machines.
func (p *pass) orphans(ctx context.Context) ([]*v1beta1.Machine, error) {
	selector, unusable := selectorOf(p.state.Set)
	if unusable.Reason != "" {
		return nil, nil
	}
	list := &v1beta1.MachineList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.key.Namespace),
		client.MatchingFields{orphanIndex: p.key.Namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machines without a controller: %w", err)
	}
	p.state.PreservedCount = countPreserved(p.state.Set, list.Items)
	p.state.ReleasedCount = countReleased(p.state.Set, list.Items)
	var orphans []*v1beta1.Machine
	for i := range list.Items {
		if m := &list.Items[i]; adoptable(m, selector) && !p.notAdoptable[m.UID] {
			orphans = append(orphans, m)
		}
	}
	return orphans, nil
}

func adoptable(m *v1beta1.Machine, selector labels.Selector) bool {
	return metav1.GetControllerOf(m) == nil && machinestate.IsLive(m) && !preservation.IsPreserved(m) &&
		!machinestate.IsUnchangeable(m) &&
		selector.Matches(labels.Set(m.Labels))
}

// observeLive replaces the observed machines with a live list. If atLeast is not empty, the API server may answer from
// its cache. The cache must then be at least as new as this resource version.
func (p *pass) observeLive(ctx context.Context, atLeast string) error {
	selector, unusable := selectorOf(p.state.Set)
	if unusable.Reason != "" {
		return nil
	}
	began, beganShared := p.known.cache.Mark(), p.shared.cacheMark()
	all, version, err := p.listLive(ctx, selector, atLeast)
	if err != nil {
		return err
	}
	var machines, orphans []*v1beta1.Machine
	listed := make(map[types.UID]bool, len(all))
	for _, m := range all {
		listed[m.UID] = true
		switch {
		case metav1.IsControlledBy(m, p.state.Set) && !preservation.IsPreserved(m):
			machines = append(machines, m)
		case adoptable(m, selector) && !p.notAdoptable[m.UID]:
			orphans = append(orphans, m)
		}
	}
	// Machines that no longer match the selector count until they are released. A previous leader may have created
	// such machines, and the cache may lack these machines. Find such machines by the label with the set's name.
	if countLive(machines) < int(p.state.Set.ReplicasOrDefault()) {
		labeled, _, err := p.listLive(ctx, labels.SelectorFromSet(labels.Set{v1beta1.LabelMachineSet: p.key.Name}), atLeast)
		if err != nil {
			return err
		}
		for _, m := range labeled {
			if !listed[m.UID] && metav1.IsControlledBy(m, p.state.Set) && !preservation.IsPreserved(m) {
				listed[m.UID] = true
				machines = append(machines, m)
			}
		}
	}
	// A machine that only the cache contains is gone, or has lost the label with the set's name.
	unlisted := slices.DeleteFunc(slices.Clone(p.state.Machines), func(m *v1beta1.Machine) bool { return listed[m.UID] })
	found, err := p.getLive(ctx, unlisted)
	if err != nil {
		return err
	}
	p.state.Machines = slices.Concat(machines, found)
	// Take the orphans from the same LIST, so that a machine without an owner is adopted and not replaced.
	p.state.Orphans = orphans
	p.asNewAsSpec = true
	if atLeast == "" {
		p.trusted = true
		p.known.cache.RecordRelist(began, version)
		p.shared.recordList(beganShared, version)
	}
	return nil
}

// listLive lists the machines that match the selector, and returns the list's resource version. The caller must not
// change the machines. For atLeast, see observeLive.
func (p *pass) listLive(ctx context.Context, selector labels.Selector, atLeast string) (all []*v1beta1.Machine,
	version string, err error) {
	options := &client.ListOptions{Namespace: p.key.Namespace, LabelSelector: selector}
	if atLeast != "" {
		options.Raw = &metav1.ListOptions{ResourceVersion: atLeast,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	}
	list := &v1beta1.MachineList{}
	if all, err = index.ListShared[v1beta1.Machine](ctx, p.LiveReader, list, options); err != nil {
		return nil, "", fmt.Errorf("list machines live: %w", err)
	}
	return all, list.ResourceVersion, nil
}

func (p *pass) getLive(ctx context.Context, machines []*v1beta1.Machine) ([]*v1beta1.Machine, error) {
	found := make([]*v1beta1.Machine, len(machines))
	errs := make([]error, len(machines))
	p.ForEach(len(machines), func(i int) {
		m := &v1beta1.Machine{}
		errs[i] = p.LiveReader.Get(ctx, client.ObjectKeyFromObject(machines[i]), m)
		if errs[i] == nil && m.UID == machines[i].UID && metav1.IsControlledBy(m, p.state.Set) &&
			!preservation.IsPreserved(m) {
			found[i] = m
		}
	})
	for _, err := range errs {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get machine live: %w", err)
		}
	}
	return slices.DeleteFunc(found, func(m *v1beta1.Machine) bool { return m == nil }), nil
}

func (p *pass) readOwner(ctx context.Context) error {
	p.deployment = nil
	owner := metav1.GetControllerOf(p.state.Set)
	if owner == nil || owner.Kind != "MachineDeployment" {
		p.state.Standalone, p.state.MaxReplacing = owner == nil, 1
		return nil
	}
	d := &v1beta1.MachineDeployment{}
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: owner.Name}, d)
	switch {
	case apierrors.IsNotFound(err), err == nil && d.UID != owner.UID:
		return nil // The deployment was deleted, and the garbage collector will delete the set.
	case err != nil:
		return fmt.Errorf("get the set's deployment: %w", err)
	}
	p.deployment = d
	p.state.MaxInFlight = remediationLimit(d.Spec.Remediation, d.ReplicasOrDefault())
	p.state.Surge = surgeOf(d)
	if limits, err := bounds.ForDeployment(d); err == nil && !d.Spec.Paused {
		p.state.MaxReplacing = int(limits.MaxSurge + limits.MaxUnavailable)
	}
	return nil
}

func surgeOf(d *v1beta1.MachineDeployment) int {
	limits, err := bounds.ForDeployment(d)
	if err != nil {
		return 0
	}
	return int(limits.MaxSurge)
}

// countInFlight counts the remediations in progress in all sets of the deployment. It also updates the backoffs and
// recoveries of this set.
func (p *pass) countInFlight(ctx context.Context) error {
	s := &p.state
	s.NextCreation, s.CreationFailure = p.known.creation.until, p.known.creationFailure
	in, recovered := p.refreshReplacements(s.Set, s.Machines)
	if recovered {
		p.known.remediation = backoff{}
	}
	s.NextRemediation = p.known.remediation.until
	p.known.failureStreak.observe(s.Set, s.Machines)
	s.FailureStreak = p.known.failureStreak
	_, others := s.splitSteady()
	p.known.recoveries = p.known.recoveries.refresh(others, s.Now)
	s.Recoveries = p.known.recoveries
	s.InFlight = in
	lost, recovered := p.known.lostReplacements.Refresh(s.Machines, int(s.Set.ReplicasOrDefault()),
		s.Set.Spec.MinReadySeconds, s.Now)
	if p.known.lostReplacements = lost; recovered {
		p.known.lostBackoff = backoff{}
	}
	s.LostReplacements, s.NextLost = lost, p.known.lostBackoff.until
	if p.deployment == nil || !slices.ContainsFunc(others, remediable) {
		return nil
	}
	siblings, err := p.siblings(ctx)
	if err != nil {
		return err
	}
	for _, sibling := range siblings {
		machines, err := p.cachedMachines(ctx, sibling, nil)
		if err != nil {
			return err
		}
		in, _ := p.refreshReplacements(sibling, machines)
		s.InFlight += in
		if in > 0 {
			p.requeueIn(minRemediationBackoff) // The set gets no events of other sets' machines.
		}
	}
	return nil
}

// siblings returns the other sets of the deployment from the cache. The caller must not change the sets.
func (p *pass) siblings(ctx context.Context) ([]*v1beta1.MachineSet, error) {
	sets, err := index.ListShared[v1beta1.MachineSet](ctx, p.Client, &v1beta1.MachineSetList{},
		client.InNamespace(p.key.Namespace), client.MatchingFields{index.MachineSetByOwner: string(p.deployment.UID)})
	if err != nil {
		return nil, fmt.Errorf("list the sets of the deployment: %w", err)
	}
	return slices.DeleteFunc(sets, func(set *v1beta1.MachineSet) bool { return set.UID == p.state.Set.UID }), nil
}

// refreshReplacements returns how many remediations of a set are in progress, and whether a replacement became
// available.
func (p *pass) refreshReplacements(set *v1beta1.MachineSet,
	machines []*v1beta1.Machine) (inFlight int, recovered bool) {
	replicas := int(set.ReplicasOrDefault())
	in, known := p.shared.replacementsOf(set.UID)
	if known {
		in, recovered = in.Refresh(machines, replicas, set.Spec.MinReadySeconds, p.state.Now)
	} else {
		in = Resume(machines, replicas, set.Spec.MinReadySeconds, p.state.Now)
	}
	if set.UID == p.state.Set.UID {
		p.shared.keepReplacements(set.UID, in)
	}
	return in.InFlight(machines) + rebootsInFlight(machines, in), recovered
}
