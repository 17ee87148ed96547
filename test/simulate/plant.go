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

// build is a program with a bug planted, or why there is none.
type build struct {
	mutant mutant
	binary string
	// plain is the program in a world that lacks the dimension for which the bug is there; it is binary where flags take
	// that out of the world. It is only built for who asks whether the bug is exclusive.
	plain string
	took  time.Duration
	err   error
}

// builds returns the mutants' programs as they become ready, one ahead of whoever takes them.
func builds(ctx context.Context, dir string, chosen []mutant, plain bool) <-chan build {
	out := make(chan build, 1)
	go func() {
		defer close(out)
		for _, m := range chosen {
			began := time.Now()
			b := build{mutant: m}
			b.binary, b.err = m.build(ctx, dir, m.name)
			b.plain = b.binary
			if b.err == nil && plain && len(m.plain) > 0 {
				b.plain, b.err = m.build(ctx, dir, m.name+"-plain", m.plain...)
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
	os.Remove(b.plain)
}

// changes are those of a bug: what is taken out beside it comes first.
func (m *mutant) changes() []*mutant {
	if m.without == nil {
		return []*mutant{m}
	}
	return append(m.without.changes(), m)
}

// plant returns the files with the bug in them, and with other changes beside it, by their absolute names.
func (m mutant) plant(beside ...*mutant) (map[string]string, error) {
	planted := map[string]string{}
	for _, change := range append(m.changes(), beside...) {
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
		found := asQuoted(change.from).FindAllStringIndex(source, -1)
		if len(found) != 1 {
			return nil, fmt.Errorf("%s has %d times the text that is replaced: %q", change.file, len(found), change.from)
		}
		planted[file] = source[:found[0][0]] + change.to + source[found[0][1]:]
	}
	return planted, nil
}

// asQuoted matches a quote from a source however its lines are broken.
func asQuoted(from string) *regexp.Regexp {
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

// build builds this command with the bug, and with other changes beside it.
func (m mutant) build(ctx context.Context, dir, name string, beside ...*mutant) (string, error) {
	planted, err := m.plant(beside...)
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
	// Without what a debugger needs there is half as much to link, which is what takes the time.
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary,
		"./test/simulate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return binary, nil
}
