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

// apiFolder has the constants of the API. A block there without a kind is about the kind of the block before it.
const apiFolder = "api/v1beta1"

// block is a group of constants that are documented together.
type block struct {
	// kind is that of the objects, such as Machine.
	kind string
	// doc is the comment of the group.
	doc  string
	rows []row
}

// row is one constant.
type row struct{ name, value, doc string }

var (
	documented = regexp.MustCompile(`^(Conditions of|Reasons|Phases of) `)
	aboutKind  = regexp.MustCompile(`\b(?:of|on|in|which) (?:\S+ of )?an? ([A-Z][A-Za-z]+)`)
	// mustBeDocumented are the names of constants of the API that belong into such a group.
	mustBeDocumented = regexp.MustCompile(`^(Condition|Reason|Failure)[A-Z]`)
	surfaces         = regexp.MustCompile(`^(\w+) surfaces `)
)

// reader gathers the blocks of all Go files.
type reader struct {
	files token.FileSet
	// api are the values of the API's string constants, for constants that are defined by one of them.
	api    map[string]string
	blocks []block
}

// blocksOf reads the groups of constants of all files below root, those of the API first. What the command line finds
// by itself is a condition of nothing.
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

// folder reads the Go files of a folder and of those below it.
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
	if err := r.eventsOf(file); err != nil {
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
			return fmt.Errorf("%s: the comment of the constants names no kind: %q", r.files.Position(group.Pos()), b.doc)
		}
		b.kind = kind
		if b.rows, err = r.rows(group, ofAPI, isDocumented); err != nil {
			return err
		}
		if isDocumented {
			r.blocks = append(r.blocks, b)
		}
	}
	return nil
}

// rows returns the constants of a group. One that should be documented and is not is an error.
func (r *reader) rows(group *ast.GenDecl, ofAPI, isDocumented bool) (rows []row, err error) {
	for _, spec := range group.Specs {
		constant := spec.(*ast.ValueSpec)
		if len(constant.Names) != 1 || len(constant.Values) != 1 {
			continue
		}
		name := constant.Names[0].Name
		value, known := r.value(constant.Values[0])
		if known && ofAPI {
			r.api[name] = value
		}
		doc := text(constant.Doc)
		if !group.Lparen.IsValid() {
			doc = text(group.Doc)
		}
		at := r.files.Position(constant.Pos())
		if !isDocumented {
			isReason := surfaces.MatchString(doc) && strings.HasPrefix(doc, name+" ")
			if known && (isReason || ofAPI && mustBeDocumented.MatchString(name)) {
				return nil, fmt.Errorf("%s: %s is in no group whose comment begins with \"Conditions of\" or \"Reasons\"", at, name)
			}
			continue
		}
		meaning, found := strings.CutPrefix(doc, name+" ")
		if !known || !found {
			return nil, fmt.Errorf("%s: %s needs a string as its value and a comment that begins with its name", at, name)
		}
		rows = append(rows, row{name, value, meaning})
	}
	return rows, nil
}

// value returns the string that a constant is.
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

// eventsOf fails where an event has a reason that is no constant: nobody would document it.
func (r *reader) eventsOf(file *ast.File) (err error) {
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
			err = fmt.Errorf("%s: the reason %s of an event is no constant", r.files.Position(literal.Pos()), literal.Value)
		}
		return true
	})
	return err
}

// text returns a comment as one line.
func text(comment *ast.CommentGroup) string { return strings.Join(strings.Fields(comment.Text()), " ") }
