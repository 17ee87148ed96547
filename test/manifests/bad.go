package manifests

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Guard is who refuses an object.
type Guard string

// All guards, in the order in which an API server asks them.
const (
	// BySchema: the CustomResourceDefinition, its rules, or the API server itself. It is always there.
	BySchema Guard = "schema"
	// ByPolicy: the ValidatingAdmissionPolicies.
	ByPolicy Guard = "policy"
	// ByManager: the webhook of machinist-manager.
	ByManager Guard = "webhook of the manager"
	// ByProvider: the webhook of the simulated cloud's provider.
	ByProvider Guard = "webhook of the provider"
)

// Bad is an object that must be refused, with strict validation of fields as kubectl asks for it.
type Bad struct {
	// Name is unique in the table: the kind and what is wrong.
	Name string
	// Sample is what the object would be without the mistake, and Changes are the mistake.
	Sample  string
	Changes Changes
	// Was, if it is not nil, makes the mistake a change of an object that exists: of the sample with Was.
	Was Changes
	// Reports are parts of the rejection: the field above all.
	Reports []string
	By      Guard
}

// Object returns the object with its mistake.
func (b Bad) Object(namespace string) (*unstructured.Unstructured, error) {
	object, err := b.Former(namespace)
	if err != nil {
		return nil, err
	}
	return object, b.Changes.Apply(object)
}

// Former returns the object as it was before the mistake.
func (b Bad) Former(namespace string) (*unstructured.Unstructured, error) {
	object, err := Parse(namespace, b.Sample)
	if err != nil {
		return nil, err
	}
	return object, b.Was.Apply(object)
}

// All returns the table.
func All() []Bad {
	all := slices.Concat(names(), machines(), inline(), durations(), nodes(), classes(), deployments(), times(),
		healthChecks(), budgets(), updates(), providers())
	for kind, sample := range fleets {
		all = append(all, fleet(kind, sample)...)
	}
	all = append(all, wrongTypes()...)
	slices.SortFunc(all, func(a, b Bad) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// fleets are the kinds that make machines from a template.
var fleets = map[string]string{"MachineSet": Set, "MachineDeployment": Deployment}

// row is a Bad without what its neighbours share.
type row struct {
	what    string
	changes Changes
	reports []string
}

func table(by Guard, kind, sample string, rows ...row) []Bad {
	all := make([]Bad, len(rows))
	for i, r := range rows {
		all[i] = Bad{Name: kind + " " + r.what, Sample: sample, Changes: r.changes, Reports: r.reports, By: by}
	}
	return all
}

func reports(parts ...string) []string { return parts }
