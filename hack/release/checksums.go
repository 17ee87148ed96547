package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksums maps names to hexadecimal SHA-256 digests. The text format is that of sha256sum.
type checksums map[string]string

// String returns a line for each name, sorted by name.
func (c checksums) String() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&text, "%s  %s\n", c[name], name)
	}
	return text.String()
}

func parseChecksums(text string) (checksums, error) {
	c := checksums{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		digest, name, ok := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		if !ok || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
			return nil, fmt.Errorf("line %d is not a digest, two spaces and a name", number)
		}
		if name = name[1:]; c[name] != "" {
			return nil, fmt.Errorf("line %d names %s again", number, name)
		}
		if sum, err := hex.DecodeString(digest); err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("line %d: %q is not a SHA-256 digest", number, digest)
		}
		c[name] = digest
	}
	return c, nil
}

func readChecksums(path string) (checksums, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseChecksums(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return c, nil
}

// sumFolder returns the checksums of the files in a folder. sumFolder ignores files whose names are in except.
func sumFolder(folder string, except ...string) (checksums, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	c := checksums{}
	for _, e := range entries {
		if slices.Contains(except, e.Name()) {
			continue
		}
		if c[e.Name()], err = sumFile(filepath.Join(folder, e.Name())); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// compare returns an error for each name that differs, is missing in got, or exists only in got.
func (c checksums) compare(got checksums) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		switch digest, ok := got[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("%s is missing", name))
		case digest != c[name]:
			errs = append(errs, fmt.Errorf("%s has the digest %s, want %s", name, digest, c[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := c[name]; !ok {
			errs = append(errs, fmt.Errorf("%s is unexpected", name))
		}
	}
	return errors.Join(errs...)
}
