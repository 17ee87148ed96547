package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: former-values-come-back.
func TestFormerValuesComeBack(t *testing.T) {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Namespace: "fleet"}}
	m.Spec.Node = v1beta1.NodeTemplate{
		Labels:      map[string]string{"topology.kubernetes.io/zone": "ours", "same": "as before", "new": "x"},
		Annotations: map[string]string{"cni": "ours", "new": "x"},
		Taints:      []corev1.Taint{taint("valued", "ours"), taint("new", "")},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid",
		Labels:      map[string]string{"topology.kubernetes.io/zone": "cloud's", "same": "as before"},
		Annotations: map[string]string{"cni": "its own"}}}
	node.Spec.Taints = []corev1.Taint{taint("valued", "theirs")}

	applied := v1beta1.AppliedNodeTemplate{}
	apply := func() {
		t.Helper()
		fingerprint, err := templateFingerprint(m)
		if err != nil {
			t.Fatal(err)
		}
		former := formerOf(node, m, applied, fingerprint)
		out, err := withTemplate(node, m, applied, applied.NodeUID != "", false)
		if err != nil {
			t.Fatal(err)
		}
		if out != nil {
			node = out
		}
		applied = templateOf(m, node, false)
		applied.Former = former
	}
	apply()
	if node.Labels["topology.kubernetes.io/zone"] != "ours" || node.Spec.Taints[0].Value != "ours" {
		t.Fatalf("the template was not applied: %v %v", node.Labels, node.Spec.Taints)
	}
	apply() // A second pass does not change the known former values.
	m.Spec.Node = v1beta1.NodeTemplate{}
	apply()
	if node.Labels["topology.kubernetes.io/zone"] != "cloud's" || node.Labels["same"] != "as before" ||
		node.Annotations["cni"] != "its own" {
		t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
	}
	for _, gone := range []map[string]string{node.Labels, node.Annotations} {
		if value, there := gone["new"]; there {
			t.Errorf("a value that the Node did not have before stays: %q", value)
		}
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Value != "theirs" {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if applied.Former != nil {
		t.Errorf("former values remain: %v", applied.Former)
	}
}

// Rule: former-values-come-back.
func TestValuesOfALostRecordAreNotFormerValues(t *testing.T) {
	m := &v1beta1.Machine{}
	m.Spec.Node.Labels = map[string]string{"a": "ours"}
	fingerprint, err := templateFingerprint(m)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "ours"},
		Annotations: map[string]string{v1beta1.NodeAnnotationLastAppliedNodeTemplate: fingerprint}}}
	if former := formerOf(node, m, v1beta1.AppliedNodeTemplate{}, fingerprint); former != nil {
		t.Errorf("former values: %v", former)
	}
}

// Rule: no-write-war.
func TestAFieldWithTwoWritersIsNotWrittenWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", func(m *v1beta1.Machine) {
		m.Spec.Node.Labels = map[string]string{"topology.kubernetes.io/zone": "ours", "edited": "ours"}
		m.Spec.Node.Annotations = map[string]string{"cni": "ours"}
		m.Spec.Node.Taints = []corev1.Taint{taint("node.kubernetes.io/network-unavailable", "")}
	})
	overwrite := func(i int) {
		w.onNode(func(node *corev1.Node) {
			node.Labels["topology.kubernetes.io/zone"] = fmt.Sprint("theirs-", i)
			node.Annotations["cni"] = "theirs"
			node.Spec.Taints = nil
		})
	}
	writes := 0
	for i := range 10 {
		overwrite(i)
		w.effects.clear()
		w.reconcile("m")
		writes += len(w.effects.since("API Node"))
	}
	if writes != mostReapplied {
		t.Errorf("the Node was written %d times, want %d", writes, mostReapplied)
	}
	registered := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionRegistered)
	if registered.Status != metav1.ConditionTrue || registered.Reason != v1beta1.ReasonNodeTemplateContested {
		t.Errorf("Registered is %+v", registered)
	}
	for _, key := range []string{"label topology.kubernetes.io/zone", "annotation cni",
		"taint node.kubernetes.io/network-unavailable:NoSchedule"} {
		if !strings.Contains(registered.Message, key) {
			t.Errorf("%q does not name %s", registered.Message, key)
		}
	}

	// Machinist still sets another label again. The contested keys are set again after an hour.
	w.onNode(func(node *corev1.Node) { node.Labels["edited"] = "by-mistake" })
	w.reconcile("m")
	if node := w.getNode(nodeNameOf(w.namespace, "m")); node.Labels["edited"] != "ours" ||
		node.Labels["topology.kubernetes.io/zone"] != "theirs-9" {
		t.Errorf("labels %v", node.Labels)
	}
	w.step(contestedFor)
	w.reconcile("m")
	w.reconcile("m")
	if node := w.getNode(nodeNameOf(w.namespace, "m")); node.Labels["topology.kubernetes.io/zone"] != "ours" || len(node.Spec.Taints) != 1 {
		t.Errorf("labels %v, taints %v after an hour", node.Labels, node.Spec.Taints)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, metav1.ConditionTrue, v1beta1.ReasonNodeRegistered)
}

// Rules: no-write-war, former-values-come-back.
func TestValueOfAnotherWriterStaysWhenTheLabelIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", func(m *v1beta1.Machine) { m.Spec.Node.Labels = map[string]string{"zone": "ours"} })
	for range mostReapplied + 1 {
		w.onNode(func(node *corev1.Node) { node.Labels["zone"] = "theirs" })
		w.reconcile("m")
	}
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Node.Labels = nil })
	w.step(time.Second)
	w.reconcile("m")
	if node := w.getNode(nodeNameOf(w.namespace, "m")); node.Labels["zone"] != "theirs" {
		t.Errorf("labels %v", node.Labels)
	}
}
