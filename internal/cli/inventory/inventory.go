// Package inventory groups the sets and machines of fleets by their owners.
package inventory

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Inventory maps the UIDs of controlling owners to their sets or machines. Machines are sorted by name.
type Inventory struct {
	sets     map[types.UID][]*v1beta1.MachineSet
	machines map[types.UID][]*v1beta1.Machine
	// LooseSets and LooseMachines have no owner in the inventory.
	LooseSets     []*v1beta1.MachineSet
	LooseMachines []*v1beta1.Machine
}

// Join returns an inventory that points to the given objects.
func Join(deployments []v1beta1.MachineDeployment, sets []v1beta1.MachineSet, machines []v1beta1.Machine) Inventory {
	known := map[types.UID]bool{}
	for i := range deployments {
		known[deployments[i].UID] = true
	}
	for i := range sets {
		known[sets[i].UID] = true
	}
	var inv Inventory
	inv.sets, inv.LooseSets = byOwner[v1beta1.MachineSet](known, sets)
	inv.machines, inv.LooseMachines = byOwner[v1beta1.Machine](known, machines)
	for _, owned := range inv.machines {
		sortByName(owned)
	}
	sortByName(inv.LooseSets)
	sortByName(inv.LooseMachines)
	return inv
}

type object[T any] interface {
	*T
	metav1.Object
}

func byOwner[T any, P object[T]](known map[types.UID]bool, items []T) (owned map[types.UID][]*T, loose []*T) {
	owned = map[types.UID][]*T{}
	for i := range items {
		if owner := metav1.GetControllerOfNoCopy(P(&items[i])); owner != nil && known[owner.UID] {
			owned[owner.UID] = append(owned[owner.UID], &items[i])
		} else {
			loose = append(loose, &items[i])
		}
	}
	return owned, loose
}

func sortByName[T any, P object[T]](objects []P) {
	slices.SortFunc(objects, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// Sets returns the sets that a deployment owns, in the order in which Join sorted the sets.
func (i Inventory) Sets(d *v1beta1.MachineDeployment) []*v1beta1.MachineSet { return i.sets[d.UID] }

// Machines returns the machines of a set.
func (i Inventory) Machines(set *v1beta1.MachineSet) []*v1beta1.Machine { return i.machines[set.UID] }

// AllMachines returns the machines of all sets of a deployment.
func (i Inventory) AllMachines(d *v1beta1.MachineDeployment) []*v1beta1.Machine {
	var all []*v1beta1.Machine
	for _, set := range i.sets[d.UID] {
		all = append(all, i.machines[set.UID]...)
	}
	return all
}

// OwnedSets returns all sets that a deployment owns.
func (i Inventory) OwnedSets() []*v1beta1.MachineSet {
	var all []*v1beta1.MachineSet
	for _, sets := range i.sets {
		all = append(all, sets...)
	}
	sortByName(all)
	return all
}
