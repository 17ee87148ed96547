package integration

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/remediator"
)

// newRemediatorBench returns a bench with the kinds and templates of two operators. The manager may create
// remediations of both kinds.
func newRemediatorBench(t testing.TB) *bench {
	t.Helper()
	b := newBench(t)
	for _, d := range remediator.Definitions() {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		b.must(err)
		o := &unstructured.Unstructured{Object: object}
		o.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := b.c.Create(b.ctx(), o); !apierrors.IsAlreadyExists(err) {
			b.must(err)
		}
	}
	b.options.Remediators = &healthcheck.Remediators{Client: env.Client(t), ClusterID: "here",
		Serves: func(namespace string) bool { return namespace == b.namespace }}
	for _, kind := range remediator.Kinds() {
		b.options.Remediators.Kinds = append(b.options.Remediators.Kinds, kind.GroupKind())
		b.createTemplate(kind)
	}
	b.restart()
	return b
}

// createTemplate repeats the request until the API server serves the kind.
func (b *bench) createTemplate(kind schema.GroupVersionKind) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := b.c.Create(b.ctx(), remediator.Template(kind, b.namespace))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

func (b *bench) template(kind schema.GroupVersionKind) *unstructured.Unstructured {
	b.Helper()
	o := remediator.Template(kind, b.namespace)
	b.must(b.c.Get(b.ctx(), client.ObjectKeyFromObject(o), o))
	return o
}

// leave makes a check leave its machines to the operator of a kind.
func (b *bench) leave(kind schema.GroupVersionKind, timeout time.Duration,
	onTimeout v1beta1.RemediationTimeoutAction) func(*v1beta1.MachineHealthCheck) {
	return func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationExternal, OnTimeout: onTimeout,
			TemplateRef: &v1beta1.RemediationTemplateReference{APIVersion: kind.GroupVersion().String(),
				Kind: kind.Kind + "Template", Namespace: b.namespace, Name: remediator.TemplateName}}
		if timeout > 0 {
			c.Spec.Remediation.Timeout = &metav1.Duration{Duration: timeout}
		}
	}
}

func (b *bench) remediations() []unstructured.Unstructured {
	b.Helper()
	var all []unstructured.Unstructured
	for _, kind := range remediator.Kinds() {
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

// operate lets the operator process all remediations once. If the remediation succeeds, the Node becomes Ready.
func (b *bench) operate(result metav1.ConditionStatus, rebooted ...*v1beta1.Machine) {
	b.Helper()
	for _, o := range b.remediations() {
		b.must(remediator.Process(b.ctx(), b.c, &o, result))
	}
	b.recover(rebooted...)
}
