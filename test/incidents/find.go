package incidents

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// Files returns the file of each proof: the path of its test or scenario, relative to root. Files fails if a test or
// scenario does not exist.
func Files(root string, all []Incident) (map[Proof]string, error) {
	found := map[Proof]string{}
	folders := map[string]map[string]string{}
	for _, i := range all {
		for _, p := range i.Proofs {
			folder, name, valid := "test/simulation", p.Scenario, true
			if p.Test != "" {
				folder, name, valid = strings.Cut(p.Test, ".")
			}
			if !valid || (p.Scenario == "") == (p.Test == "") {
				return nil, fmt.Errorf("%s: the proof %+v must be a scenario, or a test as a folder, a dot and a name",
					i.Reference, p)
			}
			if folders[folder] == nil {
				names, err := namesIn(root, folder)
				if err != nil {
					return nil, err
				}
				folders[folder] = names
			}
			file := folders[folder][name]
			if file == "" {
				return nil, fmt.Errorf("%s: %s has no test or scenario with the name %s", i.Reference, folder, name)
			}
			found[p] = file
		}
	}
	return found, nil
}

// namesIn returns the tests and scenarios in a folder with their files. namesIn finds scenarios by the field Name of a
// composite literal.
func namesIn(root, folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no Go files", folder)
	}
	slices.Sort(files)
	names := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		relative := folder + "/" + filepath.Base(path)
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(x.Name.Name, "Test") && x.Recv == nil && strings.HasSuffix(path, "_test.go") {
					names[x.Name.Name] = relative
				}
			case *ast.KeyValueExpr:
				key, isKey := x.Key.(*ast.Ident)
				value, isText := x.Value.(*ast.BasicLit)
				if isKey && isText && key.Name == "Name" && value.Kind == token.STRING {
					names[strings.Trim(value.Value, `"`)] = relative
				}
			}
			return true
		})
	}
	return names, nil
}
