// Package examples holds manifests to start from. The demo and the tests use the same ones, so that they stay true.
package examples

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Names in the example fleet.
const (
	CredentialsSecret = "sim-credentials"
	UserDataSecret    = "worker-user-data"
	SmallClass        = "small"
	LargeClass        = "large"
	Deployment        = "workers"
)

//go:embed sim/*.yaml
var files embed.FS

// Fleet returns the objects of the example fleet in the simulated cloud, in the order in which to create them. They have
// no namespace.
func Fleet() ([]client.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	names, err := fs.Glob(files, "sim/*.yaml")
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read example %s: %w", name, err)
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("decode example %s: %w", name, err)
			}
			objects = append(objects, object.(client.Object))
		}
	}
	return objects, nil
}
