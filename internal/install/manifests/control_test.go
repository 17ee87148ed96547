package manifests

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/charts"
	"machinist.dev/machinist/internal/class/bootstrap"
)

// The chart only adds labels to the definitions in config/crd.
func TestChartInstallsGeneratedCRDs(t *testing.T) {
	files, err := filepath.Glob("../../../config/crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	crds := CRDs()
	if len(crds) != len(files) {
		t.Fatalf("%d CRDs, want the %d of config/crd", len(crds), len(files))
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, want); err != nil {
			t.Fatal(err)
		}
		want.Labels = crds[i].Labels
		if diff := cmp.Diff(want, crds[i]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// The charts have the rules of config/rbac with concrete names.
func TestChartsHaveRolesOfConfig(t *testing.T) {
	for _, role := range []Role{ManagerControl, ManagerTarget, ProviderControl, ProviderTarget, MetricsReader,
		ClusterAutoscaler} {
		text, err := os.ReadFile("../../../config/rbac/" + string(role) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var want []client.Object
		for document := range strings.SplitSeq(strings.ReplaceAll(string(text), "PROVIDER", "azure"), "---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			r := &rbacv1.Role{}
			if err := yaml.UnmarshalStrict([]byte(document), r); err != nil {
				t.Fatal(err)
			}
			var object client.Object = r
			if r.Kind == "ClusterRole" {
				object = &rbacv1.ClusterRole{TypeMeta: r.TypeMeta, ObjectMeta: r.ObjectMeta, Rules: r.Rules}
			}
			want = append(want, object)
		}
		got := role.Objects("azure", "")
		for _, object := range got {
			object.SetLabels(nil)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
}

// Releases of different providers, or for different namespaces, must not contain the same object. Shared objects belong
// to the chart machinist.
func TestReleasesOfProvidersDoNotOverlap(t *testing.T) {
	owner := map[string]string{}
	for name, values := range map[string]string{
		"sim": "provider: {name: sim}", "azure": "provider: {name: azure}",
		"openstack": "provider: {name: openstack}", "libvirt": "provider: {name: libvirt}",
		"vsphere": "provider: {name: vsphere}",
	} {
		for _, o := range mustRender(RenderProvider(Release{Name: name, Namespace: Namespace, Values: parse(values)})) {
			key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if other := owner[key]; other != "" {
				t.Errorf("%s and %s both have %s", name, other, key)
			}
			owner[key] = name
		}
	}
	for _, namespace := range []string{"a", "b"} {
		values := parse("{provider: {name: sim}, webhook: {enabled: false}, watchNamespace: " + namespace + ", clusterID: x}")
		release := Release{Name: "sim", Namespace: "system-" + namespace, Values: values}
		for _, o := range mustRender(RenderProvider(release)) {
			key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if other := owner[key]; other != "" {
				t.Errorf("the releases for the namespaces %s and %s both have %s", namespace, other, key)
			}
			owner[key] = namespace
		}
	}
}

// A policy without a binding that denies has no effect.
func TestEveryPolicyIsBound(t *testing.T) {
	bound := map[string]bool{}
	var all []string
	for _, object := range slices.Concat(Policies(), MigrationPolicies("sim", "default")) {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			all = append(all, o.Name)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound[o.Spec.PolicyName] = slices.Contains(o.Spec.ValidationActions, admissionv1.Deny)
		}
	}
	if len(all) != 17 {
		t.Errorf("policies are %q, want 17", all)
	}
	for _, name := range all {
		if !bound[name] {
			t.Errorf("policy %s has no binding that denies", name)
		}
	}
}

// An API server ignores a FlowSchema whose priority level does not exist.
func TestPriorityLevelsOfFlowSchemasExist(t *testing.T) {
	// Every API server has the priority level leader-election by default.
	levels := map[string]bool{"leader-election": true}
	schemas := 0
	for _, object := range FlowControl() {
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels[o.Name] = true
		case *flowcontrolv1.FlowSchema:
			schemas++
			if level := o.Spec.PriorityLevelConfiguration.Name; !levels[level] {
				t.Errorf("flow schema %s has the priority level %s, which is not created before it", o.Name, level)
			}
		}
	}
	if schemas != 2 {
		t.Errorf("%d flow schemas, want one for leases and one for the rest", schemas)
	}
}

// Each webhook needs its own Service, whose pods serve the webhook. No webhook may apply to kube-system.
//
// Rule: works-without-webhooks.
func TestWebhooksHaveServices(t *testing.T) {
	services := map[string]*corev1.Service{}
	everything := slices.Concat(
		mustRender(toTyped(RenderMachinist(Release{Name: "m", Namespace: Namespace}))),
		mustRender(toTyped(RenderProvider(Release{Name: "p", Namespace: Namespace,
			Values: parse("provider: {name: sim}")}))))
	for _, service := range only[*corev1.Service](everything) {
		services[service.Name] = service
	}
	for name, configuration := range map[string]*admissionv1.ValidatingWebhookConfiguration{
		"machinist-manager": ManagerWebhook(""), "machinist-provider-sim": ProviderWebhook("sim", ""),
	} {
		if configuration.Name != name || len(configuration.Webhooks) == 0 {
			t.Errorf("%s has %d webhooks, want those of %s", configuration.Name, len(configuration.Webhooks), name)
		}
		service := services[name]
		if service == nil || service.Spec.Ports[0].Port != 443 || service.Spec.Selector["app.kubernetes.io/name"] != name {
			t.Errorf("the Service of %s is %+v", name, service)
		}
		for _, webhook := range configuration.Webhooks {
			to := webhook.ClientConfig.Service
			if to == nil || to.Name != name || to.Namespace != Namespace {
				t.Errorf("webhook %s goes to %+v", webhook.Name, to)
			}
			if s := webhook.NamespaceSelector; s == nil || len(s.MatchExpressions) != 1 ||
				!slices.Contains(s.MatchExpressions[0].Values, "kube-system") {
				t.Errorf("webhook %s applies to the namespaces %+v", webhook.Name, s)
			}
			if webhook.ClientConfig.CABundle != nil {
				t.Errorf("webhook %s has a bundle, but its process writes the bundle", webhook.Name)
			}
		}
	}
	mutating := ManagerMutatingWebhook("")
	if to := mutating.Webhooks[0].ClientConfig.Service; mutating.Name != "machinist-manager" || to == nil ||
		to.Name != "machinist-manager" || to.Path == nil || *to.Path != "/mutate" {
		t.Errorf("the mutating webhook of %s goes to %+v", mutating.Name, to)
	}
	if url := ManagerMutatingWebhook("https://localhost:9443/").Webhooks[0].ClientConfig.URL; url == nil ||
		*url != "https://localhost:9443/mutate" {
		t.Errorf("with a URL, the mutating webhook calls %v", url)
	}
	at := ProviderWebhook("sim", "https://localhost:9443/").Webhooks[0].ClientConfig
	if at.Service != nil || at.URL == nil || *at.URL != "https://localhost:9443/validate" {
		t.Errorf("with a URL, the webhook calls %+v", at)
	}
}

// A Secret stores the group of bootstrap tokens in base64. A policy cannot encode base64.
func TestProcessPolicyHasEncodedTokenGroup(t *testing.T) {
	text, err := charts.Files.ReadFile("machinist/templates/policies/processes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := base64.StdEncoding.EncodeToString([]byte(bootstrap.Group)); !strings.Contains(string(text), want) {
		t.Errorf("the policy does not have %s, which is %s", want, bootstrap.Group)
	}
}

// The policies recognize the processes by their namespace. With namespaceOverride, no object may contain the namespace
// of the release.
func TestNamespaceOverrideReplacesNamespaceOfRelease(t *testing.T) {
	values := "{namespaceOverride: other, operator: {enabled: true}, metrics: {prometheusRule: {enabled: true}}}"
	machinist := mustRender(RenderMachinist(Release{Name: "m", Namespace: "of-release", Values: parse(values)}))
	values = "{namespaceOverride: other, provider: {name: sim}, migrator: {enabled: true, namespaces: [fleet]}}"
	provider := mustRender(RenderProvider(Release{Name: "p", Namespace: "of-release", Values: parse(values)}))
	for _, object := range slices.Concat(machinist, provider) {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "of-release") {
			t.Errorf("%s %s contains the namespace of the release", object.GetKind(), object.GetName())
		}
	}
}

// Helm reads no files outside of a chart. Each schema repeats the shared definitions.
func TestChartSchemasAgree(t *testing.T) {
	definitions := func(path string) map[string]any {
		text, err := os.ReadFile("../../../charts/" + path + "/values.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		var schema struct {
			Definitions map[string]any `json:"$defs"`
		}
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		return schema.Definitions
	}
	first := definitions("machinist")
	for _, other := range []string{"machinist-provider", "simcloud"} {
		for name, definition := range definitions(other) {
			if diff := cmp.Diff(first[name], definition); diff != "" {
				t.Errorf("%s: $defs.%s differs from that of machinist (-machinist +%s):\n%s", other, name, other, diff)
			}
		}
	}
}
