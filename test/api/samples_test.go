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

const (
	class         = manifests.Class
	machine       = manifests.Machine
	inlineMachine = manifests.InlineMachine
	set           = manifests.Set
	deployment    = manifests.Deployment
	healthCheck   = manifests.HealthCheck
	budget        = manifests.Budget
)

func parse(t testing.TB, namespace, sample string) *unstructured.Unstructured {
	t.Helper()
	object, err := manifests.Parse(namespace, sample)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

type change struct {
	path  string
	value any
}

func apply(t testing.TB, object *unstructured.Unstructured, changes ...change) *unstructured.Unstructured {
	t.Helper()
	for _, c := range changes {
		if err := (manifests.Changes{c.path: c.value}).Apply(object); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

func tryCreate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Create(t.Context(), object, client.DryRunAll, strictValidation)
}

// strictValidation is the client option that makes the API server refuse unknown and duplicate fields. kubectl sets
// this option by default.
const strictValidation = client.FieldValidation(metav1.FieldValidationStrict)

func tryUpdate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Update(t.Context(), object, client.DryRunAll, strictValidation)
}

func create(t testing.TB, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := env.Client(t).Create(t.Context(), object); err != nil {
		t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return object
}

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
