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

type build struct {
	mutant mutant
	binary string
	// simpleProgram is a second program with the same bug. In the second program, the feature of the simulation that
	// was added to find the bug is turned off. If flags can turn off this feature, simpleProgram equals binary.
	// simpleProgram is set only in a hunt with the flag exclusive.
	simpleProgram string
	took          time.Duration
	err           error
}

// builds compiles the programs one after the other and sends each one to the returned channel. builds compiles the next
// program while the receiver uses the previous one.
func builds(ctx context.Context, dir string, chosen []mutant, simple bool) <-chan build {
	out := make(chan build, 1)
	go func() {
		defer close(out)
		for _, m := range chosen {
			began := time.Now()
			b := build{mutant: m}
			b.binary, b.err = m.build(ctx, dir, m.name)
			b.simpleProgram = b.binary
			if b.err == nil && simple && len(m.removeDimension) > 0 {
				b.simpleProgram, b.err = m.build(ctx, dir, m.name+"-simple", m.removeDimension...)
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

func (b build) remove() {
	os.Remove(b.binary)
	os.Remove(b.simpleProgram)
}

func (m *mutant) changes() []*mutant {
	if m.alsoRemoved == nil {
		return []*mutant{m}
	}
	return append(m.alsoRemoved.changes(), m)
}

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
		found := quotePattern(change.oldText).FindAllStringIndex(source, -1)
		if len(found) != 1 {
			return nil, fmt.Errorf("%s contains the text to replace %d times, want 1: %q", change.file, len(found), change.oldText)
		}
		planted[file] = source[:found[0][0]] + change.newText + source[found[0][1]:]
	}
	return planted, nil
}

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
	// Linking takes most of the time. Without debugging information, linking takes half of the time.
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary,
		"./test/simulate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return binary, nil
}
