package machinedeployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/index"
)

// claim returns the sets that the deployment owns, after it has adopted sets and restored their labels. Ownership
// depends only on the owner reference, so two deployments with the same selector do not compete for a set.
//
// The deployment restores the labels of a set whose template matches the selector. If the deployment released such a
// set, it would create all machines of the set again.
func (p *pass) claim(ctx context.Context, selector labels.Selector) ([]*v1beta1.MachineSet, error) {
	owned, err := p.ownedSets(ctx)
	if err != nil {
		return nil, err
	}
	var sets []*v1beta1.MachineSet
	for _, set := range owned {
		if selector.Matches(labels.Set(set.Labels)) {
			sets = append(sets, set)
			continue
		}
		matching := withTemplateLabels(set)
		if !selector.Matches(labels.Set(matching.Labels)) {
			if err := p.release(ctx, set); err != nil {
				return nil, err
			}
			continue
		}
		switch err := p.patchSet(ctx, set, matching); {
		case err == nil:
			sets = append(sets, matching)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("restore the labels of set %s: %w", set.Name, err)
		}
	}
	if seen := p.shared.takeOrphanSetSeen(p.known); seen || len(p.unownedSets) > 0 {
		adopted, err := p.adopt(ctx, selector, owned)
		if err != nil {
			p.shared.keepOrphanSetSeen(p.known)
			return nil, err
		}
		sets = append(sets, adopted...)
	}
	return sets, nil
}

// ownedSets returns the sets that the deployment controls. If the cache is not confirmed, ownedSets lists the sets
// live. In that case, ownedSets also stores the sets with the deployment's label but without an owner in
// p.unownedSets.
func (p *pass) ownedSets(ctx context.Context) ([]*v1beta1.MachineSet, error) {
	d := p.deployment
	var cached v1beta1.MachineSetList
	if err := p.Client.List(ctx, &cached, client.InNamespace(d.Namespace),
		client.MatchingFields{index.MachineSetByOwner: string(d.UID)}); err != nil {
		return nil, fmt.Errorf("list the sets of the deployment: %w", err)
	}
	found := pointers(cached.Items)
	if p.known.cache.IsConfirmed() {
		return found, nil
	}
	var stored v1beta1.MachineSetList
	if err := p.LiveReader.List(ctx, &stored, client.InNamespace(d.Namespace),
		client.MatchingLabels{v1beta1.LabelMachineDeployment: d.Name}); err != nil {
		return nil, fmt.Errorf("list the sets of the deployment at the API server: %w", err)
	}
	var sets []*v1beta1.MachineSet
	for _, set := range pointers(stored.Items) {
		switch {
		case metav1.IsControlledBy(set, d):
			sets = append(sets, set)
		case unowned(set):
			p.unownedSets = append(p.unownedSets, set)
		}
	}
	// The live list selects sets by the deployment's label. Owned sets without this label are found in the cache.
	for _, set := range found {
		if set.Labels[v1beta1.LabelMachineDeployment] == d.Name {
			continue
		}
		var now v1beta1.MachineSet
		switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(set), &now); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get set %s live: %w", set.Name, err)
		case metav1.IsControlledBy(&now, d) && now.Labels[v1beta1.LabelMachineDeployment] != d.Name:
			sets = append(sets, &now)
		}
	}
	p.cacheConfirmed = freshness.SameObjects(found, sets)
	return sets, nil
}

// adopt makes the deployment the owner of all adoptable sets. A live read first confirms that the deployment still
// exists.
func (p *pass) adopt(ctx context.Context, selector labels.Selector, owned []*v1beta1.MachineSet) ([]*v1beta1.MachineSet,
	error) {
	d := p.deployment
	var matching v1beta1.MachineSetList
	if err := p.Client.List(ctx, &matching, client.InNamespace(d.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list sets to adopt: %w", err)
	}
	var adopted []*v1beta1.MachineSet
	checked := false
	for _, set := range slices.Concat(p.unownedSets, pointers(matching.Items)) {
		known := func(o *v1beta1.MachineSet) bool { return o.UID == set.UID }
		if !adoptable(set, selector) || slices.ContainsFunc(owned, known) || slices.ContainsFunc(adopted, known) {
			continue
		}
		if !checked {
			var now v1beta1.MachineDeployment
			if err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(d), &now); err != nil {
				return nil, fmt.Errorf("adopt set %s: read the deployment from the API server: %w", set.Name, err)
			}
			if now.UID != d.UID || !now.DeletionTimestamp.IsZero() {
				return nil, fmt.Errorf("adopt set %s: the deployment was deleted meanwhile", set.Name)
			}
			checked = true
		}
		ours := set.DeepCopy()
		ours.OwnerReferences = append(ours.OwnerReferences, *controllerRef(d))
		if err := p.patchSet(ctx, set, ours); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("adopt set %s: %w", set.Name, err)
		}
		adopted = append(adopted, ours)
	}
	return adopted, nil
}

// withTemplateLabels returns a copy of the set that also has the labels of its template.
func withTemplateLabels(set *v1beta1.MachineSet) *v1beta1.MachineSet {
	labeled := set.DeepCopy()
	labeled.Labels = union(set.Labels, set.Spec.Template.ObjectMeta.Labels)
	return labeled
}

// adoptable reports whether the set has no owner, and its labels and its template match the selector. The labels alone
// do not suffice: a set of other machines may get them by mistake, and the deployment would replace these machines.
func adoptable(set *v1beta1.MachineSet, selector labels.Selector) bool {
	return unowned(set) && selector.Matches(labels.Set(set.Labels)) &&
		selector.Matches(labels.Set(set.Spec.Template.ObjectMeta.Labels))
}

func unowned(set *v1beta1.MachineSet) bool {
	return metav1.GetControllerOfNoCopy(set) == nil && set.DeletionTimestamp.IsZero()
}

func (p *pass) release(ctx context.Context, set *v1beta1.MachineSet) error {
	free := set.DeepCopy()
	free.OwnerReferences = slices.DeleteFunc(free.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == p.deployment.UID
	})
	if err := p.patchSet(ctx, set, free); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release set %s: %w", set.Name, err)
	}
	return nil
}

// machinesOf returns the machines by the UID of their set. The caller must not change the machines.
func (p *pass) machinesOf(ctx context.Context, sets []*v1beta1.MachineSet) (map[types.UID][]*v1beta1.Machine, error) {
	namespace := p.deployment.Namespace
	found := make(map[types.UID][]*v1beta1.Machine, len(sets))
	if len(sets) == 0 {
		return found, nil
	}
	// Read the cache version before the lists, so that the lists are at least as new as this version.
	seen := p.cacheAsNewAsSpec()
	var cached []*v1beta1.Machine
	for _, set := range sets {
		machines, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{}, client.InNamespace(namespace),
			client.MatchingFields{index.MachineByOwner: string(set.UID)})
		if err != nil {
			return nil, fmt.Errorf("list the machines of set %s: %w", set.Name, err)
		}
		found[set.UID] = withoutPreserved(machines)
		cached = append(cached, found[set.UID]...)
	}
	// A set may have handed machines over before it observed that its hand-over was canceled. The cache may still show
	// the old owner of these machines.
	takenBack := slices.ContainsFunc(sets, orderTakenBack)
	if p.known.cache.IsConfirmed() && !takenBack && (seen || !p.mayShrink(sets)) {
		p.fromCache = seen
		return found, nil
	}
	clear(found)
	names := make([]string, len(sets))
	for i, set := range sets {
		names[i] = set.Name
	}
	requirement, err := labels.NewRequirement(v1beta1.LabelMachineSet, selection.In, names)
	if err != nil {
		return nil, fmt.Errorf("select the machines of sets %v: %w", names, err)
	}
	options := &client.ListOptions{Namespace: namespace, LabelSelector: labels.NewSelector().Add(*requirement)}
	if p.known.cache.IsConfirmed() && !takenBack {
		options.Raw = &metav1.ListOptions{ResourceVersion: p.known.specVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	}
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.LiveReader, &v1beta1.MachineList{}, options)
	if err != nil {
		return nil, fmt.Errorf("list the machines of sets %v live: %w", names, err)
	}
	var counted []*v1beta1.Machine
	for _, m := range withoutPreserved(machines) {
		owner := metav1.GetControllerOfNoCopy(m)
		if owner == nil {
			continue
		}
		found[owner.UID] = append(found[owner.UID], m)
		if slices.ContainsFunc(sets, func(set *v1beta1.MachineSet) bool { return set.UID == owner.UID }) {
			counted = append(counted, m)
		}
	}
	p.cacheConfirmed = p.cacheConfirmed && freshness.SameObjects(cached, counted)
	return found, nil
}

// orderTakenBack reports whether the set's hand-over was canceled and the set has observed this.
func orderTakenBack(set *v1beta1.MachineSet) bool {
	order, ok := handover.OrderOf(set.Annotations)
	return ok && order.Machines == 0 && set.Status.ObservedGeneration >= set.Generation
}

// cacheAsNewAsSpec reports whether the cache of Machines is at least as new as the deployment's spec. An autoscaler
// annotates machines for deletion before it lowers replicas, so an older cache may lack the annotations.
func (p *pass) cacheAsNewAsSpec() bool {
	if p.MachineCacheVersion == nil {
		return false
	}
	return freshness.AtLeastAsNew(p.MachineCacheVersion(), p.known.specVersion)
}

// mayShrink reports whether the deployment may have to choose machines for deletion. There is nothing to choose if all
// machines are deleted.
func (p *pass) mayShrink(sets []*v1beta1.MachineSet) bool {
	if p.deployment.ReplicasOrDefault() <= 0 {
		return false
	}
	var replicas int32
	for _, set := range sets {
		replicas += max(0, set.ReplicasOrDefault())
	}
	newest := slices.MaxFunc(sets, func(a, b *v1beta1.MachineSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return max(replicas, sizedForOf(newest)) > p.deployment.ReplicasOrDefault()
}

func withoutPreserved(machines []*v1beta1.Machine) []*v1beta1.Machine {
	return slices.DeleteFunc(machines, preservation.IsPreserved)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
