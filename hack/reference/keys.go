package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// keyFiles are the API files with constants for keys: of labels, annotations, finalizers, taints and tags. The document
// lists the keys in this order.
var keyFiles = []string{"well_known.go", "migration_conditions.go"}

type keyGroup struct {
	heading, introduction string
	keys                  []wellKnownKey
}

// wellKnownKey contains the text for one row of the document's table. Keys that share a comment share a row.
type wellKnownKey struct {
	names                     []string
	on, setBy, value, meaning string
}

var (
	// keyFacts matches the last paragraph of a comment, which lists the facts about a key.
	keyFacts = regexp.MustCompile(`^(.*) On: ([^.]+)\. Set by: ([^.]+)\.(?: Value: (.+)\.)?$`)
	// leadingNames matches the names of the constants at the beginning of a comment, and a following "is" or "are".
	leadingNames = regexp.MustCompile(`^\w+(?: and [A-Z]\w+)? (?:(?:is|are) )?`)
	// keyConstant matches the names of constants that contain a key, such as the key of a label, or a value that such a
	// key can have.
	keyConstant = regexp.MustCompile(`\b(?:Label|Annotation|NodeLabel|NodeAnnotation|NodeTaint|Tag|Freeze|Preserve|` +
		`SecretUse|UpdateResult|MigrationUse)[A-Z]\w*`)
)

func keysDocument(root string) ([]byte, error) {
	folder := filepath.Join(root, apiFolder)
	r := &reader{api: map[string]string{}}
	if err := r.folder(folder, nil); err != nil {
		return nil, err
	}
	var groups []keyGroup
	for _, name := range keyFiles {
		found, err := r.keyGroups(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		groups = append(groups, found...)
	}
	return renderKeys(groups), nil
}

// keyGroups returns the groups of a file that contain keys.
func (r *reader) keyGroups(path string) (groups []keyGroup, err error) {
	file, err := parser.ParseFile(&r.files, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		constants, isGroup := decl.(*ast.GenDecl)
		if !isGroup || constants.Tok != token.CONST {
			continue
		}
		doc := text(constants.Doc)
		heading, introduction, _ := strings.Cut(strings.TrimSuffix(doc, "."), ". ")
		g := keyGroup{heading: heading, introduction: r.withValues(introduction)}
		for _, spec := range constants.Specs {
			if err := r.addKey(&g, spec.(*ast.ValueSpec)); err != nil {
				return nil, err
			}
		}
		if len(g.keys) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// addKey adds a constant if it is a key. A key without a comment is shown in the same table row as the previous key.
func (r *reader) addKey(g *keyGroup, spec *ast.ValueSpec) error {
	if len(spec.Names) != 1 || len(spec.Values) != 1 {
		return nil
	}
	name, known := r.key(spec.Values[0])
	isKey := strings.Contains(name, "/") && !strings.HasSuffix(name, "/") || strings.HasPrefix(name, "machinist-")
	if !known || !isKey {
		return nil
	}
	doc := text(spec.Doc)
	if doc == "" && len(g.keys) > 0 {
		if last := &g.keys[len(g.keys)-1]; !slices.Contains(last.names, name) {
			last.names = append(last.names, name)
		}
		return nil
	}
	facts := keyFacts.FindStringSubmatch(doc)
	if facts == nil {
		return fmt.Errorf("%s: %s must be in a group, and its comment must end with a paragraph \"On: KIND. Set by: WHO.\", "+
			"optionally with \"Value: VALUES.\"", r.files.Position(spec.Pos()), spec.Names[0].Name)
	}
	g.keys = append(g.keys, wellKnownKey{names: []string{name}, on: facts[2], setBy: facts[3],
		value: r.withValues(facts[4]), meaning: r.withValues(sentence(leadingNames.ReplaceAllString(facts[1], "")))})
	return nil
}

// key evaluates the expression of a constant: a string, or a constant of the API followed by + and a string.
func (r *reader) key(expression ast.Expr) (string, bool) {
	sum, isSum := expression.(*ast.BinaryExpr)
	if !isSum {
		return r.value(expression)
	}
	prefix, isName := sum.X.(*ast.Ident)
	suffix, known := r.value(sum.Y)
	if !isName || sum.Op != token.ADD || !known {
		return "", false
	}
	return r.api[prefix.Name] + suffix, r.api[prefix.Name] != ""
}

// withValues replaces the names of constants with their values.
func (r *reader) withValues(text string) string {
	return keyConstant.ReplaceAllStringFunc(text, func(name string) string {
		if value, known := r.api[name]; known {
			return "`" + value + "`"
		}
		return name
	})
}

func renderKeys(groups []keyGroup) []byte {
	var out bytes.Buffer
	out.WriteString("# Labels, annotations and tags\n\n")
	out.WriteString("Generated from the constants in `api/v1beta1` by `hack/generate.sh`. ")
	out.WriteString("The column *Set by* names the process or command that writes the key, or *users* if you may set it. ")
	out.WriteString("Do not set a key that only Machinist sets.\n")
	for _, g := range groups {
		fmt.Fprintf(&out, "\n## %s\n\n", g.heading)
		if g.introduction != "" {
			fmt.Fprintf(&out, "%s\n\n", sentence(g.introduction))
		}
		out.WriteString("| Key | On | Set by | Value | Meaning |\n| --- | --- | --- | --- | --- |\n")
		for _, k := range g.keys {
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", strings.Join(k.names, "`<br>`"), cell(k.on), cell(k.setBy),
				cell(k.value), cell(k.meaning))
		}
	}
	return out.Bytes()
}
