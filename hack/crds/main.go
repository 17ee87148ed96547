// Command crds completes the CustomResourceDefinitions that controller-gen generated, in place, and generates the API
// reference from them:
//
//	crds <folder of CRDs> <reference>
//
// Markers cannot change fields of imported types such as metav1.Duration or corev1.Taint. So this command walks the
// schema together with the Go type, and sets the patterns and bounds. The command fails if a string, list or map has no
// maximum.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crds <folder of CRDs> <reference>")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(folder, reference string) error {
	scheme := runtime.NewScheme()
	if err := machinistv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the API group: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list %s: %w", folder, err)
	}
	if len(files) == 0 {
		return fmt.Errorf("no *.yaml in %s", folder)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crd, err := refineFile(file, scheme)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		crds = append(crds, crd)
	}
	return os.WriteFile(reference, renderReference(crds), 0o644)
}

func refineFile(file string, scheme *runtime.Scheme) (*apiextensionsv1.CustomResourceDefinition, error) {
	in, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(in, &crd); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		goType, ok := scheme.AllKnownTypes()[kind]
		if !ok {
			return nil, fmt.Errorf("no Go type for %s", kind)
		}
		if err := refineRoot(version.Schema.OpenAPIV3Schema, goType); err != nil {
			return nil, err
		}
	}
	out, err := marshal(&crd)
	if err != nil {
		return nil, err
	}
	return &crd, os.WriteFile(file, out, 0o644)
}

// refineRoot refines spec and status, because the API server validates all other fields itself.
func refineRoot(root *apiextensionsv1.JSONSchemaProps, goType reflect.Type) error {
	for _, name := range []string{"spec", "status"} {
		property, ok := root.Properties[name]
		if !ok {
			return fmt.Errorf("schema has no %s", name)
		}
		goField, ok := fieldByJSONName(goType, name)
		if !ok {
			return fmt.Errorf("%s has no field %s", goType, name)
		}
		if err := refine(&property, goField.Type, name); err != nil {
			return err
		}
		if name == "spec" && goType != reflect.TypeFor[machinistv1.Machine]() {
			explainDurations(&property)
		}
		root.Properties[name] = property
	}
	return nil
}

// marshal omits the fields that only an API server sets.
func marshal(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	out, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return append([]byte("---\n"), out...), nil
}
