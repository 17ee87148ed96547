// Command notices writes the licence notices of everything that the project's binaries contain: each module that is
// linked into one of them, its version, the kind of its licence, and the texts of its LICENSE and NOTICE files. Texts
// that several modules share are printed once.
//
//	notices [-folders DIR,...] [-goos linux] > THIRD_PARTY_NOTICES
//
// It fails on a module without a licence file, and on one under a licence that does not permit the binaries to be
// given to others under the project's own (Apache 2.0).
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
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	folders := flag.String("folders", ".", "modules whose ./cmd/... are the binaries, separated by commas")
	goos := flag.String("goos", "", "operating system that the binaries are for (default: this one)")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(strings.Split(*folders, ","), *goos, out), out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// permitted are the licences whose terms this file of notices meets.
var permitted = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "Unicode-DFS-2016"}

// minCoverage is the part of a licence file, in percent, that must be the text of known licences.
const minCoverage = 75

type module struct {
	Path, Version, Dir string
	Main               bool
}

// text is what one file of notices says, and who brings it.
type text struct {
	content string
	modules []string
}

func run(folders []string, goos string, out io.Writer) error {
	modules, err := linked(folders, goos)
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

// linked returns the modules that the binaries of the folders contain, but for the project's own, and Go's standard
// library.
func linked(folders []string, goos string) ([]module, error) {
	byPath := map[string]module{}
	for _, folder := range folders {
		list := exec.Command("go", "list", "-deps", "-json=Module,Standard", "./cmd/...")
		list.Dir, list.Stderr = folder, os.Stderr
		if goos != "" {
			list.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		}
		output, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list what the binaries in %s contain: %w", folder, err)
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
				break
			} else if err != nil {
				return nil, fmt.Errorf("read what go list says about %s: %w", folder, err)
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

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([.-].*)?$`)
)

// licenses returns the texts that a module's licence asks to be passed on, and which licences they are.
func licenses(m module) (texts, kinds []string, err error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: read its folder: %w", m.Path, err)
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
			return nil, nil, fmt.Errorf("%s: %s is %.0f %% of a licence that is known, want %d %%", m.Path, e.Name(),
				scan.Percent, minCoverage)
		}
		for _, match := range scan.Match {
			if !slices.Contains(permitted, match.ID) {
				return nil, nil, fmt.Errorf("%s: %s has the licence %s, which is none of %s", m.Path, e.Name(), match.ID,
					strings.Join(permitted, ", "))
			}
			if !slices.Contains(kinds, match.ID) {
				kinds = append(kinds, match.ID)
			}
		}
	}
	if len(kinds) == 0 {
		return nil, nil, fmt.Errorf("%s has no file LICENSE", m.Path)
	}
	return texts, kinds, nil
}
