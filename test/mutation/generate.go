package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one change of the source of a package.
type mutant struct {
	Package string `json:"package"`
	Number  int    `json:"number"`
	// File is relative to the package.
	File string `json:"file"`
	Line int    `json:"line"`
	// Column distinguishes the mutants of a long condition.
	Column int    `json:"column"`
	Kind   string `json:"kind"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// Copy counts the earlier mutants of the file with the same texts.
	Copy int `json:"copy,omitempty"`
}

// id is the value of MACHINIST_MUTANT that switches the mutant on.
func (m mutant) id() string { return fmt.Sprintf("%s:%d", m.Package, m.Number) }

func (m mutant) String() string {
	return fmt.Sprintf("%s/%s:%d:%d: %s: %s becomes %s", m.Package, m.File, m.Line, m.Column, m.Kind, m.Old, m.New)
}

// key identifies the mutant by its text and not by its line. It remains the same if other code changes.
func (m mutant) key() string {
	return fmt.Sprintln(m.Package, m.File, m.Kind, m.Old, m.New, m.Copy)
}

// rank determines the order in which a seed chooses mutants.
func (m mutant) rank(seed uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", seed, m.key())
	return h.Sum64()
}

// Some code decides nothing, so a mutant of it would only show that no test compares texts or numbers for humans:
//
//   - calls of these packages, and their arguments: logs, events, metrics, traces, texts and flags,
//   - functions that compute texts, and the field Message of conditions,
//   - files that only contain metrics and traces.
var (
	reportingPackages = []string{
		"fmt", "github.com/go-logr/logr", "github.com/prometheus/client_golang/prometheus", "github.com/spf13/pflag",
		"go.opentelemetry.io/otel", "k8s.io/client-go/tools/events", "k8s.io/klog/v2",
		"machinist.dev/machinist/internal/platform/objectmetrics", "machinist.dev/machinist/internal/platform/tracing",
		"machinist.dev/machinist/internal/platform/wording", "sigs.k8s.io/controller-runtime/pkg/log",
	}
	reportingFunction = regexp.MustCompile(`(?i)message|text$|describe|summary|sentence|^string$|^event$|^trace`)
	reportingFiles    = []string{"metrics.go", "trace.go"}
)

func isReporting(path string) bool {
	return slices.ContainsFunc(reportingPackages, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/")
	})
}

// switchSource declares the functions that the changed sources call.
//
//go:embed switch.go.txt
var switchSource string

// switchFile is the name of the file with switchSource in each package.
const switchFile = "zz_generated_mutants.go"

// generate returns all mutants of a package, and the sources by path that contain all of them. Each mutant is off
// until the environment variable MACHINIST_MUTANT contains its id.
func generate(p *sourcePackage, importer types.Importer) ([]mutant, map[string]string, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: importer}).Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, nil, fmt.Errorf("check %s: %w", p.ImportPath, err)
	}
	var all []mutant
	sources := map[string]string{filepath.Join(p.Dir, switchFile): strings.NewReplacer("PACKAGE", files[0].Name.Name,
		"PATH", p.path()).Replace(switchSource)}
	for i, file := range files {
		path := filepath.Join(p.Dir, p.GoFiles[i])
		if slices.Contains(reportingFiles, p.GoFiles[i]) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		e := &editor{Info: info, fset: fset, file: file, checked: checked, text: string(text), path: p.path(),
			name: p.GoFiles[i], mutants: all}
		ast.Walk(visitor{editor: e}, file)
		all = e.mutants
		sources[path] = e.apply()
	}
	return all, sources, nil
}

// editor collects the changes of one file. All changes stay on their lines.
type editor struct {
	*types.Info
	fset             *token.FileSet
	file             *ast.File
	checked          *types.Package
	text, path, name string
	mutants          []mutant
	edits            []edit
}

type edit struct {
	offset, removed int
	text            string
	// closes marks text that follows a node. At the same offset, inner nodes are closed before outer ones.
	closes bool
}

func (e *editor) apply() string {
	// The sort is stable: an outer node was added before its inner nodes.
	var closing, others []edit
	for _, edit := range e.edits {
		if edit.closes {
			closing = append(closing, edit)
		} else {
			others = append(others, edit)
		}
	}
	slices.Reverse(closing)
	e.edits = append(closing, others...)
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Compare(a.offset, b.offset) })
	var out strings.Builder
	at := 0
	for _, edit := range e.edits {
		out.WriteString(e.text[at:edit.offset] + edit.text)
		at = edit.offset + edit.removed
	}
	return out.String() + e.text[at:]
}

func (e *editor) offset(p token.Pos) int { return e.fset.Position(p).Offset }

func (e *editor) wrap(n ast.Node, before, after string) {
	e.edits = append(e.edits, edit{offset: e.offset(n.Pos()), text: before},
		edit{offset: e.offset(n.End()), text: after, closes: true})
}

func (e *editor) source(n ast.Node) string { return e.text[e.offset(n.Pos()):e.offset(n.End())] }

const otherOperator = "other operator"

// add appends a mutant and returns its number.
func (e *editor) add(n ast.Node, kind, changed string) int {
	at := n.Pos()
	if b, ok := n.(*ast.BinaryExpr); ok && kind == otherOperator {
		at = b.OpPos
	}
	position := e.fset.Position(at)
	m := mutant{Package: e.path, Number: len(e.mutants) + 1, File: e.name, Line: position.Line, Column: position.Column,
		Kind: kind, Old: shorten(e.source(n)), New: shorten(changed)}
	for _, other := range e.mutants {
		if other.File == m.File && other.Kind == m.Kind && other.Old == m.Old && other.New == m.New {
			m.Copy++
		}
	}
	e.mutants = append(e.mutants, m)
	return m.Number
}

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 100 {
		text = text[:97] + "..."
	}
	return text
}

// visitor visits the nodes of a function. results are the types of its results. If the node is in a statement such as
// if a < b { a = b }, assigned is the assignment.
type visitor struct {
	*editor
	results  *types.Tuple
	assigned *ast.AssignStmt
}

func assignedIn(n *ast.IfStmt) *ast.AssignStmt {
	if n.Else != nil || len(n.Body.List) != 1 {
		return nil
	}
	assigned, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || assigned.Tok != token.ASSIGN || len(assigned.Rhs) != 1 || len(assigned.Lhs) != 1 {
		return nil
	}
	return assigned
}

// isMaximum reports whether a comparison precedes the assignment of one operand to the other. If the operands are
// equal, the assignment changes nothing, so that < and <= have the same effect.
func (v visitor) isMaximum(n *ast.BinaryExpr) bool {
	if v.assigned == nil || n.Op == token.EQL || n.Op == token.NEQ {
		return false
	}
	sides := []string{v.source(n.X), v.source(n.Y)}
	return slices.Contains(sides, v.source(v.assigned.Lhs[0])) && slices.Contains(sides, v.source(v.assigned.Rhs[0]))
}

func (v visitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.FuncDecl:
		if n.Body == nil || reportingFunction.MatchString(n.Name.Name) {
			return nil
		}
		ast.Walk(visitor{editor: v.editor, results: v.Defs[n.Name].Type().(*types.Signature).Results()}, n.Body)
		return nil
	case *ast.FuncLit:
		ast.Walk(visitor{editor: v.editor, results: v.TypeOf(n).(*types.Signature).Results()}, n.Body)
		return nil
	case *ast.GenDecl:
		if n.Tok != token.VAR {
			return nil
		}
	case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType:
		return nil
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Message" {
			return nil
		}
	case *ast.BlockStmt:
		v.dropStatements(n.List)
	case *ast.CaseClause:
		v.dropStatements(n.Body)
		for _, condition := range n.List {
			v.negate(condition)
		}
	case *ast.CommClause:
		v.dropStatements(n.Body)
	case *ast.IfStmt:
		v.negate(n.Cond)
		v.assigned = assignedIn(n)
	case *ast.ForStmt:
		if n.Cond != nil {
			v.negate(n.Cond)
		}
	case *ast.ReturnStmt:
		v.changeResults(n)
	case *ast.AssignStmt:
		added := n.Rhs[0]
		if (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && v.isNumber(added) && v.Types[added].Value == nil {
			v.wrap(added, fmt.Sprintf("mutantNegative(%d, ", v.add(n, otherOperator, "the opposite")), ")")
		}
	case *ast.CallExpr:
		return v.call(n)
	case ast.Expr:
		return v.expression(n)
	}
	return v
}

// call leaves out the arguments of calls that report, the formats of numbers, and capacities, which only change the
// speed.
func (v visitor) call(n *ast.CallExpr) ast.Visitor {
	if value := v.Types[n]; value.Value != nil {
		return v.expression(n)
	}
	switch path := v.packageOf(n); {
	case isReporting(path):
		return nil
	case path == "strconv":
		ast.Walk(v, n.Args[0])
		return nil
	}
	if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "make" {
		for _, size := range n.Args[1:min(2, len(n.Args))] {
			if len(n.Args) == 2 && !isMap(v.TypeOf(n)) {
				ast.Walk(v, size)
			}
		}
		return nil
	}
	return v
}

func isMap(t types.Type) bool {
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// packageOf returns the path of the package that declares the called function or method.
func (v visitor) packageOf(n *ast.CallExpr) string {
	var name *ast.Ident
	switch f := n.Fun.(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return ""
	}
	if reportingFunction.MatchString(name.Name) {
		return reportingPackages[0]
	}
	if used := v.Uses[name]; used != nil && used.Pkg() != nil {
		return used.Pkg().Path()
	}
	return ""
}

func (v visitor) expression(n ast.Expr) ast.Visitor {
	if v.Types[n].IsType() {
		return nil
	}
	if v.Types[n].Value != nil {
		v.changeConstant(n)
		return nil
	}
	b, ok := n.(*ast.BinaryExpr)
	if !ok {
		return v
	}
	other, ok := otherOperators[b.Op]
	if !ok || (b.Op == token.ADD || b.Op == token.SUB) && !v.isNumber(b) || v.isMaximum(b) {
		return v
	}
	number := v.add(n, otherOperator, v.source(b.X)+" "+other.operator.String()+" "+v.source(b.Y))
	off := fmt.Sprintf(") != mutant(%d)", number)
	switch b.Op {
	case token.LAND, token.LOR:
		// a || b is !(!a && !b). The form below is evaluated as lazily as the original.
		v.wrap(b, "((", off+")")
		v.wrap(b.X, "(", off)
		v.wrap(b.Y, "(", off)
	case token.EQL, token.NEQ:
		v.wrap(b, "((", off+")")
	default:
		v.wrap(b, fmt.Sprintf("%s(%d, ", other.function, number), ")")
		v.edits = append(v.edits, edit{offset: v.offset(b.OpPos), removed: len(b.Op.String()), text: ","})
	}
	return v
}

// otherOperators contains the operator that replaces an operator, and the function that computes one of them.
var otherOperators = map[token.Token]struct {
	operator token.Token
	function string
}{
	token.LAND: {token.LOR, ""}, token.LOR: {token.LAND, ""}, token.EQL: {token.NEQ, ""}, token.NEQ: {token.EQL, ""},
	token.LSS: {token.LEQ, "mutantLess"}, token.LEQ: {token.LSS, "mutantAtMost"}, token.GTR: {token.GEQ, "mutantMore"},
	token.GEQ: {token.GTR, "mutantAtLeast"}, token.ADD: {token.SUB, "mutantPlus"}, token.SUB: {token.ADD, "mutantMinus"},
}

func (v visitor) isNumber(n ast.Expr) bool {
	basic, ok := v.TypeOf(n).Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0 && basic.Info()&types.IsComplex == 0
}

// negate adds a negated condition, unless another mutant gives the same result.
func (v visitor) negate(n ast.Expr) {
	if v.isBool(n) && !isEquality(n) && v.Types[n].Value == nil && !v.Types[n].IsType() {
		v.wrap(n, "((", fmt.Sprintf(") != mutant(%d))", v.add(n, "negated condition", "!("+v.source(n)+")")))
	}
}

func isEquality(n ast.Expr) bool {
	b, ok := n.(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

func (v visitor) isBool(n ast.Expr) bool {
	basic, ok := v.TypeOf(n).(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

func (v visitor) changeResults(n *ast.ReturnStmt) {
	if v.results == nil || len(n.Results) != v.results.Len() {
		return
	}
	for i, result := range n.Results {
		switch v.results.At(i).Type().String() {
		case "bool":
			if !isEquality(result) {
				v.wrap(result, "((", fmt.Sprintf(") != mutant(%d))", v.add(result, "negated result", "!("+v.source(result)+")")))
			}
		case "error":
			if !v.Types[result].IsNil() {
				v.wrap(result, fmt.Sprintf("mutantError(%d, ", v.add(result, "dropped error", "nil")), ")")
			}
		}
	}
}

// changeConstant adds two mutants of an integer: 0 and a higher one. A duration is doubled. A duration of 0 becomes a
// second, because one more nanosecond would change nothing.
func (v visitor) changeConstant(n ast.Expr) {
	value := v.Types[n]
	basic, ok := value.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsInteger == 0 || basic.Info()&types.IsUntyped != 0 || basic.Kind() == types.Uint8 ||
		basic.Kind() == types.Rune && strings.HasPrefix(v.source(n), "'") {
		return
	}
	name, ok := v.nameOf(value.Type)
	if !ok {
		return
	}
	isDuration, isZero := value.Type.String() == "time.Duration", value.Value.ExactString() == "0"
	zero, added, changed := 0, "1", v.source(n)+" + 1"
	switch {
	case isDuration && isZero:
		added, changed = "1_000_000_000", "time.Second"
	case isDuration:
		added, changed = value.Value.ExactString(), "2 * "+v.source(n)
	case isZero:
		changed = "1"
	}
	if !isZero {
		zero = v.add(n, "other constant", "0")
	}
	more := v.add(n, "other constant", changed)
	v.wrap(n, fmt.Sprintf("mutantConstant[%s](%d, %d, %s, ", name, zero, more, added), ")")
}

// nameOf returns the name of a type in this file, if the file can name it.
func (v visitor) nameOf(t types.Type) (string, bool) {
	possible := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == v.checked {
			return ""
		}
		for _, spec := range v.file.Imports {
			if strings.Trim(spec.Path.Value, `"`) == p.Path() {
				if spec.Name != nil {
					return spec.Name.Name
				}
				return p.Name()
			}
		}
		possible = false
		return ""
	})
	return name, possible
}

// dropStatements adds mutants that leave out assignments and calls. Declarations remain, because the code after them
// needs them.
func (v visitor) dropStatements(all []ast.Stmt) {
	for _, n := range all {
		switch n := n.(type) {
		case *ast.ExprStmt:
			call, ok := n.X.(*ast.CallExpr)
			if !ok || isReporting(v.packageOf(call)) || v.source(call.Fun) == "panic" {
				continue
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE || v.source(n.Lhs[0]) == "_" || strings.HasSuffix(v.source(n.Lhs[0]), ".Message") {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		v.wrap(n, fmt.Sprintf("if !mutant(%d) { ", v.add(n, "dropped statement", "nothing")), " }")
	}
}
