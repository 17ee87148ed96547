package manifests

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Guard is a component that refuses objects.
type Guard string

// The guards are listed in the order in which an API server calls them.
const (
	// BySchema means that the API server refuses the object because of the CustomResourceDefinition, its rules, or its
	// built-in validation. BySchema is always in effect.
	BySchema Guard = "schema"
	// ByPolicy stands for the ValidatingAdmissionPolicies.
	ByPolicy Guard = "policy"
	// ByManager is the webhook of machinist-manager.
	ByManager Guard = "webhook of the manager"
	// ByProvider stands for the webhook of the provider process for the simulated cloud.
	ByProvider Guard = "webhook of the provider"
)

// InvalidObject is an object with a mistake. The API server must refuse this object under strict field validation,
// the default of kubectl.
type InvalidObject struct {
	// Name consists of the kind and a description of the mistake. Names are unique in the table.
	Name string
	// Sample is the correct object. Changes contains the changes that add the mistake.
	Sample  string
	Changes Changes
	// For an update, ChangesBefore contains the changes from the sample to the existing object. The changes may be
	// empty. ChangesBefore is nil if the mistake is in a new object.
	ChangesBefore Changes
	// Reports contains the texts that the rejection must contain, in particular the name of the field.
	Reports []string
	By      Guard
}

// Object returns the sample with the mistake in it.
func (b InvalidObject) Object(namespace string) (*unstructured.Unstructured, error) {
	object, err := b.ValidObject(namespace)
	if err != nil {
		return nil, err
	}
	return object, b.Changes.Apply(object)
}

// ValidObject returns the valid object that exists before an update adds the mistake.
func (b InvalidObject) ValidObject(namespace string) (*unstructured.Unstructured, error) {
	object, err := Parse(namespace, b.Sample)
	if err != nil {
		return nil, err
	}
	return object, b.ChangesBefore.Apply(object)
}

// InvalidObjects returns the table of invalid objects, sorted by name.
func InvalidObjects() []InvalidObject {
	all := slices.Concat(names(), machines(), inline(), durations(), nodes(), drains(), classes(), deployments(), times(),
		healthChecks(), budgets(), updates(), providers())
	for kind, sample := range fleets {
		all = append(all, fleet(kind, sample)...)
	}
	all = append(all, wrongTypes()...)
	slices.SortFunc(all, func(a, b InvalidObject) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var fleets = map[string]string{"MachineSet": Set, "MachineDeployment": Deployment}

type entry struct {
	what    string
	changes Changes
	reports []string
}

func table(by Guard, kind, sample string, entries ...entry) []InvalidObject {
	all := make([]InvalidObject, len(entries))
	for i, e := range entries {
		all[i] = InvalidObject{Name: kind + " " + e.what, Sample: sample, Changes: e.changes, Reports: e.reports, By: by}
	}
	return all
}

func reports(parts ...string) []string { return parts }
