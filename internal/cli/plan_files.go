package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"machinist.dev/machinist/api/v1beta1"
)

// document is the manifest of a MachineDeployment.
type document struct {
	// source is the file name for messages.
	source          string
	namespace, name string
	raw             []byte // the document as JSON
}

// documents are the relevant contents of all files.
type documents struct {
	deployments []document
	// classes is the set of MachineClasses by namespace and name.
	classes map[[2]string]bool
}

// hasClass reports whether the files contain a class. A class without a namespace is in defaultNamespace.
func (d documents) hasClass(namespace, defaultNamespace, name string) bool {
	return d.classes[[2]string{namespace, name}] || namespace == defaultNamespace && d.classes[[2]string{"", name}]
}

// readDocuments reads YAML and JSON files with MachineDeployments and MachineClasses. A path is a file or a folder.
func readDocuments(paths []string, recursive bool, in io.Reader) (documents, error) {
	all := documents{classes: map[[2]string]bool{}}
	files, err := expand(paths, recursive)
	if err != nil {
		return all, err
	}
	for _, file := range files {
		content, source, err := readFile(file, in)
		if err != nil {
			return all, err
		}
		if err := all.decode(content, source); err != nil {
			return all, err
		}
	}
	if len(all.deployments) == 0 {
		return all, fmt.Errorf("%s: no MachineDeployment found", strings.Join(paths, ", "))
	}
	return all, nil
}

func (d *documents) decode(content []byte, source string) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for n := 1; ; n++ {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: document %d: %w", source, n, err)
		}
		if err := d.add(raw, fmt.Sprintf("%s: document %d", source, n), source); err != nil {
			return err
		}
	}
}

// extensions select the files of a folder, as in kubectl.
var extensions = []string{".json", ".yaml", ".yml"}

func expand(paths []string, recursive bool) ([]string, error) {
	var files []string
	for _, name := range paths {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() {
			files = append(files, name) // readFile reports the error.
			continue
		}
		before := len(files)
		if err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != name && !recursive:
				return fs.SkipDir
			case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(path)):
				files = append(files, path)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: the folder contains no file with the extension %s", name,
				strings.Join(extensions, ", "))
		}
	}
	return files, nil
}

// readFile reads a file, or standard input if file is "-". source is the name for messages.
func readFile(file string, in io.Reader) (content []byte, source string, err error) {
	switch {
	case file == "-":
		content, err = io.ReadAll(in)
		return content, "standard input", err
	case strings.HasPrefix(file, "http://"), strings.HasPrefix(file, "https://"):
		return nil, "", fmt.Errorf("%s: URLs are not supported: download the file first", file)
	}
	content, err = os.ReadFile(file)
	return content, file, err
}

// add stores one document, or each item if the document is a list. Error messages contain the document's position in
// the file.
func (d *documents) add(raw json.RawMessage, position, source string) error {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Name, Namespace string } `json:"metadata"`
		Items           []json.RawMessage                `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("%s: not a Kubernetes object: %w", position, err)
	}
	group, version, _ := strings.Cut(head.APIVersion, "/")
	switch {
	case head.Kind == "" || head.APIVersion == "":
		return fmt.Errorf("%s: apiVersion or kind is not set", position)
	case strings.HasSuffix(head.Kind, "List") && head.Items != nil:
		for i, item := range head.Items {
			if err := d.add(item, fmt.Sprintf("%s: item %d", position, i+1), source); err != nil {
				return err
			}
		}
	case group != v1beta1.GroupVersion.Group:
	case head.Kind == "MachineClass":
		d.classes[[2]string{head.Metadata.Namespace, head.Metadata.Name}] = true
	case head.Kind == "MachineDeployment":
		if version != v1beta1.GroupVersion.Version {
			return fmt.Errorf("%s: apiVersion %q is not supported: use %s", position, head.APIVersion, v1beta1.GroupVersion)
		}
		if head.Metadata.Name == "" {
			return fmt.Errorf("%s: metadata.name is not set", position)
		}
		d.deployments = append(d.deployments, document{source: source, namespace: head.Metadata.Namespace,
			name: head.Metadata.Name, raw: raw})
	}
	return nil
}
