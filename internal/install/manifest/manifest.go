// Package manifest decodes YAML files that are embedded in the program.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Decode returns the objects in all files that match the pattern, in the order of the file names. A file may contain
// several documents. Unknown kinds and fields are errors.
func Decode(files fs.FS, pattern string, types ...func(*runtime.Scheme) error) ([]client.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range types {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
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
				return nil, fmt.Errorf("split %s: %w", name, err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("decode %s: %w", name, err)
			}
			objects = append(objects, object.(client.Object))
		}
	}
	return objects, nil
}
