package machine

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func bare() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "uid", Labels: map[string]string{"os": "linux"}, Annotations: map[string]string{"attach": "true"},
	}}
	node.Spec.Taints = []corev1.Taint{
		{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
	}
	return node
}

// patched applies a patch to the Node as the API server would. It returns nil if the API server would reject the patch.
func patched(t *testing.T, there *corev1.Node, patch []byte) *corev1.Node {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Apply(before)
	if err != nil {
		return nil
	}
	out := &corev1.Node{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// If the changes of other clients concern different keys, both are applied. Otherwise, the patch is rejected.
//
// Rule: node-template-one-patch.
func TestTemplatePatchToleratesOtherWrites(t *testing.T) {
	t.Parallel()
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m"}}
	m.Spec.ProviderID = "sim:///1"
	m.Spec.Node = v1beta1.NodeTemplate{
		Labels: map[string]string{"team/a~b": "x"}, Annotations: map[string]string{"note": "y"},
		Taints:        []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		StartupTaints: []corev1.Taint{{Key: "network", Effect: corev1.TaintEffectNoExecute}},
	}
	record := v1beta1.NodeAnnotationLastAppliedNodeTemplate
	for name, tc := range map[string]struct {
		seen    func(*corev1.Node)
		applied v1beta1.AppliedNodeTemplate
		since   func(*corev1.Node)
		refused bool
	}{
		"nothing else": {since: func(*corev1.Node) {}},
		"a status": {since: func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.NodeInfo.KubeletVersion = "v1"
		}},
		"labels and annotations": {since: func(n *corev1.Node) { n.Labels["beta"], n.Annotations["ttl"] = "1", "0" }},
		"a later taint removed":  {since: func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }},
		"a taint added": {since: func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "z", Effect: "NoSchedule"})
		}},
		"an earlier taint": {since: func(n *corev1.Node) {
			n.Spec.Taints = append([]corev1.Taint{{Key: "z"}}, n.Spec.Taints...)
		}, refused: true},
		"no taint any more": {since: func(n *corev1.Node) { n.Spec.Taints = nil }, refused: true},
		"the template applied by another process": {since: func(n *corev1.Node) { n.Annotations[record] = "{}" },
			refused: true},
		"another Node": {since: func(n *corev1.Node) { n.UID = "other" }, refused: true},
		"the record of the template removed": {
			seen:    func(n *corev1.Node) { n.Annotations[record] = "1"; n.Labels["old"] = "1" },
			applied: v1beta1.AppliedNodeTemplate{Labels: []string{"old"}},
			since:   func(n *corev1.Node) { delete(n.Annotations, record) }, refused: true,
		},
		"another template applied before": {
			seen: func(n *corev1.Node) {
				n.Annotations[record] = "1"
				n.Labels["old"] = "1"
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "tpu", Effect: "NoSchedule"},
					corev1.Taint{Key: "gpu", Value: "1", Effect: "NoSchedule"})
			},
			applied: v1beta1.AppliedNodeTemplate{Labels: []string{"old"}, Taints: []string{"tpu:NoSchedule"}},
			since:   func(n *corev1.Node) { n.Labels["beta"] = "1" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := bare()
			if tc.seen != nil {
				tc.seen(seen)
			}
			wanted, err := withTemplate(seen, m, tc.applied, tc.seen != nil, false)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := templatePatch(seen, wanted)
			if err != nil || patch == nil {
				t.Fatalf("%v, %v", patch, err)
			}
			data, err := patch.Data(wanted)
			if err != nil {
				t.Fatal(err)
			}
			there := seen.DeepCopy()
			tc.since(there)
			got := patched(t, there, data)
			if tc.refused {
				if got != nil {
					t.Errorf("the patch is accepted: %s", data)
				}
				return
			}
			want, err := withTemplate(there, m, tc.applied, tc.seen != nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				t.Fatalf("the patch is refused: %s", data)
			}
			if !equality.Semantic.DeepEqual(got.ObjectMeta, want.ObjectMeta) || got.Spec.ProviderID != want.Spec.ProviderID ||
				!sameTaints(got, want) {
				t.Errorf("the patch %s results in\n%+v %+v, want\n%+v %+v", data, got.ObjectMeta, got.Spec, want.ObjectMeta, want.Spec)
			}
		})
	}
}

func sameTaints(a, b *corev1.Node) bool {
	for _, taint := range a.Spec.Taints {
		if i := findTaint(b.Spec.Taints, taint); i < 0 || b.Spec.Taints[i].Value != taint.Value {
			return false
		}
	}
	return len(a.Spec.Taints) == len(b.Spec.Taints)
}

// A JSON patch cannot add a value to a field that does not exist.
func TestNodeWithoutMetadataNeedsAnOptimisticLock(t *testing.T) {
	t.Parallel()
	for _, strip := range []func(*corev1.Node){
		func(n *corev1.Node) { n.Labels = nil },
		func(n *corev1.Node) { n.Annotations = nil },
		func(n *corev1.Node) { n.Spec.Taints = nil },
	} {
		node := bare()
		strip(node)
		if patch, err := templatePatch(node, bare()); patch != nil || err != nil {
			t.Errorf("%v, %v", patch, err)
		}
	}
}
