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

type readField struct {
	old  bool
	path []string
	// presence means that the rule checks only whether the field exists.
	presence bool
}

// rulesSyntax parses CEL rules, but does not check types and functions. The fields that a rule reads are visible in its
// syntax tree.
var rulesSyntax = mustEnv(celgo.NewEnv(celgo.OptionalTypes()))

func mustEnv(env *celgo.Env, err error) *celgo.Env {
	if err != nil {
		panic(fmt.Sprintf("create the parser for rules: %v", err))
	}
	return env
}

func fieldsOf(rule string) []readField {
	parsed, issues := rulesSyntax.Parse(rule)
	if issues.Err() != nil {
		panic(fmt.Sprintf("parse rule %s: %v", rule, issues.Err()))
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
		return f.child(s.FieldName(), s.IsTestOnly()), true
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.OptSelect {
			return readField{}, false
		}
		f, ok := asField(c.Args()[0])
		if !ok {
			return readField{}, false
		}
		return f.child(fmt.Sprint(c.Args()[1].AsLiteral().Value()), false), true
	}
	return readField{}, false
}

func (f readField) child(name string, presence bool) readField {
	if strings.Contains(name, "__") {
		panic("a rule contains the escaped name " + name)
	}
	return readField{old: f.old, path: append(slices.Clone(f.path), name), presence: presence}
}

func keyOf(fields []readField, value, old any) string {
	read := make([]any, len(fields), len(fields)+1)
	for i, f := range fields {
		if f.old {
			read[i] = f.keyPart(old)
		} else {
			read[i] = f.keyPart(value)
		}
	}
	key, err := json.Marshal(append(read, old == nil))
	if err != nil {
		panic(fmt.Sprintf("encode the fields of a rule: %v", err))
	}
	return string(key)
}

// keyPart returns the part of a cache key that represents one field of a value. If the field is missing, the key part
// contains the index of the first missing path element. The rule may fail differently for each index.
func (f readField) keyPart(value any) []any {
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
