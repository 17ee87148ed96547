//go:build charts

package api

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"machinist.dev/machinist/test/env"
)

// kubeconform validates the rendered charts against the schemas that the API server publishes. Without strict
// validation, the API server would drop an unknown field and only send a warning.
func TestChartsMatchSchemasOfAPIServer(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(env.Config())
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	writeSchemas(t, text, folder)
	out, err := exec.Command("../../hack/charts.sh", folder).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Invalid: 0, Errors: 0, Skipped: 0") {
		t.Errorf("hack/charts.sh: %v\n%s", err, out)
	}
}

// renderedKinds lists the kinds of the objects in the charts. The test fails for a kind that is missing here, because
// it has no schema.
var renderedKinds = []string{
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Deployment", "FlowSchema",
	"MutatingWebhookConfiguration", "NetworkPolicy", "PersistentVolumeClaim", "PodDisruptionBudget",
	"PriorityLevelConfiguration", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
}

func writeSchemas(t *testing.T, openAPI []byte, folder string) {
	t.Helper()
	var published struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(openAPI, &published); err != nil {
		t.Fatal(err)
	}
	for _, definition := range published.Definitions {
		if definition["format"] == "int-or-string" {
			definition["type"] = []string{"integer", "string"}
			delete(definition, "format")
		}
		_, open := definition["additionalProperties"]
		if _, ok := definition["properties"]; ok && !open {
			definition["additionalProperties"] = false
		}
	}
	for name, definition := range published.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 { // Options of requests, such as DeleteOptions, belong to all groups.
			continue
		}
		kind := kinds[0].(map[string]any)
		if !slices.Contains(renderedKinds, fmt.Sprint(kind["kind"])) {
			continue
		}
		group := kind["group"]
		if group == "" {
			group = kind["version"]
		}
		file := fmt.Sprintf("%s-%s-%s.json", strings.ToLower(fmt.Sprint(kind["kind"])), group, kind["version"])
		schema, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + name, "definitions": published.Definitions})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), schema, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
