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

// The samples that the tests change.
const (
	class         = manifests.Class
	machine       = manifests.Machine
	inlineMachine = manifests.InlineMachine
	set           = manifests.Set
	deployment    = manifests.Deployment
	healthCheck   = manifests.HealthCheck
	budget        = manifests.Budget
)

// parse reads a sample and puts it into a namespace.
func parse(t testing.TB, namespace, sample string) *unstructured.Unstructured {
	t.Helper()
	object, err := manifests.Parse(namespace, sample)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// change is a part of an object in another state, as one of manifests.Changes.
type change struct {
	path  string
	value any
}

// apply makes changes to an object, in their order.
func apply(t testing.TB, object *unstructured.Unstructured, changes ...change) *unstructured.Unstructured {
	t.Helper()
	for _, c := range changes {
		if err := (manifests.Changes{c.path: c.value}).Apply(object); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

// tryCreate asks the API server what it would say to an object, without creating it.
func tryCreate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Create(t.Context(), object, client.DryRunAll, strict)
}

// strict is how kubectl asks for it: unknown fields and such that are there twice are refused.
const strict = client.FieldValidation(metav1.FieldValidationStrict)

// tryUpdate asks the API server what it would say to an update of an object.
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

// requireRejection fails unless err is a rejection that names all of parts.
func requireRejection(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("admitted")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the rejection does not say %q: %v", part, err)
		}
	}
}
