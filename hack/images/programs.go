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

// program is a main package that gets an image of its own, which is named after it.
type program struct {
	name string
	// module is the folder of its Go module, relative to the repository; folder is that of the package.
	module, folder string
	// description is the first sentence of the package's documentation.
	description string
}

// withoutImage are the programs that run on a developer's machine only, and why.
var withoutImage = map[string]string{
	"machinist-demo":            "starts a control plane from local binaries",
	"machinist-demo-azure-fake": "starts a control plane from local binaries",
	"machinist-demo-openstack":  "starts a control plane from local binaries",
	"fakeazure":                 "serves on loopback, for the demo and for tests",
}

// findPrograms returns the programs below cmd and providers/*/cmd, sorted by their names: all that have an image, or
// those that are asked for.
func findPrograms(root string, only []string) ([]program, error) {
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
		return nil, fmt.Errorf("%s has no programs below cmd", root)
	}
	if len(only) > 0 {
		for _, name := range only {
			if !slices.Contains(names, name) {
				return nil, fmt.Errorf("--programs: %q is none of %s", name, strings.Join(names, ", "))
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(only, name) })
	}
	programs := make([]program, len(names))
	for i, name := range names {
		programs[i] = found[name]
	}
	return programs, nil
}

// moduleOf returns the folder with the go.mod that a package belongs to.
func moduleOf(root, folder string) (string, error) {
	for module := folder; ; module = filepath.Dir(module) {
		_, err := os.Stat(filepath.Join(root, module, "go.mod"))
		switch {
		case err == nil:
			return module, nil
		case module == ".":
			return "", fmt.Errorf("%s belongs to no Go module: %w", folder, err)
		}
	}
}

// describe returns the sentence that a program's documentation begins with, without the words that name the program.
func describe(path, name string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	text := strings.Join(strings.Fields(file.Doc.Text()), " ")
	text, ok := strings.CutPrefix(text, "Command "+name+" ")
	if !ok {
		return "", fmt.Errorf("%s: its documentation must begin with \"Command %s\"", path, name)
	}
	sentence, _, _ := strings.Cut(text, ". ")
	sentence = strings.TrimSuffix(sentence, ".")
	return strings.ToUpper(sentence[:1]) + sentence[1:], nil
}
