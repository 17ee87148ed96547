package fleet

import (
	"slices"
	"time"

	"machinist.dev/machinist/internal/cli/inventory"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts are the objects and reports that a command has read, from one namespace or from all namespaces.
type Facts struct {
	Now time.Time
	// Namespace is the namespace that was read, or empty if all namespaces were read.
	Namespace   string
	Deployments []v1beta1.MachineDeployment
	Sets        []v1beta1.MachineSet
	Machines    []v1beta1.Machine
	Checks      []v1beta1.MachineHealthCheck
	Classes     []v1beta1.MachineClass
	Budgets     []v1beta1.MachineDisruptionBudget
	// Secrets are the Secrets that a class refers to and that are being deleted.
	Secrets []metav1.PartialObjectMetadata
	// Orphans are the reports of the provider processes about instances without a Machine. The reports list only instances
	// that belong to the namespace.
	Orphans []OrphanReport
	// Processes contains the state of each process that manages the objects.
	Processes []why.Process
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string
}

// inventoryAt contains an inventory of the facts, and the time at which the facts were read.
type inventoryAt struct {
	inventory.Inventory
	now time.Time
}

func inventoryOf(f Facts) inventoryAt {
	return inventoryAt{inventory.Join(f.Deployments, f.Sets, f.Machines), f.Now}
}

// Only returns the facts about a single deployment: the deployment, its sets and machines, and the health checks,
// budgets, classes and Secrets that apply to these machines.
func Only(f Facts, deployment string) Facts {
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
	only.Classes, only.Secrets = classesOf(f, only.Machines)
	return only
}

// classesOf returns the classes that the machines use, and the Secrets that these classes refer to.
func classesOf(f Facts, machines []v1beta1.Machine) (classes []v1beta1.MachineClass,
	secrets []metav1.PartialObjectMetadata) {
	used := map[string]bool{}
	for _, class := range f.Classes {
		if !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Namespace == class.Namespace && m.Spec.ClassRef != nil && m.Spec.ClassRef.Name == class.Name
		}) {
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
