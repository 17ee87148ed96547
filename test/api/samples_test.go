package api

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests"
)

// Samples that the tests change.
const (
	class         = manifests.Class
	machine       = manifests.Machine
	inlineMachine = manifests.InlineMachine
	set           = manifests.Set
	deployment    = manifests.Deployment
	healthCheck   = manifests.HealthCheck
	budget        = manifests.Budget
)

// parse reads a sample and sets its namespace.
func parse(t testing.TB, namespace, sample string) *unstructured.Unstructured {
	t.Helper()
	object, err := manifests.Parse(namespace, sample)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// change is one entry of manifests.Changes: a path, and the new value at this path.
type change struct {
	path  string
	value any
}

// apply changes an object in place and returns it. The order of the changes counts.
func apply(t testing.TB, object *unstructured.Unstructured, changes ...change) *unstructured.Unstructured {
	t.Helper()
	for _, c := range changes {
		if err := (manifests.Changes{c.path: c.value}).Apply(object); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

// tryCreate creates an object in a dry run with strict validation.
func tryCreate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Create(t.Context(), object, client.DryRunAll, strict)
}

// strict refuses unknown and duplicate fields. It is the default of kubectl.
const strict = client.FieldValidation(metav1.FieldValidationStrict)

// tryUpdate updates an object in a dry run with strict validation.
func tryUpdate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Update(t.Context(), object, client.DryRunAll, strict)
}

func create(t testing.TB, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := env.Client(t).Create(t.Context(), object); err != nil {
		t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return object
}

// requireRejection fails the test unless err contains all parts.
func requireRejection(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("the request was admitted, want a rejection")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the rejection does not contain %q: %v", part, err)
		}
	}
}
