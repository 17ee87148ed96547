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
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed */*.yaml
var files embed.FS

const crds = "crds.yaml"

// CRDs returns the CustomResourceDefinitions of an API group of an old system. CRDs panics if the group has no
// definitions.
func CRDs(group string) []*unstructured.Unstructured {
	return objects(path.Join(group, crds))
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
		if entry.Name() != crds {
			all[strings.TrimSuffix(entry.Name(), ".yaml")] = objects(path.Join(group, entry.Name()))
		}
	}
	return all
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
