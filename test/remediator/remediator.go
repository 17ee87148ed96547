// Package remediator is a stand-in for the operators of Medik8s, which remediate Nodes. It follows their documented
// contract: the kinds of a remediation and of its template, the annotations that the manager sets, and the
// conditions that the operator sets.
package remediator

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Kinds of remediations.
var (
	SelfNode = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1",
		Kind: "SelfNodeRemediation"}
	FenceAgents = schema.GroupVersionKind{Group: "fence-agents-remediation.medik8s.io", Version: "v1alpha1",
		Kind: "FenceAgentsRemediation"}
)

const (
	// TemplateName is the name of the templates.
	TemplateName = "automatic"
	// Taint is the key of the taint of a Node that is being remediated.
	Taint     = "medik8s.example.com/remediation"
	finalizer = "medik8s.example.com/cleanup"

	nodeName = "remediation.medik8s.io/node-name"
	timedOut = "remediation.medik8s.io/nhc-timed-out"
)

// Kinds returns the kinds of remediations.
func Kinds() []schema.GroupVersionKind { return []schema.GroupVersionKind{SelfNode, FenceAgents} }

// Definitions returns the CustomResourceDefinitions of the remediations and of their templates.
func Definitions() (all []*apiextensionsv1.CustomResourceDefinition) {
	for _, kind := range Kinds() {
		all = append(all, definition(kind), definition(templateKind(kind)))
	}
	return all
}

func definition(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	plural, free := strings.ToLower(kind.Kind)+"s", true
	object := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &free}
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List",
				Plural:   plural,
				Singular: strings.ToLower(kind.Kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": object, "status": object}}}}}}}
}

func templateKind(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return kind.GroupVersion().WithKind(kind.Kind + "Template")
}

// Template returns the template of a kind of remediations.
func Template(kind schema.GroupVersionKind, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"spec": map[string]any{"remediationStrategy": "ResourceDeletion", "retries": int64(3)}}}}}
	o.SetGroupVersionKind(templateKind(kind))
	o.SetNamespace(namespace)
	o.SetName(TemplateName)
	o.SetAnnotations(map[string]string{"remediation.medik8s.io/multiple-templates-support": "true"})
	return o
}

// NodeOf returns the name of the Node to remediate.
func NodeOf(o *unstructured.Unstructured) string {
	if name := o.GetAnnotations()[nodeName]; name != "" {
		return name
	}
	return o.GetName()
}

// IsToldToStop reports whether the remediation has exceeded its timeout.
func IsToldToStop(o *unstructured.Unstructured) bool {
	_, stop := o.GetAnnotations()[timedOut]
	return stop
}

// Status returns the status of the condition Succeeded, or "" before the operator has begun.
func Status(o *unstructured.Unstructured) metav1.ConditionStatus {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Succeeded" {
			status, _ := c["status"].(string)
			return metav1.ConditionStatus(status)
		}
	}
	return ""
}

// IsIdle reports whether the operator has nothing to do for a remediation until its result is known.
func IsIdle(o *unstructured.Unstructured) bool {
	switch {
	case o.GetDeletionTimestamp() != nil:
		return !controllerutil.ContainsFinalizer(o, finalizer)
	case IsToldToStop(o):
		return Status(o) == metav1.ConditionFalse || Status(o) == metav1.ConditionTrue
	}
	return Status(o) != ""
}

// Process lets the operator process a remediation once: it adds a finalizer, and a taint to the Node. It stops if
// the manager reports a timeout, and cleans up if the remediation is being deleted. Otherwise, it reports the
// result.
func Process(ctx context.Context, c client.Client, o *unstructured.Unstructured,
	result metav1.ConditionStatus) error {
	o = o.DeepCopy()
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: NodeOf(o)}, node); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		node = nil
	}
	if o.GetDeletionTimestamp() != nil {
		if err := setTaint(ctx, c, node, false); err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(o, finalizer)
		return client.IgnoreNotFound(c.Update(ctx, o))
	}
	if controllerutil.AddFinalizer(o, finalizer) {
		if err := c.Update(ctx, o); err != nil {
			return err
		}
	}
	if err := setTaint(ctx, c, node, true); err != nil {
		return err
	}
	processing, reason := metav1.ConditionFalse, "RemediationFinished"
	switch {
	case IsToldToStop(o):
		result, reason = metav1.ConditionFalse, "RemediationStopped"
	case node == nil:
		result, reason = metav1.ConditionFalse, "NodeNotFound"
	case result == metav1.ConditionUnknown:
		processing, reason = metav1.ConditionTrue, "RemediationStarted"
	}
	conditions := []any{
		map[string]any{"type": "Processing", "status": string(processing), "reason": reason},
		map[string]any{"type": "Succeeded", "status": string(result), "reason": reason},
	}
	if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
		return err
	}
	return c.Status().Update(ctx, o)
}

func setTaint(ctx context.Context, c client.Client, node *corev1.Node, wanted bool) error {
	if node == nil {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.Taints = slices.DeleteFunc(changed.Spec.Taints, func(t corev1.Taint) bool { return t.Key == Taint })
	if wanted {
		changed.Spec.Taints = append(changed.Spec.Taints, corev1.Taint{Key: Taint, Effect: corev1.TaintEffectNoSchedule})
	}
	return c.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
}
