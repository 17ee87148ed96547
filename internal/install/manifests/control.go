package manifests

import (
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace is where the processes are installed by default, and where they keep their leases.
const Namespace = "machinist-system"

// Parts is what of the charts belongs into one cluster for processes that run outside of it.
type Parts struct {
	// Control and Target say what the cluster is.
	Control, Target bool
	// User is who the process is to the cluster; empty for its ServiceAccount.
	User string
	// WatchNamespace is the only namespace that the process works in; empty is all.
	WatchNamespace string
	// Shards is among how many processes the namespaces are divided; 0 and 1 are one for all.
	Shards int
	// WebhookURL is where API servers reach the process's webhook. Empty means through its Service, and "off" that
	// there is none.
	WebhookURL string
}

// Off is the Parts.WebhookURL of a process without a webhook.
const Off = "off"

func (p Parts) values() map[string]any {
	v := map[string]any{
		"install": map[string]any{"processes": false, "control": p.Control, "target": p.Target},
		"metrics": map[string]any{"enabled": p.WatchNamespace == ""},
		"webhook": map[string]any{"enabled": p.WebhookURL != Off && p.WatchNamespace == "", "url": ""},
	}
	if p.WebhookURL != Off {
		v["webhook"].(map[string]any)["url"] = p.WebhookURL
	}
	if p.WatchNamespace != "" {
		v["watchNamespace"], v["clusterID"] = p.WatchNamespace, p.WatchNamespace
	}
	if p.User != "" {
		subjects := []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": p.User}}
		v["rbac"] = map[string]any{"controlSubjects": subjects, "targetSubjects": subjects}
	}
	return v
}

// Manager returns what a cluster needs, beside the CRDs, for a manager that runs outside of it: the admission policies,
// the flow control, its roles and its webhook.
func (p Parts) Manager() ([]client.Object, error) {
	return p.machinist(map[string]any{
		"crds": map[string]any{"enabled": false}, "manager": map[string]any{"shards": max(p.Shards, 1)},
	})
}

// machinist renders the chart machinist with further values.
func (p Parts) machinist(further map[string]any) ([]client.Object, error) {
	v := p.values()
	maps.Copy(v, further)
	return typed(RenderMachinist(Release{Name: "machinist", Namespace: Namespace, Values: v}))
}

// Provider returns what a cluster needs for a provider that runs outside of it.
func (p Parts) Provider(name string) ([]client.Object, error) {
	v := p.values()
	v["provider"], v["shards"] = map[string]any{"name": name}, max(p.Shards, 1)
	return typed(RenderProvider(Release{Name: "machinist-provider-" + name, Namespace: Namespace, Values: v}))
}

// Migrator returns what a cluster needs, beside the provider's, for a migrator that runs outside of it.
func (p Parts) Migrator(name string) ([]client.Object, error) {
	v := p.values()
	v["provider"] = map[string]any{"name": name}
	v["migrator"] = map[string]any{"enabled": true, "only": true}
	return typed(RenderProvider(Release{Name: "machinist-migrator-" + name, Namespace: Namespace, Values: v}))
}

// CRDs returns the CustomResourceDefinitions of the API group, in order of their names.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	keep := map[string]any{"crds": map[string]any{"keep": false}}
	objects := must(Parts{Control: true, WebhookURL: Off}.machinist(keep))
	return only[*apiextensionsv1.CustomResourceDefinition](objects)
}

// Policies returns the ValidatingAdmissionPolicies and their bindings, each policy before its binding.
func Policies() []client.Object { return policies(false) }

// OptionalPolicies returns the policies, with their bindings, that an installation may add to Policies.
func OptionalPolicies() []client.Object {
	usual := map[string]bool{}
	for _, object := range policies(false) {
		usual[object.GetName()] = true
	}
	var optional []client.Object
	for _, object := range policies(true) {
		if !usual[object.GetName()] {
			optional = append(optional, object)
		}
	}
	return optional
}

func policies(all bool) []client.Object {
	objects := must(Parts{Control: true, Target: true, WebhookURL: Off}.machinist(map[string]any{
		"crds": map[string]any{"enabled": false}, "policies": map[string]any{"restrictNodeLabels": all},
	}))
	var found []client.Object
	for _, object := range objects {
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			found = append(found, object)
		}
	}
	return found
}

// FlowControl returns the priority level of the processes' requests, and the FlowSchemas that put them there.
func FlowControl() []client.Object {
	var found []client.Object
	for _, level := range only[*flowcontrolv1.PriorityLevelConfiguration](control()) {
		found = append(found, level)
	}
	for _, schema := range only[*flowcontrolv1.FlowSchema](control()) {
		found = append(found, schema)
	}
	return found
}

// ManagerWebhook returns the webhook configuration of machinist-manager, reached at a URL such as
// https://localhost:9443, or through its Service if that is empty.
func ManagerWebhook(url string) *admissionv1.ValidatingWebhookConfiguration {
	objects := must(Parts{Control: true, WebhookURL: url}.Manager())
	return only[*admissionv1.ValidatingWebhookConfiguration](objects)[0]
}

// ManagerMutatingWebhook returns the other webhook configuration of machinist-manager, reached in the same way.
func ManagerMutatingWebhook(url string) *admissionv1.MutatingWebhookConfiguration {
	objects := must(Parts{Control: true, WebhookURL: url}.Manager())
	return only[*admissionv1.MutatingWebhookConfiguration](objects)[0]
}

// ProviderWebhook returns that of a provider.
func ProviderWebhook(provider, url string) *admissionv1.ValidatingWebhookConfiguration {
	objects := must(Parts{Control: true, WebhookURL: url}.Provider(provider))
	return only[*admissionv1.ValidatingWebhookConfiguration](objects)[0]
}

func control() []client.Object {
	return must(Parts{Control: true, Target: true, WebhookURL: Off}.Manager())
}

func only[T client.Object](objects []client.Object) []T {
	var found []T
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// typed converts what was rendered. Fields that the types do not know are errors.
func typed(objects []*unstructured.Unstructured, err error) ([]client.Object, error) {
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	converted := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		into, err := scheme.New(object.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		converter := runtime.DefaultUnstructuredConverter
		if err := converter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		converted = append(converted, into.(client.Object))
	}
	return converted, nil
}

// must holds because the charts are part of the program: a broken one is a broken build, which the tests do not pass.
func must[T any](rendered T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("embedded charts: %v", err))
	}
	return rendered
}
