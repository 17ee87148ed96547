package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// program is a main package with an image of the same name.
type program struct {
	name string
	// module is the folder of the Go module, and folder is the folder of the package. Both paths are relative to the
	// repository.
	module, folder string
	// description is the first sentence of the package documentation.
	description string
}

// withoutImage contains the programs that run only on the machines of developers, with reasons.
var withoutImage = map[string]string{
	"machinist-demo":             "starts a control plane from local binaries",
	"machinist-demo-azure-fake":  "starts a control plane from local binaries",
	"machinist-demo-libvirt":     "starts a control plane from local binaries",
	"machinist-demo-openstack":   "starts a control plane from local binaries",
	"machinist-demo-vsphere-sim": "starts a control plane from local binaries",
	"fakeazure":                  "serves on loopback, for the demo and for tests",
	"fakevsphere":                "serves on loopback, for the demo and for tests",
}

// findPrograms returns the requested programs below cmd and providers/*/cmd, sorted by name. If no programs are
// requested, findPrograms returns all programs that have an image.
func findPrograms(root string, requested []string) ([]program, error) {
	found := map[string]program{}
	for _, pattern := range []string{"cmd/*/main.go", "providers/*/cmd/*/main.go"} {
		mains, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range mains {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return nil, err
			}
			p := program{name: filepath.Base(folder), folder: folder}
			if withoutImage[p.name] != "" {
				continue
			}
			if other, ok := found[p.name]; ok {
				return nil, fmt.Errorf("%s and %s would have the same image", other.folder, p.folder)
			}
			if p.module, err = moduleOf(root, folder); err != nil {
				return nil, err
			}
			if p.description, err = describe(path, p.name); err != nil {
				return nil, err
			}
			found[p.name] = p
		}
	}
	names := slices.Sorted(maps.Keys(found))
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no programs in cmd", root)
	}
	if len(requested) > 0 {
		for _, name := range requested {
			if !slices.Contains(names, name) {
				return nil, fmt.Errorf("--programs: %q is not one of %s", name, strings.Join(names, ", "))
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(requested, name) })
	}
	programs := make([]program, len(names))
	for i, name := range names {
		programs[i] = found[name]
	}
	return programs, nil
}

// moduleOf returns the folder with the go.mod of a package.
func moduleOf(root, folder string) (string, error) {
	for module := folder; ; module = filepath.Dir(module) {
		_, err := os.Stat(filepath.Join(root, module, "go.mod"))
		switch {
		case err == nil:
			return module, nil
		case module == ".":
			return "", fmt.Errorf("%s does not belong to a Go module: %w", folder, err)
		}
	}
}

// describe returns the first sentence of a program's documentation, without the name of the program.
func describe(path, name string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	text := strings.Join(strings.Fields(file.Doc.Text()), " ")
	text, ok := strings.CutPrefix(text, "Command "+name+" ")
	if !ok {
		return "", fmt.Errorf("%s: the documentation must begin with \"Command %s\"", path, name)
	}
	sentence, _, _ := strings.Cut(text, ". ")
	sentence = strings.TrimSuffix(sentence, ".")
	return strings.ToUpper(sentence[:1]) + sentence[1:], nil
}
