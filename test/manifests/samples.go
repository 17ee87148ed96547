package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The smallest valid objects of each kind, as a user would write them. Machines refer to the class.
const (
	Class = `
apiVersion: machinist.dev/v1beta1
kind: MachineClass
metadata: {name: small}
spec:
  provider: sim
  providerSpec:
    {apiVersion: sim.machinist.dev/v1beta1, kind: SimMachine, region: sim-1, instanceType: small, image: sim-os-1}
`
	Machine = `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata: {name: one}
spec:
  classRef: {name: small}
`
	InlineMachine = `
apiVersion: machinist.dev/v1beta1
kind: Machine
metadata: {name: one}
spec:
  provider: sim
  providerSpec:
    {apiVersion: sim.machinist.dev/v1beta1, kind: SimMachine, region: sim-1, instanceType: small, image: sim-os-1}
`
	Set = `
apiVersion: machinist.dev/v1beta1
kind: MachineSet
metadata: {name: pool}
spec:
  selector: {matchLabels: {pool: a}}
  template:
    metadata: {labels: {pool: a}}
    spec: {classRef: {name: small}}
`
	Deployment = `
apiVersion: machinist.dev/v1beta1
kind: MachineDeployment
metadata: {name: pool}
spec:
  selector: {matchLabels: {pool: a}}
  template:
    metadata: {labels: {pool: a}}
    spec: {classRef: {name: small}}
`
	HealthCheck = `
apiVersion: machinist.dev/v1beta1
kind: MachineHealthCheck
metadata: {name: check}
spec:
  selector: {matchLabels: {pool: a}}
  unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeout: 5m}
`
	Budget = `
apiVersion: machinist.dev/v1beta1
kind: MachineDisruptionBudget
metadata: {name: budget}
spec:
  selector: {matchLabels: {pool: a}}
  maxDisrupted: 1
`
	Provider = `
apiVersion: machinist.dev/v1beta1
kind: Provider
metadata: {name: sim}
spec:
  type: sim
`
	Migration = `
apiVersion: machinist.dev/v1beta1
kind: Migration
metadata: {name: over}
spec:
  source: cluster.k8s.io
  provider: sim
`
)

// Samples returns the smallest valid object of each kind and form. The objects can be created in this order.
func Samples() []string {
	return []string{Class, Machine, InlineMachine, Set, Deployment, HealthCheck, Budget, Provider, Migration}
}

// Changes contains new values for parts of an object, by path. Slashes separate the parts of a path, and ~1 stands for
// a slash within a part. A value can be anything that JSON can encode. If the value is nil, the part is removed.
type Changes map[string]any

// Parse parses a sample and sets its namespace, unless its kind is cluster-scoped.
func Parse(namespace, sample string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(sample), &object.Object); err != nil {
		return nil, fmt.Errorf("parse the sample: %w", err)
	}
	if object.GetKind() != "Provider" {
		object.SetNamespace(namespace)
	}
	return object, nil
}

// Apply applies the changes to an object, outer parts first.
func (c Changes) Apply(object *unstructured.Unstructured) error {
	for _, path := range slices.Sorted(maps.Keys(c)) {
		parts := strings.Split(path, "/")
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], "~1", "/")
		}
		if err := set(object.Object, parts, c[path]); err != nil {
			return fmt.Errorf("change %s: %w", path, err)
		}
	}
	return nil
}

func set(in map[string]any, path []string, value any) error {
	for _, name := range path[:len(path)-1] {
		next, ok := in[name].(map[string]any)
		if !ok {
			if in[name] != nil {
				return fmt.Errorf("%s is not an object", name)
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
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var decoded any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	in[last] = toInt64(decoded)
	return nil
}

func toInt64(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = toInt64(v[name])
		}
	case []any:
		for i := range v {
			v[i] = toInt64(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

// Ref returns a reference to the object with the given name.
func Ref(name string) map[string]any { return map[string]any{"name": name} }

// MatchLabels returns a selector with one label.
func MatchLabels(key, value string) map[string]any {
	return map[string]any{"matchLabels": map[string]any{key: value}}
}
