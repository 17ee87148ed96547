package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
)

// specFile is a Go file with the type Spec of a providerSpec, and the constants APIVersion and Kind.
type specFile struct{ path, page string }

// specFiles define the documented providerSpecs, in document order.
var specFiles = []specFile{
	{"providers/azure/machine/spec.go", "azure.md"},
	{"providers/libvirt/machine/spec.go", "libvirt.md"},
	{"providers/openstack/machine/spec.go", "openstack.md"},
	{"providers/vsphere/machine/spec.go", "vsphere.md"},
	{"simcloud/driver/spec.go", "simulated-cloud.md"},
}

// specTypes contains the name that the document uses for each basic type of Go.
var specTypes = map[string]string{"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer",
	"float64": "number"}

type providerSpec struct {
	files     token.FileSet
	constants map[string]string
	types     map[string]ast.Expr
	rows      []specField
}

type specField struct{ path, kind, meaning string }

func specsDocument(root string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Fields of providerSpecs\n\nGenerated from the Go types by `hack/generate.sh`. ")
	out.WriteString("`spec.providerSpec` of a MachineClass has these fields, depending on `spec.provider`. ")
	out.WriteString("Each also has `apiVersion` and `kind`.\n")
	for _, f := range specFiles {
		p := &providerSpec{constants: map[string]string{}, types: map[string]ast.Expr{}}
		if err := p.read(filepath.Join(root, f.path)); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "\n## %s\n\napiVersion `%s`. See [the page of the provider](../%s).\n", p.constants["Kind"],
			p.constants["APIVersion"], f.page)
		out.WriteString("\n| Field | Type | Meaning |\n| --- | --- | --- |\n")
		for _, row := range p.rows {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", row.path, row.kind, cell(row.meaning))
		}
	}
	return out.Bytes(), nil
}

// read parses a Go file, and stores its constants, its types, and the fields of its type Spec.
func (p *providerSpec) read(path string) error {
	file, err := parser.ParseFile(&p.files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	r := &reader{api: map[string]string{}}
	for _, decl := range file.Decls {
		group, isGroup := decl.(*ast.GenDecl)
		if !isGroup {
			continue
		}
		for _, spec := range group.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				p.types[spec.Name.Name] = spec.Type
			case *ast.ValueSpec:
				if group.Tok != token.CONST || len(spec.Values) != 1 {
					continue
				}
				if value, known := r.value(spec.Values[0]); known {
					p.constants[spec.Names[0].Name] = value
				}
			}
		}
	}
	fields, isStruct := p.types["Spec"].(*ast.StructType)
	if !isStruct || p.constants["Kind"] == "" || p.constants["APIVersion"] == "" {
		return fmt.Errorf("%s: the struct Spec or the constant Kind or APIVersion is missing", path)
	}
	return p.addFields("", fields)
}

// addFields adds rows for the fields of a struct and its nested structs. path is a prefix that is empty or ends with a
// dot.
func (p *providerSpec) addFields(path string, of *ast.StructType) error {
	for _, field := range of.Fields.List {
		if len(field.Names) != 1 || field.Tag == nil {
			return fmt.Errorf("%s: a field must have a name and a tag", p.files.Position(field.Pos()))
		}
		goName := field.Names[0].Name
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		if path == "" && (name == "apiVersion" || name == "kind") {
			continue
		}
		meaning, found := strings.CutPrefix(text(field.Doc), goName+" ")
		if !found {
			return fmt.Errorf("%s: %s needs a comment that begins with its name", p.files.Position(field.Pos()), goName)
		}
		meaning = strings.TrimPrefix(strings.TrimPrefix(meaning, "is "), "are ")
		kind, fields := p.typeOf(field.Type)
		p.rows = append(p.rows, specField{path + name, kind, sentence(meaning)})
		if fields != nil {
			if err := p.addFields(path+name+".", fields); err != nil {
				return err
			}
		}
	}
	return nil
}

// typeOf returns the name that the document uses for a type. If the type is a struct, a pointer to a struct or a list
// of structs, typeOf also returns the struct.
func (p *providerSpec) typeOf(expression ast.Expr) (name string, fields *ast.StructType) {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return p.typeOf(e.X)
	case *ast.ArrayType:
		name, fields = p.typeOf(e.Elt)
		return "list of " + name, fields
	case *ast.MapType:
		name, _ = p.typeOf(e.Value)
		return "map of " + name, nil
	case *ast.StructType:
		return "object", e
	case *ast.Ident:
		if defined := p.types[e.Name]; defined != nil {
			return p.typeOf(defined)
		}
		return specTypes[e.Name], nil
	}
	return "", nil
}
