package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// apiFolder contains the constants of the API. A block whose comment names no kind belongs to the kind of the previous
// block.
const apiFolder = "api/v1beta1"

// block is a group of constants that share a comment.
type block struct {
	// kind is the API kind that the constants belong to, such as Machine.
	kind      string
	doc       string
	constants []constant
}

type constant struct{ name, value, doc string }

var (
	documented = regexp.MustCompile(`^(Conditions of|Reasons|Phases of) `)
	aboutKind  = regexp.MustCompile(`\b(?:of|on|in|which) (?:\S+ of )?an? ([A-Z][A-Za-z]+)`)
	// mustBeDocumented matches constants of the API that must be in a documented group.
	mustBeDocumented = regexp.MustCompile(`^(Condition|Reason|Failure)[A-Z]`)
	surfaces         = regexp.MustCompile(`^(\w+) surfaces `)
)

// reader collects the blocks of all Go files.
type reader struct {
	files token.FileSet
	// api contains the values of the string constants in the API folder, by name. Constants in other folders refer to
	// these constants.
	api    map[string]string
	blocks []block
}

// blocksOf reads the groups of constants in all files below root, starting with the API. blocksOf skips internal/cli,
// because its findings are not conditions.
func blocksOf(root string) ([]block, error) {
	r := &reader{api: map[string]string{}}
	api := filepath.Join(root, apiFolder)
	if err := r.folder(api, nil); err != nil {
		return nil, err
	}
	return r.blocks, r.folder(root, func(path string) bool {
		switch relative, _ := filepath.Rel(root, path); relative {
		case apiFolder, "internal/cli", "hack", "test", ".git", "bin", "dist":
			return true
		}
		return false
	})
}

func (r *reader) folder(folder string, skip func(path string) bool) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skip != nil && skip(path):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		return r.file(path, skip == nil)
	})
}

func (r *reader) file(path string, ofAPI bool) error {
	file, err := parser.ParseFile(&r.files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	if err := r.checkEvents(file); err != nil {
		return err
	}
	kind := ""
	for _, decl := range file.Decls {
		group, isGroup := decl.(*ast.GenDecl)
		if !isGroup || group.Tok != token.CONST {
			continue
		}
		b := block{doc: text(group.Doc)}
		isDocumented := documented.MatchString(b.doc) && group.Lparen.IsValid()
		if found := aboutKind.FindStringSubmatch(b.doc); found != nil {
			kind = found[1]
		} else if isDocumented && (!ofAPI || kind == "") {
			return fmt.Errorf("%s: the comment of a group of constants must name a kind: %q", r.files.Position(group.Pos()), b.doc)
		}
		b.kind = kind
		if b.constants, err = r.constants(group, ofAPI, isDocumented); err != nil {
			return err
		}
		if isDocumented {
			r.blocks = append(r.blocks, b)
		}
	}
	return nil
}

// constants returns an error if a constant that must be documented is in an undocumented group.
func (r *reader) constants(group *ast.GenDecl, ofAPI, isDocumented bool) (constants []constant, err error) {
	for _, spec := range group.Specs {
		valueSpec := spec.(*ast.ValueSpec)
		if len(valueSpec.Names) != 1 || len(valueSpec.Values) != 1 {
			continue
		}
		name := valueSpec.Names[0].Name
		value, known := r.value(valueSpec.Values[0])
		if known && ofAPI {
			r.api[name] = value
		}
		doc := text(valueSpec.Doc)
		if !group.Lparen.IsValid() {
			doc = text(group.Doc)
		}
		at := r.files.Position(valueSpec.Pos())
		if !isDocumented {
			isReason := surfaces.MatchString(doc) && strings.HasPrefix(doc, name+" ")
			if known && (isReason || ofAPI && mustBeDocumented.MatchString(name)) {
				return nil, fmt.Errorf("%s: %s must be in a group whose comment begins with \"Conditions of\" or \"Reasons\"", at, name)
			}
			continue
		}
		meaning, found := strings.CutPrefix(doc, name+" ")
		if !known || !found {
			return nil, fmt.Errorf("%s: %s needs a string as its value and a comment that begins with its name", at, name)
		}
		constants = append(constants, constant{name, value, meaning})
	}
	return constants, nil
}

func (r *reader) value(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.SelectorExpr:
		value, known := r.api[e.Sel.Name]
		return value, known
	}
	return "", false
}

// checkEvents rejects events with a literal reason, because the reference would not contain this reason.
func (r *reader) checkEvents(file *ast.File) (err error) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		if !isCall {
			return true
		}
		method, isMethod := call.Fun.(*ast.SelectorExpr)
		if !isMethod || method.Sel.Name != "Eventf" || len(call.Args) < 4 {
			return true
		}
		if literal, isLiteral := call.Args[3].(*ast.BasicLit); isLiteral {
			err = fmt.Errorf("%s: the reason %s of an event must be a constant", r.files.Position(literal.Pos()), literal.Value)
		}
		return true
	})
	return err
}

// text returns a comment as one line.
func text(comment *ast.CommentGroup) string { return strings.Join(strings.Fields(comment.Text()), " ") }
