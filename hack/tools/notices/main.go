// Command notices prints the license notices for the binaries of this repository. For each linked module, the command
// prints the version, the kind of the license, and the LICENSE and NOTICE files. Identical texts are printed once.
//
//	notices [-folders DIR,...] [-goos linux,...] > THIRD_PARTY_NOTICES
//
// The command fails if a module has no license file, or if its license is incompatible with the license of this
// repository (Apache 2.0).
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	folders := flag.String("folders", ".", "folders of modules, separated by commas; the binaries are the packages in ./cmd/...")
	goos := flag.String("goos", runtime.GOOS, "operating systems of the binaries, separated by commas")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(strings.Split(*folders, ","), strings.Split(*goos, ","), out), out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// permitted lists the licenses that require no more than distributing the license notices.
var permitted = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "Unicode-DFS-2016"}

// minCoverage is the minimum percentage of a license file that must match known licenses.
const minCoverage = 75

type module struct {
	Path, Version, Dir string
	Main               bool
}

type text struct {
	content string
	modules []string
}

func run(folders, systems []string, out io.Writer) error {
	modules, err := linked(folders, systems)
	if err != nil {
		return err
	}
	var errs []error
	var texts []*text
	fmt.Fprintln(out, "Machinist's binaries contain the following modules. The texts of their licences follow the list.")
	fmt.Fprintln(out)
	for _, m := range modules {
		files, kinds, err := licenses(m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		name := m.Path + " " + m.Version
		fmt.Fprintf(out, "%s (%s)\n", name, strings.Join(kinds, ", "))
		for _, content := range files {
			i := slices.IndexFunc(texts, func(t *text) bool { return t.content == content })
			if i < 0 {
				i, texts = len(texts), append(texts, &text{content: content})
			}
			texts[i].modules = append(texts[i].modules, name)
		}
	}
	for _, t := range texts {
		fmt.Fprintf(out, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(t.modules, "\n"), t.content)
	}
	return errors.Join(errs...)
}

// linked returns the modules that are linked into the binaries, including Go's standard library. Modules of this
// repository are excluded.
func linked(folders, systems []string) ([]module, error) {
	byPath := map[string]module{}
	for _, folder := range folders {
		for _, system := range systems {
			if err := addLinked(byPath, folder, system); err != nil {
				return nil, err
			}
		}
	}
	root, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	lines := strings.Fields(string(root))
	if len(lines) != 2 {
		return nil, fmt.Errorf("go env GOROOT GOVERSION printed %q, want two lines", root)
	}
	byPath["std"] = module{Path: "Go's standard library", Version: lines[1], Dir: lines[0]}
	var modules []module
	for _, m := range byPath {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
}

func addLinked(byPath map[string]module, folder, system string) error {
	list := exec.Command("go", "list", "-deps", "-json=Module,Standard", "./cmd/...")
	list.Dir, list.Stderr, list.Env = folder, os.Stderr, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	output, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the dependencies of the binaries in %s: %w", folder, err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			Standard bool
			Module   *struct {
				module
				Replace *module
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("parse the output of go list in %s: %w", folder, err)
		}
		if p.Module == nil || p.Module.Main || strings.HasPrefix(p.Module.Path, "machinist.dev/machinist") {
			continue
		}
		m := p.Module.module
		if r := p.Module.Replace; r != nil {
			m.Dir, m.Version = r.Dir, cmp.Or(r.Version, m.Version)
		}
		byPath[m.Path] = m
	}
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([.-].*)?$`)
)

// licenses returns the license texts and notices that must be distributed together with a module, and the kinds of its
// licenses.
func licenses(m module) (texts, kinds []string, err error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: read the folder of the module: %w", m.Path, err)
	}
	for _, e := range entries {
		isLicense := licenseFile.MatchString(e.Name())
		if e.IsDir() || !isLicense && !noticeFile.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		texts = append(texts, strings.TrimSpace(string(content)))
		if !isLicense {
			continue
		}
		scan := licensecheck.Scan(content)
		if scan.Percent < minCoverage {
			return nil, nil, fmt.Errorf("%s: %s matches known licences to %.0f %%, want at least %d %%", m.Path, e.Name(),
				scan.Percent, minCoverage)
		}
		for _, match := range scan.Match {
			if !slices.Contains(permitted, match.ID) {
				return nil, nil, fmt.Errorf("%s: %s has the licence %s, want one of %s", m.Path, e.Name(), match.ID,
					strings.Join(permitted, ", "))
			}
			if !slices.Contains(kinds, match.ID) {
				kinds = append(kinds, match.ID)
			}
		}
	}
	if len(kinds) == 0 {
		return nil, nil, fmt.Errorf("%s has no licence file", m.Path)
	}
	return texts, kinds, nil
}
