// Command rules holds docs/rules.md and the tests together: it fails on a rule that no test names and on a test that
// names a rule that is not there.
//
// A rule is a list item of docs/rules.md that begins with its number, "- **M-7** …". A test names it in a comment or a
// string: "M-7". With -list it prints each rule with the files that test it.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	list := flag.Bool("list", false, "print each rule with the files that test it")
	flag.Parse()
	if err := run(*root, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, list bool) error {
	text, err := os.ReadFile(filepath.Join(root, "docs", "rules.md"))
	if err != nil {
		return err
	}
	rules, err := defined(string(text))
	if err != nil {
		return err
	}
	tests, err := named(root, prefixes(rules))
	if err != nil {
		return err
	}
	if list {
		for _, rule := range sorted(rules) {
			fmt.Printf("%s\t%s\n", rule, strings.Join(tests[rule], " "))
		}
	}
	return compare(rules, tests)
}

var (
	definition = regexp.MustCompile(`(?m)^- \*\*([A-Z]-[0-9]+)\*\*`)
	number     = regexp.MustCompile(`\b[A-Z]-[0-9]+\b`)
)

// defined returns the numbers of all rules.
func defined(text string) (map[string]bool, error) {
	rules := map[string]bool{}
	for _, match := range definition.FindAllStringSubmatch(text, -1) {
		if rules[match[1]] {
			return nil, fmt.Errorf("docs/rules.md: the rule %s is there twice", match[1])
		}
		rules[match[1]] = true
	}
	if len(rules) == 0 {
		return nil, errors.New("docs/rules.md has no rules")
	}
	return rules, nil
}

// prefixes returns the letters of the rules, so that "A-1" in a test about something else is not taken for one.
func prefixes(rules map[string]bool) map[string]bool {
	letters := map[string]bool{}
	for rule := range rules {
		letters[rule[:1]] = true
	}
	return letters
}

// named returns, for each number in a comment or string of a test, the files that it is in.
func named(root string, letters map[string]bool) (map[string][]string, error) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "rules" &&
			filepath.Base(filepath.Dir(path)) == "hack"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, rule := range numbersIn(source) {
			if letters[rule[:1]] && !slices.Contains(tests[rule], name) {
				tests[rule] = append(tests[rule], name)
			}
		}
		return nil
	})
	return tests, err
}

// numbersIn returns the numbers in the comments and strings of a Go file.
func numbersIn(source []byte) []string {
	var found []string
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(source)), source, nil, scanner.ScanComments)
	for {
		_, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return found
		case token.COMMENT, token.STRING:
			found = append(found, number.FindAllString(literal, -1)...)
		}
	}
}

// compare returns an error that names every rule without a test and every test of a rule that is not there.
func compare(rules map[string]bool, tests map[string][]string) error {
	var errs []error
	for _, rule := range sorted(rules) {
		if len(tests[rule]) == 0 {
			errs = append(errs, fmt.Errorf("docs/rules.md: no test names the rule %s", rule))
		}
	}
	for _, rule := range slices.SortedFunc(maps.Keys(tests), byNumber) {
		if !rules[rule] {
			errs = append(errs, fmt.Errorf("%s: docs/rules.md has no rule %s", strings.Join(tests[rule], ", "), rule))
		}
	}
	return errors.Join(errs...)
}

func sorted(rules map[string]bool) []string { return slices.SortedFunc(maps.Keys(rules), byNumber) }

// byNumber sorts M-2 before M-10.
func byNumber(a, b string) int {
	numberOf := func(rule string) int {
		n, _ := strconv.Atoi(rule[2:]) // The pattern admits digits only.
		return n
	}
	return cmp.Or(cmp.Compare(a[:1], b[:1]), cmp.Compare(numberOf(a), numberOf(b)))
}
