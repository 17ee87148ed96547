package manifests

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The README of a chart documents exactly the values of values.yaml and of the schema. Fields of an object may be
// documented together.
func TestValuesAreDocumentedAndInSchema(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\w+ \\| .+ \\| (.*) \\|$")
	for _, chart := range []string{"machinist", "machinist-provider", "simcloud"} {
		read := func(file string) []byte {
			text, err := os.ReadFile("../../../charts/" + chart + "/" + file)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		var values map[string]any
		if err := yaml.UnmarshalStrict(read("values.yaml"), &values); err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		if err := json.Unmarshal(read("values.schema.json"), &schema); err != nil {
			t.Fatal(err)
		}
		var documented []string
		for _, match := range row.FindAllStringSubmatch(string(read("README.md")), -1) {
			documented = append(documented, match[1])
			if strings.TrimSpace(match[2]) == "" {
				t.Errorf("%s: the value %s has no meaning in README.md", chart, match[1])
			}
		}
		existing := pathsOfValues("", values)
		for _, path := range documented {
			if !slices.Contains(existing, path) {
				t.Errorf("%s: README.md documents the value %s, which values.yaml does not contain", chart, path)
			}
		}
		sources := map[string][]string{"values.yaml": existing, "values.schema.json": pathsOfSchema("", schema, schema)}
		for source, paths := range sources {
			for _, path := range paths {
				known := slices.ContainsFunc(documented, func(d string) bool {
					return path == d || strings.HasPrefix(path, d+".") || strings.HasPrefix(d, path+".")
				})
				if !known && path != "global" { // Helm passes global values to every chart.
					t.Errorf("%s: README.md does not document the value %s of %s", chart, path, source)
				}
			}
		}
	}
}

func pathsOfValues(parent string, values map[string]any) (paths []string) {
	for key, value := range values {
		path := strings.TrimPrefix(parent+"."+key, ".")
		paths = append(paths, path)
		if fields, ok := value.(map[string]any); ok {
			paths = append(paths, pathsOfValues(path, fields)...)
		}
	}
	return paths
}

func pathsOfSchema(parent string, schema, root map[string]any) (paths []string) {
	if ref, ok := schema["$ref"].(string); ok {
		definitions, _ := root["$defs"].(map[string]any)
		schema, _ = definitions[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, property := range properties {
		path := strings.TrimPrefix(parent+"."+key, ".")
		paths = append(paths, path)
		if fields, ok := property.(map[string]any); ok {
			paths = append(paths, pathsOfSchema(path, fields, root)...)
		}
	}
	return paths
}
