// Package sources contains CustomResourceDefinitions of the systems from which Machinist migrates fleets, and samples
// of their objects. The definitions have the names, scopes and subresources of the originals. The definitions of
// Gardener and OpenShift also contain the types of the fields. All other definitions accept any field, like most of the
// originals.
package sources

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed */*.yaml
var files embed.FS

const (
	crds       = "crds.yaml"
	linkedCRDs = "linked-crds.yaml"
	linked     = "linked.yaml"
)

// CRDs returns the CustomResourceDefinitions of an API group of an old system. CRDs panics if the group has no
// definitions.
func CRDs(group string) []*unstructured.Unstructured {
	return objects(path.Join(group, crds))
}

// Kinds returns the kinds in CRDs.
func Kinds(group string) (all []schema.GroupVersionKind) {
	for _, crd := range CRDs(group) {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		version, _, _ := unstructured.NestedString(versions[0].(map[string]any), "name")
		all = append(all, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	}
	return all
}

// Samples returns objects of an API group of an old system, by the names of their files without .yaml. Samples panics
// if the group has no samples.
func Samples(group string) map[string][]*unstructured.Unstructured {
	entries, err := files.ReadDir(group)
	if err != nil {
		panic(err)
	}
	all := map[string][]*unstructured.Unstructured{}
	for _, entry := range entries {
		if name := entry.Name(); name != crds && name != linkedCRDs && name != linked {
			all[strings.TrimSuffix(entry.Name(), ".yaml")] = objects(path.Join(group, entry.Name()))
		}
	}
	return all
}

// LinkedCRDs returns the CustomResourceDefinitions of the kinds to which the objects of a group refer, if there are
// any.
func LinkedCRDs(group string) []*unstructured.Unstructured {
	return optional(path.Join(group, linkedCRDs))
}

// Linked holds the objects to which the samples of a group refer, and the samples themselves.
type Linked []*unstructured.Unstructured

// LinkedObjects returns the objects to which the samples of a group refer.
func LinkedObjects(group string) Linked {
	all := Linked(optional(path.Join(group, linked)))
	for _, objects := range Samples(group) {
		all = append(all, objects...)
	}
	return all
}

// Find returns the object with this kind and name, or nil.
func (l Linked) Find(kind schema.GroupKind, _, name string) *unstructured.Unstructured {
	for _, object := range l {
		if object.GroupVersionKind().GroupKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}

// All returns the objects of a kind.
func (l Linked) All(kind schema.GroupKind, _ string) (all []*unstructured.Unstructured) {
	for _, object := range l {
		if object.GroupVersionKind().GroupKind() == kind {
			all = append(all, object)
		}
	}
	return all
}

func optional(name string) []*unstructured.Unstructured {
	if _, err := files.Open(name); err != nil {
		return nil
	}
	return objects(name)
}

func objects(name string) (all []*unstructured.Unstructured) {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		object := &unstructured.Unstructured{}
		if err == nil {
			document, err = yaml.YAMLToJSON(document)
		}
		if err == nil && string(document) == "null" {
			continue // The document contains only a comment.
		}
		if err == nil {
			err = object.UnmarshalJSON(document)
		}
		if err != nil {
			panic(fmt.Errorf("read %s: %w", name, err))
		}
		all = append(all, object)
	}
}
