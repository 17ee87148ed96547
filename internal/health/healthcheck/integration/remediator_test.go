package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/test/env"
)

// Kinds of remediations in the tests. They have the shape of the kinds of Medik8s.
var (
	selfNode   = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}
	fenceAgent = schema.GroupVersionKind{Group: "fence-agents-remediation.medik8s.io", Version: "v1alpha1", Kind: "FenceAgentsRemediation"}
)

const (
	remediatorFinalizer = "medik8s.example.com/cleanup"
	remediatorTaint     = "medik8s.example.com/remediation"
	templateName        = "automatic"
)

// installKinds installs the kinds of an operator, and creates its template.
func (b *bench) installKinds(kinds ...schema.GroupVersionKind) {
	b.Helper()
	for _, kind := range kinds {
		for _, suffix := range []string{"", "Template"} {
			err := b.c.Create(b.ctx(), crdOf(kind.GroupVersion().WithKind(kind.Kind+suffix)))
			if !apierrors.IsAlreadyExists(err) {
				b.must(err)
			}
		}
		template := &unstructured.Unstructured{}
		b.must(json.Unmarshal([]byte(`{"spec":{"template":{"spec":{"remediationStrategy":"ResourceDeletion","retries":3}}}}`),
			&template.Object))
		template.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "Template"))
		template.SetNamespace(b.namespace)
		template.SetName(templateName)
		template.SetAnnotations(map[string]string{"remediation.medik8s.io/multiple-templates-support": "true"})
		b.eventually(func() error { return b.c.Create(b.ctx(), template.DeepCopy()) })
	}
}

// eventually repeats a request until the API server serves a new kind.
func (b *bench) eventually(request func() error) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := request()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

func crdOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	plural := strings.ToLower(kind.Kind) + "s"
	free := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group}}
	crd.APIVersion, crd.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: plural,
			Singular: strings.ToLower(kind.Kind)},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec":   {Type: "object", XPreserveUnknownFields: &free},
					"status": {Type: "object", XPreserveUnknownFields: &free},
				}}}}}}
	text, err := json.Marshal(crd)
	if err != nil {
		panic(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		panic(err)
	}
	return o
}

// leave makes a check leave its machines to the operator of a kind.
func (b *bench) leave(kind schema.GroupVersionKind, timeout time.Duration,
	onTimeout v1beta1.RemediationTimeoutAction) func(*v1beta1.MachineHealthCheck) {
	return func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationExternal, OnTimeout: onTimeout,
			TemplateRef: &v1beta1.RemediationTemplateReference{APIVersion: kind.GroupVersion().String(),
				Kind: kind.Kind + "Template", Namespace: b.namespace, Name: templateName}}
		if timeout > 0 {
			c.Spec.Remediation.Timeout = &metav1.Duration{Duration: timeout}
		}
	}
}

// newRemediatorBench returns a bench whose manager may create remediations of both kinds.
func newRemediatorBench(t testing.TB) *bench {
	b := newBench(t)
	b.installKinds(selfNode, fenceAgent)
	b.options.Remediators = &healthcheck.Remediators{Client: env.Client(t), ClusterID: "here",
		Kinds:  []schema.GroupKind{selfNode.GroupKind(), fenceAgent.GroupKind()},
		Serves: func(namespace string) bool { return namespace == b.namespace }}
	b.restart()
	return b
}

func (b *bench) remediations() []unstructured.Unstructured {
	b.Helper()
	var all []unstructured.Unstructured
	for _, kind := range []schema.GroupVersionKind{selfNode, fenceAgent} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		b.must(b.c.List(b.ctx(), list, client.InNamespace(b.namespace)))
		all = append(all, list.Items...)
	}
	return all
}

// remediation returns the only remediation.
func (b *bench) remediation() *unstructured.Unstructured {
	b.Helper()
	all := b.remediations()
	if len(all) != 1 {
		b.Fatalf("there are %d remediations, want one: %v", len(all), all)
	}
	return &all[0]
}

func (b *bench) wantNoRemediation() {
	b.Helper()
	if all := b.remediations(); len(all) != 0 {
		b.Fatalf("there are %d remediations, want none: %v", len(all), all)
	}
}

// operate lets the stand-in for an operator process all remediations once, as the contract of Medik8s describes: it adds
// a finalizer and a taint to the Node, reports its progress in conditions, stops if the manager reports a timeout, and
// cleans up when the object is deleted. The Node is that in the annotation, or the one with the name of the object.
func (b *bench) operate(result func(o *unstructured.Unstructured, node *corev1.Node) metav1.ConditionStatus) {
	b.Helper()
	for _, o := range b.remediations() {
		name := o.GetAnnotations()["remediation.medik8s.io/node-name"]
		if name == "" {
			name = o.GetName()
		}
		node := &corev1.Node{}
		if err := b.c.Get(b.ctx(), client.ObjectKey{Name: name}, node); err != nil {
			node = nil
			b.must(client.IgnoreNotFound(err))
		}
		if o.GetDeletionTimestamp() != nil {
			b.taint(node, false)
			controllerutil.RemoveFinalizer(&o, remediatorFinalizer)
			b.must(b.c.Update(b.ctx(), &o))
			continue
		}
		if controllerutil.AddFinalizer(&o, remediatorFinalizer) {
			b.must(b.c.Update(b.ctx(), &o))
		}
		b.taint(node, true)
		processing, succeeded, reason := metav1.ConditionTrue, metav1.ConditionUnknown, "RemediationStarted"
		if _, stop := o.GetAnnotations()["remediation.medik8s.io/nhc-timed-out"]; stop {
			processing, succeeded, reason = metav1.ConditionFalse, metav1.ConditionFalse, "RemediationStopped"
		} else if node == nil {
			processing, succeeded, reason = metav1.ConditionFalse, metav1.ConditionFalse, "NodeNotFound"
		} else if succeeded = result(&o, node); succeeded != metav1.ConditionUnknown {
			processing, reason = metav1.ConditionFalse, "RemediationFinished"
		}
		b.must(unstructured.SetNestedSlice(o.Object, []any{
			map[string]any{"type": "Processing", "status": string(processing), "reason": reason},
			map[string]any{"type": "Succeeded", "status": string(succeeded), "reason": reason},
		}, "status", "conditions"))
		b.must(b.c.Status().Update(b.ctx(), &o))
	}
}

func (b *bench) taint(node *corev1.Node, want bool) {
	b.Helper()
	if node == nil {
		return
	}
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(node), node))
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == remediatorTaint })
	if want {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: remediatorTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	b.must(b.c.Update(b.ctx(), node))
}

// Results of a remediation.
func working(*unstructured.Unstructured, *corev1.Node) metav1.ConditionStatus {
	return metav1.ConditionUnknown
}

func failing(*unstructured.Unstructured, *corev1.Node) metav1.ConditionStatus {
	return metav1.ConditionFalse
}

// rebooting returns a result that makes the Node Ready.
func (b *bench) rebooting(m *v1beta1.Machine) func(*unstructured.Unstructured, *corev1.Node) metav1.ConditionStatus {
	return func(_ *unstructured.Unstructured, node *corev1.Node) metav1.ConditionStatus {
		if node.Name == m.Status.NodeRef.Name {
			b.recover(m)
		}
		return metav1.ConditionTrue
	}
}
