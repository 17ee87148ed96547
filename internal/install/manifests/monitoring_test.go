package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestChartInstallsGeneratedAlertsAndDashboards(t *testing.T) {
	const folder = "../../../config/monitoring/"
	render := func(values string) (rules []unstructured.Unstructured, dashboards map[string]*unstructured.Unstructured) {
		t.Helper()
		objects, err := RenderMachinist(Release{Name: "machinist", Namespace: "monitored", Values: parse(values)})
		if err != nil {
			t.Fatal(err)
		}
		dashboards = map[string]*unstructured.Unstructured{}
		for _, object := range objects {
			switch object.GetKind() {
			case "PrometheusRule":
				rules = append(rules, *object)
			case "ConfigMap":
				dashboards[object.GetName()] = object
			}
		}
		return rules, dashboards
	}
	if rules, dashboards := render("{}"); len(rules)+len(dashboards) > 0 {
		t.Errorf("by default there are %d rules and %d dashboards", len(rules), len(dashboards))
	}
	rules, dashboards := render(`
metrics:
  prometheusRule: {enabled: true, labels: {release: prometheus}, runbookURL: "https://wiki.example.com/"}
  dashboards: {enabled: true, annotations: {grafana_folder: Machinist}}
`)
	content, err := os.ReadFile(folder + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	text := strings.ReplaceAll(string(content), "https://machinist.dev/docs/runbooks/", "https://wiki.example.com/")
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if len(rules) != 1 || rules[0].GetNamespace() != "monitored" || rules[0].GetLabels()["release"] != "prometheus" {
		t.Fatalf("the rules are %v", rules)
	}
	if diff := cmp.Diff(any(want), rules[0].Object["spec"]); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
	files, err := filepath.Glob(folder + "dashboards/*.json")
	if err != nil || len(files) == 0 || len(files) != len(dashboards) {
		t.Fatalf("%d files have become %d dashboards: %v", len(files), len(dashboards), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		object := dashboards[strings.TrimSuffix(name, ".json")+"-dashboard"]
		if object == nil {
			t.Errorf("there is no ConfigMap for %s", file)
			continue
		}
		data, _, _ := unstructured.NestedString(object.Object, "data", name)
		if data != string(content) || object.GetLabels()["grafana_dashboard"] != "1" ||
			object.GetAnnotations()["grafana_folder"] != "Machinist" {
			t.Errorf("%s differs from the file, or lacks the label for Grafana: %v", object.GetName(), object.GetLabels())
		}
	}
}
