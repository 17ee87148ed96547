package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/test/env"
)

// The smallest valid object of each kind, as a person would write it.
const (
	class = `
apiVersion: machinist.dev/v1beta1
kind: MachineClass
metadata: {name: small}
spec:
  provider: sim
  providerSpec: {apiVersion: sim.machinist.dev/v1beta1, kind: SimMachine, size: small}
`
	machine = `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata: {name: one}
spec:
  classRef: {name: small}
`
	inlineMachine = `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata: {name: one}
spec:
  provider: sim
  providerSpec: {kind: SimMachine}
`
	set = `
apiVersion: machinist.dev/v1beta1
kind: MachineSet
metadata: {name: pool}
spec:
  selector: {matchLabels: {pool: a}}
  template:
    metadata: {labels: {pool: a}}
    spec: {classRef: {name: small}}
`
	deployment = `
apiVersion: machinist.dev/v1beta1
kind: MachineDeployment
metadata: {name: pool}
spec:
  selector: {matchLabels: {pool: a}}
  template:
    metadata: {labels: {pool: a}}
    spec: {classRef: {name: small}}
`
	healthCheck = `
apiVersion: machinist.dev/v1beta1
kind: MachineHealthCheck
metadata: {name: check}
spec:
  selector: {matchLabels: {pool: a}}
  unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeout: 5m}
`
)

// parse reads a sample and puts it into a namespace.
func parse(t testing.TB, namespace, sample string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(sample), &object.Object); err != nil {
		t.Fatalf("parse the sample: %v", err)
	}
	object.SetNamespace(namespace)
	return object
}

// change is a part of an object in another state. A value of nil removes the part.
type change struct {
	path  string
	value any
}

// apply makes changes to an object. Parts of a path are separated by slashes; a slash within one is written ~1.
func apply(t testing.TB, object *unstructured.Unstructured, changes ...change) *unstructured.Unstructured {
	t.Helper()
	for _, c := range changes {
		if err := setAt(object.Object, pathOf(c.path), c.value); err != nil {
			t.Fatalf("change %s: %v", c.path, err)
		}
	}
	return object
}

func setAt(in map[string]any, path []string, value any) error {
	for _, name := range path[:len(path)-1] {
		next, ok := in[name].(map[string]any)
		if !ok {
			if in[name] != nil {
				return fmt.Errorf("%s is no object", name)
			}
			next = map[string]any{}
			in[name] = next
		}
		in = next
	}
	last := path[len(path)-1]
	if value == nil {
		delete(in, last)
		return nil
	}
	// Through JSON, so that a change may be written with any Go type.
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	in[last] = wholeNumbers(plain)
	return nil
}

// wholeNumbers turns floats into the int64 that unstructured objects hold.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = wholeNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

// tryCreate asks the API server what it would say to an object, without creating it.
func tryCreate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Create(t.Context(), object, client.DryRunAll)
}

// tryUpdate asks the API server what it would say to an update of an object.
func tryUpdate(t testing.TB, object *unstructured.Unstructured) error {
	t.Helper()
	return env.Client(t).Update(t.Context(), object, client.DryRunAll)
}

func create(t testing.TB, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := env.Client(t).Create(t.Context(), object); err != nil {
		t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return object
}

// requireRefusal fails unless err is a refusal that names all of parts.
func requireRefusal(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("admitted")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal does not say %q: %v", part, err)
		}
	}
}

func pathOf(text string) []string {
	parts := strings.Split(text, "/")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "~1", "/")
	}
	return parts
}
