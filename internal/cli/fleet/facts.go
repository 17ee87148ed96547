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

// Facts are what was read of one namespace, or of all.
type Facts struct {
	Now time.Time
	// Namespace is the one that was read, empty for all.
	Namespace   string
	Deployments []v1beta1.MachineDeployment
	Sets        []v1beta1.MachineSet
	Machines    []v1beta1.Machine
	Checks      []v1beta1.MachineHealthCheck
	Classes     []v1beta1.MachineClass
	Budgets     []v1beta1.MachineDisruptionBudget
	// Secrets are those that Machinist uses and that are being deleted.
	Secrets []metav1.PartialObjectMetadata
	// Orphans are what the providers' processes found that has no Machine, of the namespace that was read.
	Orphans []OrphanReport
	// Processes are those that serve what was read.
	Processes []why.Process
	// Unread says what could not be read, and why, each in a sentence.
	Unread []string
}

// family is the inventory at the time of the facts.
type family struct {
	inventory.Inventory
	now time.Time
}

func familyOf(f Facts) family {
	return family{inventory.Join(f.Deployments, f.Sets, f.Machines), f.Now}
}

// Only leaves one deployment and what belongs to it.
func Only(f Facts, deployment string) Facts {
	fam := familyOf(f)
	only := f
	only.Deployments, only.Sets, only.Machines, only.Checks, only.Budgets = nil, nil, nil, nil, nil
	for i := range f.Deployments {
		d := &f.Deployments[i]
		if d.Name != deployment {
			continue
		}
		only.Deployments = append(only.Deployments, *d)
		for _, set := range fam.Sets(d) {
			only.Sets = append(only.Sets, *set)
		}
		for _, m := range fam.AllMachines(d) {
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

// classesOf returns the classes of machines, and the Secrets that these refer to.
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
