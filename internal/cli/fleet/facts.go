package fleet

import (
	"slices"
	"time"

	"machinist.dev/machinist/internal/cli/inventory"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts holds everything that a command has read: the objects, the orphan reports and the states of the processes.
type Facts struct {
	Now time.Time
	// Namespace is the namespace that was read. Empty means all namespaces.
	Namespace   string
	Deployments []v1beta1.MachineDeployment
	Sets        []v1beta1.MachineSet
	Machines    []v1beta1.Machine
	Checks      []v1beta1.MachineHealthCheck
	Classes     []v1beta1.MachineClass
	Budgets     []v1beta1.MachineDisruptionBudget
	// Secrets are being deleted although a class uses them.
	Secrets []metav1.PartialObjectMetadata
	// Orphans are the provider processes' reports of instances without a Machine in the namespace.
	Orphans []OrphanReport
	// Processes describes the Machinist processes that manage the objects.
	Processes []why.Process
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string
}

type inventoryAt struct {
	inventory.Inventory
	now     time.Time
	classes map[types.NamespacedName]*v1beta1.MachineClass
}

func inventoryOf(f Facts) inventoryAt {
	inv := inventoryAt{inventory.Join(f.Deployments, f.Sets, f.Machines), f.Now,
		make(map[types.NamespacedName]*v1beta1.MachineClass, len(f.Classes))}
	for i := range f.Classes {
		class := &f.Classes[i]
		inv.classes[types.NamespacedName{Namespace: class.Namespace, Name: class.Name}] = class
	}
	return inv
}

// ForDeployment returns the facts about one deployment: its sets and machines, and the health checks, budgets, classes
// and Secrets that apply to these machines.
func ForDeployment(f Facts, deployment string) Facts {
	inv := inventoryOf(f)
	only := f
	only.Deployments, only.Sets, only.Machines, only.Checks, only.Budgets = nil, nil, nil, nil, nil
	for i := range f.Deployments {
		d := &f.Deployments[i]
		if d.Name != deployment {
			continue
		}
		only.Deployments = append(only.Deployments, *d)
		for _, set := range inv.Sets(d) {
			only.Sets = append(only.Sets, *set)
		}
		for _, m := range inv.AllMachines(d) {
			only.Machines = append(only.Machines, *m)
		}
	}
	for _, check := range f.Checks {
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		if err == nil && slices.ContainsFunc(only.Machines, func(m v1beta1.Machine) bool {
			return selector.Matches(labels.Set(m.Labels))
		}) {
			only.Checks = append(only.Checks, check)
		}
	}
	for _, b := range f.Budgets {
		selector := disruption.Selector(&b)
		if slices.ContainsFunc(only.Machines, func(m v1beta1.Machine) bool {
			return m.Namespace == b.Namespace && selector.Matches(labels.Set(m.Labels))
		}) {
			only.Budgets = append(only.Budgets, b)
		}
	}
	only.Classes, only.Secrets = classesOf(f, only)
	return only
}

// classesOf returns the classes of the machines and placements in a part of the facts, and the Secrets of these
// classes.
func classesOf(f, part Facts) (classes []v1beta1.MachineClass, secrets []metav1.PartialObjectMetadata) {
	inUse := map[types.NamespacedName]bool{}
	for i := range part.Machines {
		if m := &part.Machines[i]; m.Spec.ClassRef != nil {
			inUse[types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClassRef.Name}] = true
		}
	}
	for i := range part.Deployments {
		d := &part.Deployments[i]
		for _, name := range d.Spec.Placement.ClassNames() {
			inUse[types.NamespacedName{Namespace: d.Namespace, Name: name}] = true
		}
	}
	used := map[string]bool{}
	for _, class := range f.Classes {
		if !inUse[types.NamespacedName{Namespace: class.Namespace, Name: class.Name}] {
			continue
		}
		classes = append(classes, class)
		for _, name := range resolve.SecretNames(&class) {
			used[class.Namespace+"/"+name] = true
		}
	}
	for _, secret := range f.Secrets {
		if used[secret.Namespace+"/"+secret.Name] {
			secrets = append(secrets, secret)
		}
	}
	return classes, secrets
}
