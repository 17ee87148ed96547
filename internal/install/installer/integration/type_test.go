package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// Rule: one-provider-of-a-type.
func TestSecondProviderOfATypeWaitsForTheFirst(t *testing.T) {
	w := newTestInstaller(t)
	first := w.provider("first", nil)
	w.awaitCondition("first", degraded, no, v1beta1.ReasonAsDesired)
	w.provider("second", nil)
	p := w.awaitCondition("second", degraded, yes, v1beta1.ReasonDuplicateType)
	if message := messageOf(p, degraded); !strings.Contains(message, "Provider first has the type acme too") {
		t.Errorf("the message is %q", message)
	}
	w.must("delete the first", w.Delete(t.Context(), first))
	p = w.awaitCondition("second", degraded, no, v1beta1.ReasonAsDesired)
	if d := w.deployment(process); d.OwnerReferences[0].UID != p.UID {
		t.Errorf("the Deployment belongs to %s", d.OwnerReferences[0].Name)
	}
}

// Rule: platform-from-provider-ids.
func TestAutoDetectsPlatform(t *testing.T) {
	w := newTestInstaller(t)
	for i, id := range []string{"sim://sim-1/sim-1a/i-0", "sim://sim-1/sim-1a/i-1", ""} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("detected-%d", i)},
			Spec: corev1.NodeSpec{ProviderID: id}}
		w.must("create a Node", w.Create(t.Context(), node))
		t.Cleanup(func() { _ = w.Delete(context.Background(), node) })
	}
	w.provider("auto", func(s *v1beta1.ProviderSpec) { s.Type, s.Image = v1beta1.ProviderTypeAuto, v1beta1.ProviderImage{} })
	w.awaitCondition("auto", degraded, no, v1beta1.ReasonAsDesired)
	p := w.awaitCondition("auto", progressing, yes, v1beta1.ReasonRollingOut)
	if p.Status.Type != "sim" || p.Status.Process != "machinist-provider-sim" || p.Status.Detected == nil ||
		p.Status.Detected.Nodes != 2 || p.Status.Detected.TotalNodes != 3 {
		t.Errorf("the status is %+v", p.Status)
	}
	if message := messageOf(p, progressing); !strings.HasPrefix(message, "Detected sim from 2 of 3 Nodes. ") {
		t.Errorf("the message is %q", message)
	}
	// The detected type stays, even with Nodes of another platform.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "detected-aws"},
		Spec: corev1.NodeSpec{ProviderID: "aws:///zone/i-0"}}
	w.must("create a Node", w.Create(t.Context(), node))
	t.Cleanup(func() { _ = w.Delete(context.Background(), node) })
	w.patchSpec("auto", `{"spec":{"replicas":1}}`)
	p = w.awaitCondition("auto", degraded, no, v1beta1.ReasonAsDesired)
	if p.Status.Type != "sim" {
		t.Errorf("the type became %s", p.Status.Type)
	}
}

// Rule: provider-stays-while-needed.
func TestProviderStaysUntilNothingNeedsIt(t *testing.T) {
	w := newTestInstaller(t)
	w.provider("acme", nil)
	w.awaitCondition("acme", progressing, yes, v1beta1.ReasonRollingOut)
	p := w.awaitCondition("acme", degraded, no, v1beta1.ReasonAsDesired)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small",
		Finalizers: []string{v1beta1.InUseFinalizer}}}
	class.Spec.Provider, class.Spec.ProviderSpec = "acme", raw(`{"kind":"Nothing"}`)
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "one",
		Labels: map[string]string{v1beta1.LabelProvider: "acme"}}}
	machine.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	w.must("create a class", w.Create(t.Context(), class))
	w.must("create a machine", w.Create(t.Context(), machine))

	w.must("delete the Provider", w.Delete(t.Context(), p))
	blocked := w.awaitCondition("acme", v1beta1.ConditionDeleting, yes, v1beta1.ReasonInUse)
	want := fmt.Sprintf("1 Machine (%s/one) and 1 MachineClass (%[1]s/small) need the process", w.namespace)
	if message := messageOf(blocked, v1beta1.ConditionDeleting); !strings.HasPrefix(message, want) {
		t.Errorf("the message is %q, want %q", message, want)
	}
	w.deployment(process)

	w.must("delete the machine", w.Delete(t.Context(), machine))
	class.Finalizers = nil
	w.must("release the class", w.Update(t.Context(), class))
	env.Await(t, w.WithWatch, &v1beta1.ProviderList{}, "no Provider", func(l *v1beta1.ProviderList) (bool, string) {
		return len(l.Items) == 0, fmt.Sprint(len(l.Items))
	})
	for _, ref := range p.Status.Installed {
		if !w.isGone(emptyOf(ref)) {
			t.Errorf("%s %s still exists", ref.Kind, ref.Name)
		}
	}
	if w.isGone(class) {
		t.Error("the class is gone")
	}
}
