package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// readField is a part of self or of oldSelf that a rule reads.
type readField struct {
	old  bool
	path []string
	// presence is set if the rule asks only whether the field is there.
	presence bool
}

// rulesSyntax parses rules. It knows no types and no functions: what a rule reads is said by its syntax alone.
var rulesSyntax = mustEnv(celgo.NewEnv(celgo.OptionalTypes()))

func mustEnv(env *celgo.Env, err error) *celgo.Env {
	if err != nil {
		panic(fmt.Sprintf("prepare to parse rules: %v", err))
	}
	return env
}

// fieldsOf returns all that a rule reads.
func fieldsOf(rule string) []readField {
	parsed, issues := rulesSyntax.Parse(rule)
	if issues.Err() != nil {
		panic(fmt.Sprintf("parse the rule %s: %v", rule, issues.Err()))
	}
	var fields []readField
	var visit func(e ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		if f, ok := asField(e); ok {
			if !slices.ContainsFunc(fields, func(g readField) bool {
				return f.old == g.old && f.presence == g.presence && slices.Equal(f.path, g.path)
			}) {
				fields = append(fields, f)
			}
			return
		}
		for _, child := range e.Children() {
			visit(child)
		}
	}
	visit(ast.NavigateAST(parsed.NativeRep()))
	return fields
}

// asField returns the field of self or oldSelf that an expression is.
func asField(e ast.Expr) (readField, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		return readField{old: name == "oldSelf"}, name == "self" || name == "oldSelf"
	case ast.SelectKind:
		s := e.AsSelect()
		f, ok := asField(s.Operand())
		if !ok {
			return readField{}, false
		}
		return f.below(s.FieldName(), s.IsTestOnly()), true
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.OptSelect {
			return readField{}, false
		}
		f, ok := asField(c.Args()[0])
		if !ok {
			return readField{}, false
		}
		return f.below(fmt.Sprint(c.Args()[1].AsLiteral().Value()), false), true
	}
	return readField{}, false
}

// below returns a field of a field. It panics if rules write its name in another way than values have it.
func (f readField) below(name string, presence bool) readField {
	if strings.Contains(name, "__") {
		panic("a rule with the escaped name " + name)
	}
	return readField{old: f.old, path: append(slices.Clone(f.path), name), presence: presence}
}

// keyOf returns a text that is the same only for values in which the fields are the same.
func keyOf(fields []readField, value, old any) string {
	read := make([]any, len(fields), len(fields)+1)
	for i, f := range fields {
		if f.old {
			read[i] = f.in(old)
		} else {
			read[i] = f.in(value)
		}
	}
	key, err := json.Marshal(append(read, old == nil))
	if err != nil {
		panic(fmt.Sprintf("encode what a rule reads: %v", err))
	}
	return string(key)
}

// in returns what tells the field of a value from others: where it ends if it is not there (a rule that asks for a part
// of what is not there fails), else its value, or only that it is there.
func (f readField) in(value any) []any {
	for depth, name := range f.path {
		object, isObject := value.(map[string]any)
		var ok bool
		if value, ok = object[name]; !ok {
			return []any{depth, isObject}
		}
	}
	if f.presence {
		return nil
	}
	return []any{value}
}
