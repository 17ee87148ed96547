package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sourcePackage is a package as `go list` describes it.
type sourcePackage struct {
	Dir, ImportPath, Export            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Path string }
	// DepOnly is true if the package is only a dependency of packages that match the patterns.
	DepOnly bool
	// sourcesHash and testsHash are hashes of the files.
	sourcesHash, testsHash string
}

// path returns the path of the package in its module.
func (p *sourcePackage) path() string { return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/") }

// tests reports whether the tests of the package may find bugs of another package, or of itself. Tests that need a
// control plane are too slow.
func (p *sourcePackage) tests(other *sourcePackage) bool {
	imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && (p == other || slices.Contains(imports, other.ImportPath)) &&
		(!slices.Contains(imports, testEnvironment) || slices.Contains(imports, testEnvironment+"/inmemory"))
}

// testEnvironment is the package that starts a control plane.
const testEnvironment = "machinist.dev/machinist/test/env"

// loadPackages returns the packages that match the patterns and an importer for everything they import.
func loadPackages(ctx context.Context, patterns []string) ([]*sourcePackage, types.Importer, error) {
	const fields = "-json=Dir,ImportPath,Export,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports," +
		"XTestImports,Module,DepOnly"
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-export", "-deps", fields}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := list.Start(); err != nil {
		return nil, nil, err
	}
	var all []*sourcePackage
	exports := map[string]string{}
	for decoder := json.NewDecoder(out); ; {
		p := &sourcePackage{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly || len(p.GoFiles) == 0 {
			continue
		}
		if p.sourcesHash, err = hashOf(p.Dir, p.GoFiles); err != nil {
			return nil, nil, err
		}
		if p.testsHash, err = hashOf(p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles)); err != nil {
			return nil, nil, err
		}
		all = append(all, p)
	}
	if err := list.Wait(); err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	return all, importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	}), nil
}

func hashOf(dir string, files []string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
