package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// build is a program with a planted bug. If the build failed, it contains the error.
type build struct {
	mutant mutant
	binary string
	// simple is a program with the same bug, but in a world that lacks the dimension for which the bug was added. If flags
	// can remove this dimension, simple is the same program as binary. simple is built only for hunts that check whether
	// bugs are exclusive.
	simple string
	took   time.Duration
	err    error
}

// builds builds the programs with the bugs, and sends each one to the returned channel when it is ready. While the
// receiver uses one program, builds already builds the next one.
func builds(ctx context.Context, dir string, chosen []mutant, simple bool) <-chan build {
	out := make(chan build, 1)
	go func() {
		defer close(out)
		for _, m := range chosen {
			began := time.Now()
			b := build{mutant: m}
			b.binary, b.err = m.build(ctx, dir, m.name)
			b.simple = b.binary
			if b.err == nil && simple && len(m.removeDimension) > 0 {
				b.simple, b.err = m.build(ctx, dir, m.name+"-simple", m.removeDimension...)
			}
			b.took = time.Since(began)
			select {
			case out <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// remove removes the programs.
func (b build) remove() {
	os.Remove(b.binary)
	os.Remove(b.simple)
}

// changes returns the changes of the source code that plant the bug. The removal of a second defense comes first.
func (m *mutant) changes() []*mutant {
	if m.alsoRemoved == nil {
		return []*mutant{m}
	}
	return append(m.alsoRemoved.changes(), m)
}

// plant returns the changed source files by their absolute names. The returned files contain the bug and the given
// other changes.
func (m mutant) plant(others ...*mutant) (map[string]string, error) {
	planted := map[string]string{}
	for _, change := range append(m.changes(), others...) {
		file, err := filepath.Abs(change.file)
		if err != nil {
			return nil, err
		}
		source, changed := planted[file]
		if !changed {
			read, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			source = string(read)
		}
		found := quotePattern(change.from).FindAllStringIndex(source, -1)
		if len(found) != 1 {
			return nil, fmt.Errorf("%s contains the text to replace %d times, want 1: %q", change.file, len(found), change.from)
		}
		planted[file] = source[:found[0][0]] + change.to + source[found[0][1]:]
	}
	return planted, nil
}

// quotePattern returns a pattern for a quote from a source file. Line breaks in the quote do not matter.
func quotePattern(from string) *regexp.Regexp {
	quote := strings.TrimLeft(from, " \t\n")
	pattern := strings.Join(strings.FieldsFunc(regexp.QuoteMeta(quote), unicode.IsSpace), `\s+`)
	if strings.TrimRight(quote, " \t\n") != quote {
		pattern += `\s+`
	}
	if quote != from {
		pattern = `[ \t]*` + pattern
	}
	return regexp.MustCompile(pattern)
}

// build builds this command with the bug and with the given other changes.
func (m mutant) build(ctx context.Context, dir, name string, others ...*mutant) (string, error) {
	planted, err := m.plant(others...)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, source := range planted {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%s-%d.go", name, len(replace)))
		if err := os.WriteFile(replace[file], []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlayFile, binary := filepath.Join(dir, name+".json"), filepath.Join(dir, name)
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	// Linking takes most of the time. Omitting the debugging information halves the amount that must be linked.
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary,
		"./test/simulate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return binary, nil
}
