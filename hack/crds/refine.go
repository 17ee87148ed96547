package main

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// These patterns restrict values of types that the API imports, such as durations and times. A controller must be able
// to read each permitted value and write it back in a permitted form.
const (
	// durationPattern also matches each permitted duration after Go has encoded it again. So fractions of a
	// millisecond are forbidden, because Go writes them in µs, which the pattern does not permit. A sum of 100000h or
	// more is forbidden, because Go would write six digits. So if the hours have five digits, the minutes and the
	// seconds must be below 60.
	durationPattern = `^(([0-9]{1,4}(\.[0-9]{1,3})?h|[0-9]{1,5}(\.[0-9]{1,3})?[ms]|[0-9]{1,5}ms){1,4}` +
		`|[0-9]{5}(\.[0-9]{1,3})?h|[0-9]{5}h[0-5]?[0-9]m([0-5]?[0-9](\.[0-9]{1,3})?s)?)$`
	durationMaxLength = 44

	// timePattern excludes the years 0 and 9999: in another time zone, such a time may have a year that RFC 3339 does
	// not permit.
	timePattern = `^(` + datePattern +
		`)T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	datePattern = `[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))` +
		`|([12][0-9](0[48]|[2468][048]|[13579][26])|(12|16|20|24|28)00)-02-29`
	timeMaxLength = 35

	// quantityPattern permits at most 15 digits and no exponent. Go's parser hangs on 1e999999999999.
	quantityPattern   = `^([0-9]{1,15}|[0-9]{1,12}\.[0-9]{1,3})(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`
	quantityMaxLength = 18
	quantityMaximum   = 999_999_999_999_999

	intOrPercentPattern   = `^(100|[1-9]?[0-9])%$`
	intOrPercentMaxLength = 16
)

// The API server requires these patterns and lengths for labels and taints.
const (
	qualifiedNamePattern   = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	qualifiedNameMaxLength = prefixMaxLength + 1 + 63
	prefixMaxLength        = 253
	labelValuePattern      = `^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	labelValueMaxLength    = 63
	annotationMaxLength    = 16384
)

// int64Maximum is 2^53 - 1. Larger JSON numbers lose digits when decoded as floats.
const int64Maximum = 1<<53 - 1

// refine sets the patterns and bounds of a schema and its fields. path is used in errors.
func refine(s *apiextensionsv1.JSONSchemaProps, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		refineDuration(s)
		return nil
	case reflect.TypeFor[metav1.Time]():
		// If Format were set, the API server would also accept a list.
		s.Format, s.Pattern, s.MaxLength = "", timePattern, ptr(int64(timeMaxLength))
		return nil
	case reflect.TypeFor[resource.Quantity]():
		s.Pattern, s.MaxLength = quantityPattern, ptr(int64(quantityMaxLength))
		s.Minimum, s.Maximum = ptr(0.0), ptr(float64(quantityMaximum))
		return nil
	case reflect.TypeFor[intstr.IntOrString]():
		s.Pattern, s.MaxLength = intOrPercentPattern, ptr(int64(intOrPercentMaxLength))
		s.Minimum, s.Maximum = ptr(0.0), ptr(float64(math.MaxInt32))
		return nil
	case reflect.TypeFor[runtime.RawExtension]():
		return nil
	case reflect.TypeFor[corev1.Taint]():
		bound(s, "key", qualifiedNamePattern, qualifiedNameMaxLength)
		bound(s, "value", labelValuePattern, labelValueMaxLength)
		enumerate(s, "effect", string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule),
			string(corev1.TaintEffectNoExecute))
	case reflect.TypeFor[corev1.NodeAddress]():
		bound(s, "type", "", 63)
		bound(s, "address", "", 253)
	case reflect.TypeFor[metav1.LabelSelector]():
		refineSelector(s)
	case reflect.TypeFor[metav1.LabelSelectorRequirement]():
		refineRequirement(s)
	}
	return refineByKind(s, t, path)
}

func refineByKind(s *apiextensionsv1.JSONSchemaProps, t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.Struct:
		return refineStruct(s, t, path)
	case reflect.Slice:
		if s.MaxItems == nil {
			return fmt.Errorf("%s has no maxItems", path)
		}
		return refine(s.Items.Schema, t.Elem(), path+"[]")
	case reflect.Map:
		if s.MaxProperties == nil {
			return fmt.Errorf("%s has no maxProperties", path)
		}
		refineMap(s, path)
		return refine(s.AdditionalProperties.Schema, t.Elem(), path+"{}")
	case reflect.String:
		if s.MaxLength == nil && len(s.Enum) == 0 {
			return fmt.Errorf("%s has neither maxLength nor enum", path)
		}
	case reflect.Int32:
		s.Maximum = orDefault(s.Maximum, math.MaxInt32)
	case reflect.Int64:
		s.Maximum = orDefault(s.Maximum, int64Maximum)
	case reflect.Bool:
	default:
		return fmt.Errorf("%s: no rule for a Go %s", path, t)
	}
	return nil
}

func refineStruct(s *apiextensionsv1.JSONSchemaProps, t reflect.Type, path string) error {
	for name, property := range s.Properties {
		field, ok := fieldByJSONName(t, name)
		if !ok {
			return fmt.Errorf("%s: %s has no field %s", path, t, name)
		}
		if err := refine(&property, field.Type, path+"."+name); err != nil {
			return err
		}
		s.Properties[name] = property
	}
	return nil
}

// refineMap sets the bounds of keys and values. All maps contain labels, annotations or resources.
func refineMap(s *apiextensionsv1.JSONSchemaProps, path string) {
	s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
		Rule:    fmt.Sprintf("self.all(k, k.matches(r'%s') && k.indexOf('/') <= %d)", qualifiedNamePattern, prefixMaxLength),
		Message: "every key must be a qualified name, such as name or example.com/name",
	})
	value := s.AdditionalProperties.Schema
	switch path[strings.LastIndex(path, ".")+1:] {
	case "labels", "matchLabels":
		value.Pattern, value.MaxLength = labelValuePattern, ptr(int64(labelValueMaxLength))
	case "annotations":
		value.MaxLength = ptr(int64(annotationMaxLength))
	}
}

func refineDuration(s *apiextensionsv1.JSONSchemaProps) {
	s.Pattern, s.MaxLength = durationPattern, ptr(int64(durationMaxLength))
}

// durationRule requires a value that matches durationPattern. The error message of the rule is easier to read than
// that of a pattern.
var durationRule = apiextensionsv1.ValidationRule{
	Rule:    "self.matches(r'" + durationPattern + "')",
	Message: "must be a duration below 100000h such as 90s, 5m or 1h30m: numbers with the units h, m, s and ms, without a sign",
}

// explainDurations replaces durationPattern with durationRule for a readable error. A validation rule makes every write
// more expensive, even a write of the status. The schema of Machines keeps the pattern, because users rarely write
// Machines.
func explainDurations(s *apiextensionsv1.JSONSchemaProps) {
	if s.Pattern == durationPattern {
		s.Pattern, s.XValidations = "", append(s.XValidations, durationRule)
	}
	for name, property := range s.Properties {
		explainDurations(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		explainDurations(s.Items.Schema)
	}
}

func isDuration(s apiextensionsv1.JSONSchemaProps) bool {
	return s.Pattern == durationPattern || slices.ContainsFunc(s.XValidations,
		func(r apiextensionsv1.ValidationRule) bool { return r.Rule == durationRule.Rule })
}

func refineSelector(s *apiextensionsv1.JSONSchemaProps) {
	labels := s.Properties["matchLabels"]
	labels.MaxProperties = ptr(int64(32))
	s.Properties["matchLabels"] = labels

	expressions := s.Properties["matchExpressions"]
	expressions.MaxItems = ptr(int64(32))
	s.Properties["matchExpressions"] = expressions
}

func refineRequirement(s *apiextensionsv1.JSONSchemaProps) {
	bound(s, "key", qualifiedNamePattern, qualifiedNameMaxLength)
	enumerate(s, "operator", string(metav1.LabelSelectorOpIn), string(metav1.LabelSelectorOpNotIn),
		string(metav1.LabelSelectorOpExists), string(metav1.LabelSelectorOpDoesNotExist))

	values := s.Properties["values"]
	values.MaxItems = ptr(int64(64))
	values.Items.Schema.Pattern, values.Items.Schema.MaxLength = labelValuePattern, ptr(int64(labelValueMaxLength))
	s.Properties["values"] = values

	s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
		Rule:      "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
		Message:   "values must be set with operator In and NotIn, and only then",
		FieldPath: ".values",
	})
}

func bound(s *apiextensionsv1.JSONSchemaProps, property, pattern string, maxLength int64) {
	p := s.Properties[property]
	p.Pattern, p.MaxLength = pattern, &maxLength
	s.Properties[property] = p
}

func enumerate(s *apiextensionsv1.JSONSchemaProps, property string, values ...string) {
	p := s.Properties[property]
	for _, v := range values {
		p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", v)})
	}
	s.Properties[property] = p
}

// fieldByJSONName also searches inlined structs.
func fieldByJSONName(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, field := range reflect.VisibleFields(t) {
		if tagged, _, _ := strings.Cut(field.Tag.Get("json"), ","); tagged == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

func orDefault(value *float64, fallback float64) *float64 {
	if value == nil {
		return &fallback
	}
	return value
}

func ptr[T any](v T) *T { return &v }
