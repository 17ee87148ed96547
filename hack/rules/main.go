// Command rules compares the rules in spec/ with the tests. The command fails if a rule has no test, or if a test names
// an unknown rule.
//
// A rule is a list item that begins with its name: "- **no-create-from-stale-view**: …". A test names its rules in a
// comment: "// Rule: no-create-from-stale-view." or "// Rules surge-kept, machine-ceiling: …". With -list, the command
// prints each rule with the files that test it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	rules, err := definedRules(filepath.Join(root, "spec"))
	if err != nil {
		return err
	}
	tests, err := testsOfRules(root)
	if err != nil {
		return err
	}
	if list {
		for _, rule := range slices.Sorted(maps.Keys(rules)) {
			fmt.Printf("%s\t%s\n", rule, strings.Join(tests[rule], " "))
		}
	}
	return compare(rules, tests)
}

var (
	definition = regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*`)
	name       = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	// reference matches the names of rules in a comment.
	reference = regexp.MustCompile(`\b[Rr]ules?:? ([a-z0-9]+(?:-[a-z0-9]+)+(?:(?:, | and )[a-z0-9]+(?:-[a-z0-9]+)+)*)`)
	separator = regexp.MustCompile(`, | and `)
)

// definedRules returns the page of each rule.
func definedRules(folder string) (map[string]string, error) {
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return nil, err
	}
	rules := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for _, match := range definition.FindAllStringSubmatch(string(text), -1) {
			switch rule := match[1]; {
			case !name.MatchString(rule):
				return nil, fmt.Errorf("%s: the rule %q needs a name such as no-create-from-stale-view", page, rule)
			case rules[rule] != "":
				return nil, fmt.Errorf("%s: the rule %s is already defined in %s", page, rule, rules[rule])
			default:
				rules[rule] = page
			}
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s contains no rules", folder)
	}
	return rules, nil
}

// testsOfRules returns the test files that name each rule.
func testsOfRules(root string) (map[string][]string, error) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || path == filepath.Join(root, "hack", "rules")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, rule := range rulesIn(file.Comments) {
			if !slices.Contains(tests[rule], relative) {
				tests[rule] = append(tests[rule], relative)
			}
		}
		return nil
	})
	return tests, err
}

// rulesIn returns the names of rules in comments. A list of names can continue on the next line.
func rulesIn(comments []*ast.CommentGroup) []string {
	var found []string
	for _, group := range comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			found = append(found, separator.Split(match[1], -1)...)
		}
	}
	return found
}

// compare returns an error that names each rule without a test, and each unknown rule that a test names.
func compare(rules map[string]string, tests map[string][]string) error {
	var errs []error
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if len(tests[rule]) == 0 {
			errs = append(errs, fmt.Errorf("%s: no test names the rule %s", rules[rule], rule))
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(tests)) {
		if rules[rule] == "" {
			errs = append(errs, fmt.Errorf("%s: spec/ has no rule %s", strings.Join(tests[rule], ", "), rule))
		}
	}
	return errors.Join(errs...)
}
