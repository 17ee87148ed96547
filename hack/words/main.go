// Command words fails where the project's Go files and documents use words that a reader who knows Kubernetes would
// have to learn: names that only this project has for something that the field has a name for. For each it says what
// to write.
//
// It looks at identifiers word by word (reignOf has the word "reign"), and at comments, strings and Markdown as text. A
// word that also has an ordinary meaning is in the list only in the form that has not.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	counts := flag.Bool("counts", false, "print how often each word occurs, and not where")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"."}
	}
	found, err := check(paths)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *counts {
		count(found)
	} else {
		for _, f := range found {
			fmt.Println(f)
		}
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "%d words that the project does not use; CONTRIBUTING says which it uses instead\n",
			len(found))
		os.Exit(1)
	}
}

// finding is one word at one place.
type finding struct {
	path    string
	line    int
	word    string
	instead string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: say %s", f.path, f.line, f.word, f.instead)
}

// skipped are folders without text of ours.
var skipped = []string{".git", "testdata", "node_modules", "words", "crd", "bin", "dist"}

func check(paths []string) ([]finding, error) {
	var found []finding
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(skipped, d.Name()) && path != ".":
				return fs.SkipDir
			case d.IsDir() || strings.HasPrefix(d.Name(), "zz_generated"):
				return nil
			}
			switch filepath.Ext(path) {
			case ".go", ".md":
			default:
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if filepath.Ext(path) == ".md" {
				found = append(found, inText(path, 1, withoutOwnSection(string(text)))...)
				return nil
			}
			of, err := inGo(path, text)
			found = append(found, of...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// ownSection is the section of a document that lists the words.
var ownSection = regexp.MustCompile(`(?ms)^## Words$.*?(^## |\z)`)

// withoutOwnSection empties the lines of that section.
func withoutOwnSection(document string) string {
	return ownSection.ReplaceAllStringFunc(document, func(section string) string {
		return strings.Repeat("\n", strings.Count(section, "\n"))
	})
}

// inGo returns what the identifiers, comments and strings of a Go file have.
func inGo(path string, source []byte) ([]finding, error) {
	var found []finding
	var wrong scanner.ErrorList
	files := token.NewFileSet()
	file := files.AddFile(path, files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, wrong.Add, scanner.ScanComments)
	for {
		pos, kind, literal := s.Scan()
		line := file.Line(pos)
		switch kind {
		case token.EOF:
			if bytes.HasPrefix(source, []byte("// Code generated")) {
				return nil, nil
			}
			return found, errors.Join(wrong.Err())
		case token.IDENT:
			found = append(found, inName(path, line, literal)...)
		case token.COMMENT, token.STRING:
			found = append(found, inText(path, line, literal)...)
		}
	}
}

var part = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

// inName returns what the words of an identifier are.
func inName(path string, line int, name string) []finding {
	text := strings.ToLower(strings.Join(part.FindAllString(name, -1), " "))
	var found []finding
	for _, w := range words {
		if w.names != nil && w.names.MatchString(text) && !(w.fine != nil && w.fine.MatchString(text)) {
			found = append(found, finding{path, line, name, w.instead})
		}
	}
	return found
}

// inText returns what a text has that begins at a line.
func inText(path string, line int, text string) []finding {
	var found []finding
	for i, t := range strings.Split(text, "\n") {
		for _, w := range words {
			if w.text == nil {
				continue
			}
			for _, at := range w.text.FindAllStringIndex(t, -1) {
				around := t[max(0, at[0]-20):min(len(t), at[1]+20)]
				if w.fine == nil || !w.fine.MatchString(strings.ToLower(around)) {
					found = append(found, finding{path, line + i, t[at[0]:at[1]], w.instead})
				}
			}
		}
	}
	return found
}

func count(found []finding) {
	n := map[string]int{}
	for _, f := range found {
		n[f.instead]++
	}
	var lines []string
	for instead, times := range n {
		lines = append(lines, fmt.Sprintf("%6d  say %s", times, instead))
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
