package decode

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/internal/install/manifests"
)

// The validation includes the estimated cost of the CEL rules.
func TestAPIServerAcceptsCRDs(t *testing.T) {
	for _, crd := range manifests.CRDs() {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			internal := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
				internal, nil); err != nil {
				t.Fatalf("convert: %v", err)
			}
			internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal) {
				t.Error(err)
			}
		})
	}
}

// The parser of such a Go type rejects some strings. Each field of the type needs a pattern that admits only strings
// that the parser accepts.
func TestFieldsWithAParserHaveAPattern(t *testing.T) {
	found := map[reflect.Type]int{}
	for _, k := range loadKinds(t) {
		eachField(t, k, func(path string, s apiextensionsv1.JSONSchemaProps, goType reflect.Type) {
			if !reflect.PointerTo(goType).Implements(reflect.TypeFor[json.Unmarshaler]()) {
				return
			}
			found[goType]++
			if goType == reflect.TypeFor[runtime.RawExtension]() {
				if s.Type != "object" || s.XPreserveUnknownFields == nil {
					t.Errorf("%s: not an object that preserves unknown fields", path)
				}
				return
			}
			s.Pattern = patternOf(s)
			if s.Pattern == "" {
				t.Errorf("%s: no pattern for type %s", path, goType)
				return
			}
			if s.Format != "" {
				t.Errorf("%s: the API server accepts a list in place of a string with format %s", path, s.Format)
			}
			requireParserAcceptsPattern(t, path, s, goType)
		})
	}
	for _, name := range []string{"Duration", "Time", "Quantity", "IntOrString", "RawExtension"} {
		missing := true
		for goType := range found {
			missing = missing && goType.Name() != name
		}
		if missing {
			t.Errorf("found no field of type %s: the test may no longer visit all fields", name)
		}
	}
}

func patternOf(s apiextensionsv1.JSONSchemaProps) string {
	for _, rule := range s.XValidations {
		if inner, isPattern := strings.CutPrefix(rule.Rule, "self.matches(r'"); isPattern {
			return strings.TrimSuffix(inner, "')")
		}
	}
	return s.Pattern
}

func requireParserAcceptsPattern(t *testing.T, path string, s apiextensionsv1.JSONSchemaProps, goType reflect.Type) {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		text := samplePattern(t, r, s.Pattern)
		body, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, reflect.New(goType).Interface()); err != nil {
			t.Errorf("%s: the pattern admits %s, but Go cannot parse it: %v", path, text, err)
		}
	}
}

func TestFieldsHaveLimits(t *testing.T) {
	for _, k := range loadKinds(t) {
		eachField(t, k, func(path string, s apiextensionsv1.JSONSchemaProps, _ reflect.Type) {
			switch {
			case s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0:
				t.Errorf("%s: a string without maxLength or enum", path)
			case s.Type == "integer" && (s.Maximum == nil || s.Minimum == nil):
				t.Errorf("%s: an integer without minimum or maximum", path)
			case s.XIntOrString && (s.Maximum == nil || s.Minimum == nil || s.MaxLength == nil):
				t.Errorf("%s: a number or string without minimum, maximum or maxLength", path)
			case s.Type == "array" && s.MaxItems == nil:
				t.Errorf("%s: a list without maxItems", path)
			case s.Type == "array" && s.XListType == nil:
				t.Errorf("%s: a list without a type for server-side apply", path)
			case s.AdditionalProperties != nil && s.MaxProperties == nil:
				t.Errorf("%s: a map without maxProperties", path)
			}
		})
	}
}

func TestFieldsHaveDescriptions(t *testing.T) {
	for _, k := range loadKinds(t) {
		eachField(t, k, func(path string, s apiextensionsv1.JSONSchemaProps, _ reflect.Type) {
			if s.Description == "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") {
				t.Errorf("%s has no description", path)
			}
		})
	}
}

func eachField(t *testing.T, k kind, visit func(path string, s apiextensionsv1.JSONSchemaProps, goType reflect.Type)) {
	t.Helper()
	var walk func(path string, s apiextensionsv1.JSONSchemaProps, goType reflect.Type)
	walk = func(path string, s apiextensionsv1.JSONSchemaProps, goType reflect.Type) {
		for goType.Kind() == reflect.Pointer {
			goType = goType.Elem()
		}
		visit(path, s, goType)
		switch {
		case s.Items != nil:
			walk(path+"[]", *s.Items.Schema, goType.Elem())
		case s.AdditionalProperties != nil:
			walk(path+"{}", *s.AdditionalProperties.Schema, goType.Elem())
		case len(s.Properties) > 0:
			for i := range goType.NumField() {
				field := goType.Field(i)
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				property, ok := s.Properties[name]
				if !ok {
					t.Errorf("%s: the schema lacks %s.%s", path, goType, field.Name)
					continue
				}
				walk(path+"."+name, property, field.Type)
			}
			if len(s.Properties) != goType.NumField() {
				t.Errorf("%s: the schema has %d fields, %s has %d", path, len(s.Properties), goType, goType.NumField())
			}
		}
	}
	for _, name := range []string{"Spec", "Status"} {
		field, _ := k.goType.FieldByName(name)
		walk(k.name+"."+strings.ToLower(name), k.schema.Properties[strings.ToLower(name)], field.Type)
	}
}
