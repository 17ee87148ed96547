package fidelity

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/test/simulation"
)

const root = "../.."

// Each entry must name existing declarations, and either existing tests or a reason for their absence.
func TestEntriesNameExistingCode(t *testing.T) {
	names := map[string]bool{}
	for _, b := range Behaviours() {
		if names[b.Name] || b.Name == "" {
			t.Errorf("%q: the name of an entry is empty or not unique", b.Name)
		}
		names[b.Name] = true
		if len(b.Doubles) == 0 || len(b.Tests)+len(b.Nightly) == 0 && b.Reason == "" {
			t.Errorf("%s: the entry names no double, or neither a test nor a reason", b.Name)
		}
		for _, double := range b.Doubles {
			file, name, _ := strings.Cut(double, ":")
			if !slices.Contains(declared(t, filepath.Join(root, file)), name) {
				t.Errorf("%s: %s does not declare %s", b.Name, file, name)
			}
		}
		for _, test := range slices.Concat(b.Tests, b.Nightly) {
			folder, name, _ := strings.Cut(test, ":")
			if !slices.Contains(tests(t, folder), name) {
				t.Errorf("%s: %s has no test %s", b.Name, folder, name)
			}
		}
	}
	for _, g := range Gaps() {
		if g.Name == "" || g.Reason == "" {
			t.Errorf("gap %+v: the name or the reason is missing", g)
		}
	}
}

// exemptFiles contains the files of doubles that need no entry, because they implement no behavior.
var exemptFiles = []string{"test/apiserver/kinds.go", "test/apiserver/subresource.go", "test/apiserver/front.go",
	"test/apiserver/front_client.go", "test/apiserver/front_discovery.go", "test/apiserver/front_requests.go",
	"test/apiserver/front_watch.go", "simcloud/host/connection.go",
	"simcloud/host/doc.go", "simcloud/host/fleet.go", "simcloud/host/podpatch.go", "simcloud/host/spec.go"}

// Each file of a double needs an entry. Otherwise, the file may implement a behavior that no test compares with the
// real program.
func TestFilesAndTestsHaveEntries(t *testing.T) {
	var listed, compared []string
	for _, b := range Behaviours() {
		for _, double := range b.Doubles {
			file, _, _ := strings.Cut(double, ":")
			listed = append(listed, file)
		}
		compared = slices.Concat(compared, b.Tests, b.Nightly)
	}
	for _, folder := range []string{"test/apiserver", "test/apiserver/crd", "test/controllermanager", "test/fakecloud",
		"simcloud/host"} {
		for _, file := range files(t, folder) {
			if !strings.HasSuffix(file, "_test.go") && !slices.Contains(listed, file) && !slices.Contains(exemptFiles, file) {
				t.Errorf("%s: no entry names it", file)
			}
		}
	}
	for _, folder := range []string{"test/apiserver/fidelity", "test/controllermanager/fidelity",
		"test/realnode/fidelity"} {
		for _, test := range tests(t, folder) {
			if name := folder + ":" + test; test != "TestMain" && !slices.Contains(compared, name) {
				t.Errorf("%s: no entry names it", name)
			}
		}
	}
}

// Each consistency option of the simulated cloud must correspond to a real cloud.
func TestCloudSemanticsHaveEntries(t *testing.T) {
	var listed []string
	for _, b := range Behaviours() {
		listed = append(listed, b.Doubles...)
	}
	for _, s := range simulation.AllSemantics() {
		name := ""
		for word := range strings.SplitSeq(string(s), "-") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		if name == "Throttled" {
			name = "ThrottledOften"
		}
		if !slices.Contains(listed, world+"semantics.go:"+name) {
			t.Errorf("%s: no entry names it", name)
		}
	}
}

func files(t *testing.T, folder string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") {
			found = append(found, folder+"/"+e.Name())
		}
	}
	return found
}

func tests(t *testing.T, folder string) (found []string) {
	t.Helper()
	for _, file := range files(t, folder) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range declared(t, filepath.Join(root, file)) {
			if strings.HasPrefix(name, "Test") {
				found = append(found, name)
			}
		}
	}
	return found
}

func declared(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}
