package machine

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type emptyNodes struct{ client.Client }

func (emptyNodes) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
}

func (emptyNodes) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Rule: observed-generation-acted-upon.
func TestAGenerationIsObservedWhenItWasActedUpon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	if m.Status.ObservedGeneration != m.Generation {
		t.Fatalf("observed is %d of %d", m.Status.ObservedGeneration, m.Generation)
	}
	w.update("m", func(m *v1beta1.Machine) { set(&m.Spec.Node.Labels, "tier", "gold") })
	target := *w.options.Target
	withCache := w.process.Target
	target.Nodes = emptyNodes{target.Nodes}
	w.process.Target = &target
	w.reconcile("m")
	if m := w.get("m"); m.Status.ObservedGeneration == m.Generation || !isReady(m) {
		t.Errorf("observed is %d of %d although the node could not be labelled; ready %t", m.Status.ObservedGeneration,
			m.Generation, isReady(m))
	}
	w.process.Target = withCache
	w.reconcile("m")
	if m := w.get("m"); m.Status.ObservedGeneration != m.Generation ||
		w.getNode(m.Status.NodeRef.Name).Labels["tier"] != "gold" {
		t.Errorf("observed is %d of %d, and the node has %v", m.Status.ObservedGeneration, m.Generation,
			w.getNode(m.Status.NodeRef.Name).Labels)
	}
	w.wantQuiet("m")
}

func isReady(m *v1beta1.Machine) bool {
	for _, c := range m.Status.Conditions {
		if c.Type == v1beta1.ConditionReady {
			return c.Status == "True"
		}
	}
	return false
}

// Rule: observed-generation-acted-upon.
func TestAMachineThatIsGoneWhenItsStatusIsWrittenIsNoError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.refuse = func(verb string, o runtime.Object) error {
		if _, ok := o.(*v1beta1.Machine); ok && verb == "patch status" {
			return apierrors.NewNotFound(v1beta1.GroupVersion.WithResource("machines").GroupResource(), "m")
		}
		return nil
	}
	if _, err := w.pass("m"); err != nil {
		t.Errorf("the pass ends with %v", err)
	}
}
