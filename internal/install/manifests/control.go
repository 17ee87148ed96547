package manifests

import (
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace is the default namespace of the processes and their Leases.
const Namespace = "machinist-system"

// Parts selects the objects that a cluster needs if the processes run outside of this cluster.
type Parts struct {
	// Control and Target say whether the cluster is the control cluster, the target cluster, or both.
	Control, Target bool
	// User is the user name of the process. If the field is empty, the process uses its ServiceAccount.
	User string
	// WatchNamespace is the only namespace that the process serves. Empty means all namespaces.
	WatchNamespace string
	// SecretNamespaces are the namespaces in which a provider may read Secrets. Nil means the default of the chart.
	SecretNamespaces []string
	// MigratorNamespaces are the namespaces in which a migrator may write Secrets, acquire Leases and scale workloads.
	MigratorNamespaces []string
	// RemediationKinds are the kinds of remediations that the manager may create.
	RemediationKinds []string
	// Shards is the number of processes between which the namespaces are divided. With 0 or 1, one process serves all
	// namespaces.
	Shards int
	// WebhookURL is the URL at which API servers reach the webhook. If WebhookURL is empty, API servers use the
	// Service of the process. The value WebhookOff disables the webhook.
	WebhookURL string
}

// WebhookOff is the value of WebhookURL for a process without a webhook.
const WebhookOff = "off"

func (p Parts) values() map[string]any {
	v := map[string]any{
		"install": map[string]any{"processes": false, "control": p.Control, "target": p.Target},
		"metrics": map[string]any{"enabled": p.WatchNamespace == ""},
		"webhook": map[string]any{"enabled": p.WebhookURL != WebhookOff && p.WatchNamespace == "", "url": ""},
	}
	if p.WebhookURL != WebhookOff {
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

// Manager returns the objects for a manager that runs outside of the cluster: admission policies, flow control, roles
// and webhook. It does not return the CRDs.
func (p Parts) Manager() ([]client.Object, error) {
	return p.machinist(map[string]any{
		"crds": map[string]any{"enabled": false}, "shards": max(p.Shards, 1),
		"remediationKinds": anySlice(p.RemediationKinds),
	})
}

func (p Parts) machinist(additional map[string]any) ([]client.Object, error) {
	v := p.values()
	maps.Copy(v, additional)
	return toTyped(RenderMachinist(Release{Name: "machinist", Namespace: Namespace, Values: v}))
}

// Provider returns the objects for a provider that runs outside of the cluster.
func (p Parts) Provider(name string) ([]client.Object, error) {
	v := p.values()
	v["provider"], v["shards"] = map[string]any{"name": name}, max(p.Shards, 1)
	if p.SecretNamespaces != nil {
		v["secretNamespaces"] = anySlice(p.SecretNamespaces)
	}
	return toTyped(RenderProvider(Release{Name: "machinist-provider-" + name, Namespace: Namespace, Values: v}))
}

// anySlice converts a list to the only type of lists that the schema of a chart accepts.
func anySlice(values []string) []any {
	list := make([]any, len(values))
	for i, value := range values {
		list[i] = value
	}
	return list
}

// Operator returns the objects for an operator, in addition to those of Manager.
func Operator() ([]client.Object, error) {
	parts := Parts{Control: true, WebhookURL: WebhookOff}
	with, err := parts.machinist(map[string]any{"crds": map[string]any{"enabled": false},
		"operator": map[string]any{"enabled": true}})
	if err != nil {
		return nil, err
	}
	without, err := parts.Manager()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(with, func(o client.Object) bool {
		return slices.ContainsFunc(without, func(known client.Object) bool {
			return known.GetObjectKind().GroupVersionKind() == o.GetObjectKind().GroupVersionKind() &&
				client.ObjectKeyFromObject(known) == client.ObjectKeyFromObject(o)
		})
	}), nil
}

// Migrator returns the objects for a migrator that runs outside of the cluster, in addition to those of Provider.
func (p Parts) Migrator(name string) ([]client.Object, error) {
	v := p.values()
	v["provider"] = map[string]any{"name": name}
	v["migrator"] = map[string]any{"enabled": true, "only": true, "namespaces": anySlice(p.MigratorNamespaces)}
	return toTyped(RenderProvider(Release{Name: "machinist-migrator-" + name, Namespace: Namespace, Values: v}))
}

// MigrationPolicies returns the admission policies and bindings that protect fleets during a migration. The policies
// apply in the given namespaces.
func MigrationPolicies(provider string, namespaces ...string) []client.Object {
	parts := Parts{Control: true, WebhookURL: WebhookOff, MigratorNamespaces: namespaces}
	return onlyPolicies(mustRender(parts.Migrator(provider)))
}

// CRDs returns the CustomResourceDefinitions of the API group, sorted by name.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	keep := map[string]any{"crds": map[string]any{"keep": false}}
	objects := mustRender(Parts{Control: true, WebhookURL: WebhookOff}.machinist(keep))
	return only[*apiextensionsv1.CustomResourceDefinition](objects)
}

// Policies returns the ValidatingAdmissionPolicies and their bindings. Each policy comes before its binding.
func Policies() []client.Object { return onlyPolicies(control()) }

func onlyPolicies(objects []client.Object) (found []client.Object) {
	for _, object := range objects {
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			found = append(found, object)
		}
	}
	return found
}

// FlowControl returns the priority level of Machinist's processes and its FlowSchemas.
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

// ManagerWebhook returns the validating webhook configuration of machinist-manager. API servers use the URL, such as
// https://localhost:9443, or the Service if the URL is empty.
func ManagerWebhook(url string) *admissionv1.ValidatingWebhookConfiguration {
	objects := mustRender(Parts{Control: true, WebhookURL: url}.Manager())
	return only[*admissionv1.ValidatingWebhookConfiguration](objects)[0]
}

// ManagerMutatingWebhook returns the mutating webhook configuration of machinist-manager. See ManagerWebhook for the
// URL.
func ManagerMutatingWebhook(url string) *admissionv1.MutatingWebhookConfiguration {
	objects := mustRender(Parts{Control: true, WebhookURL: url}.Manager())
	return only[*admissionv1.MutatingWebhookConfiguration](objects)[0]
}

// ProviderWebhook returns the webhook configuration of a provider. See ManagerWebhook for the URL.
func ProviderWebhook(provider, url string) *admissionv1.ValidatingWebhookConfiguration {
	objects := mustRender(Parts{Control: true, WebhookURL: url}.Provider(provider))
	return only[*admissionv1.ValidatingWebhookConfiguration](objects)[0]
}

func control() []client.Object {
	return mustRender(Parts{Control: true, Target: true, WebhookURL: WebhookOff}.Manager())
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

// toTyped converts rendered objects to their types. Unknown fields are errors.
func toTyped(objects []*unstructured.Unstructured, err error) ([]client.Object, error) {
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

// mustRender returns the rendered objects, and panics after an error. The charts are embedded in the program, so tests
// find every such error before a release.
func mustRender[T any](rendered T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("embedded charts: %v", err))
	}
	return rendered
}
