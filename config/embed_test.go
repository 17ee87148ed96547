package config

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"machinist.dev/machinist/internal/bootstrap"
	"machinist.dev/machinist/internal/manifest"
)

func TestAllKindsAreEmbedded(t *testing.T) {
	var kinds []string
	for _, crd := range CRDs() {
		kinds = append(kinds, crd.Spec.Names.Kind)
	}
	slices.Sort(kinds)
	want := []string{"Machine", "MachineClass", "MachineDeployment", "MachineHealthCheck", "MachineSet", "Provider"}
	if !slices.Equal(kinds, want) {
		t.Errorf("CRDs are of %v, want %v", kinds, want)
	}
}

// A policy without a binding that denies does nothing.
func TestEveryPolicyIsBound(t *testing.T) {
	bound := map[string]bool{}
	var policies []string
	for _, object := range slices.Concat(Policies(), OptionalPolicies()) {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, o.Name)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound[o.Spec.PolicyName] = slices.Contains(o.Spec.ValidationActions, admissionv1.Deny)
		}
	}
	if len(policies) == 0 {
		t.Error("no policies")
	}
	for _, name := range policies {
		if !bound[name] {
			t.Errorf("policy %s has no binding that denies", name)
		}
	}
}

// A FlowSchema of a priority level that is not there gets its requests treated as unassigned.
func TestFlowSchemasAreOfALevelThatExists(t *testing.T) {
	// One that every API server has by itself.
	levels := map[string]bool{"leader-election": true}
	schemas := 0
	for _, object := range FlowControl() {
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels[o.Name] = true
		case *flowcontrolv1.FlowSchema:
			schemas++
			if level := o.Spec.PriorityLevelConfiguration.Name; !levels[level] {
				t.Errorf("flow schema %s is of the priority level %s, which is not made before it", o.Name, level)
			}
		}
	}
	if schemas != 2 {
		t.Errorf("%d flow schemas, want one for leases and one for the rest", schemas)
	}
}

// Each webhook goes to its own Service, and there is none in the way of kube-system.
//
// Rule: works-without-webhooks.
func TestWebhooksHaveServices(t *testing.T) {
	for name, configuration := range map[string]*admissionv1.ValidatingWebhookConfiguration{
		"machinist-manager": ManagerWebhook(), "machinist-provider-sim": ProviderWebhook("sim"),
	} {
		if configuration.Name != name || len(configuration.Webhooks) == 0 {
			t.Errorf("%s has %d webhooks, want those of %s", configuration.Name, len(configuration.Webhooks), name)
		}
		for _, webhook := range configuration.Webhooks {
			to := webhook.ClientConfig.Service
			if to == nil || to.Name != name || to.Namespace != "machinist-system" ||
				strings.Contains(webhook.Name, placeholder) {
				t.Errorf("webhook %s goes to %+v", webhook.Name, to)
			}
			if s := webhook.NamespaceSelector; s == nil || len(s.MatchExpressions) != 1 ||
				!slices.Contains(s.MatchExpressions[0].Values, "kube-system") {
				t.Errorf("webhook %s is for the namespaces %+v", webhook.Name, s)
			}
		}
		at := At(configuration, "https://localhost:9443/").Webhooks[0].ClientConfig
		if at.Service != nil || at.URL == nil || *at.URL != "https://localhost:9443/validate" {
			t.Errorf("%s at a URL goes to %+v", name, at)
		}
	}
	for _, file := range []string{"manager", "provider"} {
		text, err := webhooks.ReadFile("webhook/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		filled := fstest.MapFS{"w.yaml": {Data: []byte(strings.ReplaceAll(string(text), placeholder, "sim"))}}
		objects, err := manifest.Decode(filled, "w.yaml", admissionv1.AddToScheme, corev1.AddToScheme)
		if err != nil || len(objects) != 2 {
			t.Fatalf("%s: %d objects, %v; want the configuration and a Service", file, len(objects), err)
		}
		service := objects[1].(*corev1.Service)
		if service.Name != objects[0].GetName() || len(service.Spec.Ports) != 1 ||
			service.Spec.Selector["app.kubernetes.io/name"] != service.Name {
			t.Errorf("%s: the Service is %+v", file, service)
		}
	}
}

// A caller may change what it got.
func TestCallersGetTheirOwnCopy(t *testing.T) {
	CRDs()[0].Name = "changed"
	if CRDs()[0].Name == "changed" {
		t.Error("a change of one caller's definition shows in another's")
	}
}

// A policy cannot encode: it has the only group of bootstrap tokens as a Secret's data has it.
func TestThePolicyOfTheProcessesKnowsTheGroupOfTheirTokens(t *testing.T) {
	text, err := files.ReadFile("policy/processes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := base64.StdEncoding.EncodeToString([]byte(bootstrap.Group)); !strings.Contains(string(text), want) {
		t.Errorf("the policy does not have %s, which is %s", want, bootstrap.Group)
	}
}
