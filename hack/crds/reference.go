package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// machineTemplate is the field in which sets and deployments repeat the spec of a Machine.
const machineTemplate = "spec.template.spec"

// renderReference writes one Markdown table for each kind.
func renderReference(crds []*apiextensionsv1.CustomResourceDefinition) []byte {
	var out strings.Builder
	out.WriteString("# API reference\n\n")
	out.WriteString("Generated from the CustomResourceDefinitions by `hack/generate.sh`. ")
	out.WriteString("The API server enforces defaults and bounds. The tables use these names of types:\n\n")
	out.WriteString("- **duration**: numbers with the units h, m, s, ms, such as `1h30m` or `0.5s`, below 100000h.\n")
	out.WriteString("- **time**: RFC 3339 with a zone, such as `2026-08-01T12:00:00Z`.\n")
	out.WriteString("- **quantity**: a number with at most 15 digits and a unit, such as `4`, `1500m` or `16Gi`.\n")
	out.WriteString("- **number or percentage**: `3` or `\"25%\"`, at most 100%.\n")
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			renderKind(&out, crd, version)
		}
	}
	return []byte(out.String())
}

func renderKind(out *strings.Builder, crd *apiextensionsv1.CustomResourceDefinition,
	version apiextensionsv1.CustomResourceDefinitionVersion) {
	names, root := crd.Spec.Names, version.Schema.OpenAPIV3Schema
	fmt.Fprintf(out, "\n## %s\n\n%s\n\n", names.Kind, oneLine(root.Description))
	fmt.Fprintf(out, "apiVersion `%s/%s`, resource `%s`", crd.Spec.Group, version.Name, names.Plural)
	if len(names.ShortNames) > 0 {
		fmt.Fprintf(out, ", short name `%s`", strings.Join(names.ShortNames, "`, `"))
	}
	if version.Subresources != nil && version.Subresources.Scale != nil {
		out.WriteString(", with the subresource `scale`")
	}
	out.WriteString(".\n")
	for _, rule := range root.XValidations {
		fmt.Fprintf(out, "\n- %s\n", oneLine(rule.Message))
	}
	out.WriteString("\n| Field | Type | Meaning |\n| --- | --- | --- |\n")
	for _, name := range []string{"spec", "status"} {
		renderField(out, root.Properties[name], name, slices.Contains(root.Required, name))
	}
}

func renderField(out *strings.Builder, s apiextensionsv1.JSONSchemaProps, path string, required bool) {
	if path == machineTemplate {
		fmt.Fprintf(out, "| `%s` | object | The same as `spec` of a [Machine](#machine). Required. |\n", path)
		return
	}
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", path, cell(typeName(s)), cell(meaning(s, required)))
	switch {
	case strings.HasSuffix(path, ".conditions"):
		return // Conditions have the same fields in all Kubernetes APIs.
	case s.Items != nil:
		renderProperties(out, *s.Items.Schema, path+"[]")
	default:
		renderProperties(out, s, path)
	}
}

func renderProperties(out *strings.Builder, s apiextensionsv1.JSONSchemaProps, path string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		renderField(out, s.Properties[name], path+"."+name, slices.Contains(s.Required, name))
	}
}

func typeName(s apiextensionsv1.JSONSchemaProps) string {
	switch {
	case isDuration(s):
		return "duration"
	case s.Pattern == timePattern:
		return "time"
	case s.Pattern == quantityPattern:
		return "quantity"
	case s.Pattern == intOrPercentPattern:
		return "number or percentage"
	case s.Items != nil:
		return "list of " + typeName(*s.Items.Schema)
	case s.AdditionalProperties != nil:
		return "map of " + typeName(*s.AdditionalProperties.Schema)
	}
	return s.Type
}

func meaning(s apiextensionsv1.JSONSchemaProps, required bool) string {
	parts := []string{oneLine(s.Description)}
	if required && !strings.HasPrefix(s.Description, "Required.") {
		parts = append(parts, "Required.")
	}
	if s.Default != nil && string(s.Default.Raw) != "{}" && !strings.Contains(s.Description, "Defaults to") {
		parts = append(parts, fmt.Sprintf("Default: `%s`.", s.Default.Raw))
	}
	parts = append(parts, bounds(s)...)
	if s.Items != nil {
		parts = append(parts, bounds(*s.Items.Schema)...)
	}
	for _, rule := range slices.Concat(s.XValidations, itemRules(s)) {
		if s.AdditionalProperties == nil && typeName(s) != "duration" {
			parts = append(parts, "Rule: "+oneLine(rule.Message)+".")
		}
	}
	return strings.Join(parts, " ")
}

func itemRules(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.ValidationRules {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema.XValidations
}

func bounds(s apiextensionsv1.JSONSchemaProps) []string {
	var parts []string
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, "`"+string(v.Raw)+"`")
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	if s.Type == "integer" {
		if s.Minimum != nil {
			parts = append(parts, fmt.Sprintf("At least %.0f.", *s.Minimum))
		}
		if s.Maximum != nil && *s.Maximum < math.MaxInt32 {
			parts = append(parts, fmt.Sprintf("At most %.0f.", *s.Maximum))
		}
	}
	if s.Type == "string" && typeName(s) == "string" {
		if s.MaxLength != nil {
			parts = append(parts, fmt.Sprintf("At most %d characters.", *s.MaxLength))
		}
		if s.Pattern != "" {
			parts = append(parts, fmt.Sprintf("Pattern: `%s`.", s.Pattern))
		}
	}
	if s.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("At most %d items.", *s.MaxItems))
	}
	if s.MaxProperties != nil {
		parts = append(parts, fmt.Sprintf("At most %d entries.", *s.MaxProperties))
	}
	return parts
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
