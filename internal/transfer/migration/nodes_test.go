package migration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

func TestMismatchReportsUncertainNodes(t *testing.T) {
	for name, c := range map[string]struct {
		nodes      map[string]string // provider IDs of Nodes, by name
		named      string
		hasProblem bool
	}{
		"none":                                        {nil, "a", false},
		"by provider ID":                              {map[string]string{"a": "id", "b": "other"}, "", false},
		"by provider ID and name":                     {map[string]string{"a": "id"}, "a", false},
		"by provider ID, no Node of that name":        {map[string]string{"a": "id"}, "b", false},
		"by name, without a provider ID":              {map[string]string{"a": ""}, "a", false},
		"by name, with another provider ID":           {map[string]string{"a": "other"}, "a", true},
		"the name is that of another instance's Node": {map[string]string{"a": "id", "b": "other"}, "b", true},
		"two with the same provider ID":               {map[string]string{"a": "id", "b": "id"}, "a", true},
		"without a provider ID or a name":             {map[string]string{"a": ""}, "", false},
	} {
		all := nodes{byName: map[string]*corev1.Node{}, byProviderID: map[string][]*corev1.Node{}}
		for _, node := range slices.Sorted(maps.Keys(c.nodes)) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: c.nodes[node]}}
			all.byName[node] = n
			if id := n.Spec.ProviderID; id != "" {
				all.byProviderID[id] = append(all.byProviderID[id], n)
			}
		}
		if problem := all.mismatch("id", c.named); (problem != "") != c.hasProblem {
			t.Errorf("%s: problem %q", name, problem)
		}
	}
}

// Rule: migration-checks-the-target.
func TestPlanChecksTargetCluster(t *testing.T) {
	for group := range source.Systems() {
		t.Run(group, func(t *testing.T) {
			f := fleetOf(t, group, "healthy")
			if made := f.plan(); len(made.findings.withCode(CodeWrongTarget)) > 0 {
				t.Errorf("the target cluster has the Nodes:\n%s", made.findings.text())
			}
			right := f.nodes
			f.nodes = nodes{byName: map[string]*corev1.Node{}, byProviderID: map[string][]*corev1.Node{}}
			f.node("other", "sim:///other")
			got := f.plan().expect(t, provider.FindingBlocker, CodeWrongTarget, "Migration/move")
			named := func(name string) bool { return strings.Contains(got.Message, "Node "+name+" of Machine/") }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(right.byName)), named) {
				t.Errorf("the message names no Node: %s", got.Message)
			}
			f.nodes.noCluster = true
			if made := f.plan(); len(made.findings.withCode(CodeWrongTarget)) > 0 {
				t.Errorf("there is no target cluster:\n%s", made.findings.text())
			}
		})
	}
}

// Rule: migration-checks-the-target.
func TestPlanReportsMissingNode(t *testing.T) {
	f := healthy(t)
	f.addCopy("Machine", oldMachine, "other", nil)
	delete(f.nodes.byName, "other")
	delete(f.nodes.byProviderID, "sim:///other")
	made := f.plan()
	made.expect(t, provider.FindingLoss, CodeNodeMissing, "Machine/other")
	if b := made.blockers(); len(b) > 0 {
		t.Errorf("one of two Nodes exists, but the plan has the Blockers %s", b)
	}
}

// Rule: migration-nodes-lose-traces.
func TestRemoveTracesKeepsEverythingElse(t *testing.T) {
	const domain = "node.machine.sapcloud.io/"
	const disabledByOld = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	traces := source.Systems()[provider.SourceGardener].NodeTraces()
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a",
			Labels:      map[string]string{"pool": "a", "machine.sapcloud.iox/label": "stays"},
			Annotations: map[string]string{"example.com/a": "b", "node.machine.sapcloud.io": "a name, not the domain"},
			Finalizers:  []string{"example.com/f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Rack", Name: "r"},
				{APIVersion: "v1", Kind: "Pod", Name: "p"}}},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}}}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, c := range map[string]struct{ dirty, clean func(*corev1.Node) }{
		"nothing":     {nil, nil},
		"a finalizer": {func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, domain+"machine-controller") }, nil},
		"a finalizer of another domain of the old system": {func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, "machine.sapcloud.io/x") }, nil},
		"an annotation": {func(n *corev1.Node) { n.Annotations[domain+"last-applied-anno-labels-taints"] = "{}" },
			nil},
		"a label": {func(n *corev1.Node) { n.Labels[domain+"candidate-for-update"] = "true" }, nil},
		"a taint, whatever its effect": {func(n *corev1.Node) {
			for _, effect := range []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule} {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "deployment.machine.sapcloud.io/prefer-no-schedule",
					Effect: effect})
			}
		}, nil},
		"an owner": {func(n *corev1.Node) {
			n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{APIVersion: "machine.sapcloud.io/v1alpha1"})
		}, nil},
		"scale-down disabled by the old system": {func(n *corev1.Node) {
			n.Annotations[disabledByOld], n.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] = "true", "true"
		}, nil},
		"scale-down disabled by a user": {
			func(n *corev1.Node) { n.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] = "true" },
			func(n *corev1.Node) { n.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] = "true" }},
	} {
		got, want := node(c.dirty), node(c.clean)
		found := hasTraces(got, traces)
		if changed := !equalNodes(got, want); found != changed {
			t.Errorf("%s: traces are found: %t", name, found)
		}
		if removed := removeTraces(got, traces); removed != found || !equalNodes(got, want) {
			t.Errorf("%s: %+v remains, expected %+v", name, got, want)
		}
	}
}

func equalNodes(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers) && len(a.OwnerReferences) == len(b.OwnerReferences) &&
		slices.Equal(a.Spec.Taints, b.Spec.Taints)
}

func TestMatchesAny(t *testing.T) {
	keys := []string{"example.com/key", "domain.example.com/"}
	for key, want := range map[string]bool{"example.com/key": true, "example.com/key2": false, "example.com/": false,
		"domain.example.com/": true, "domain.example.com/any": true, "sub.domain.example.com/any": false,
		"domain.example.com": false} {
		if got := matchesAny(keys, key); got != want {
			t.Errorf("%q match %s: %t", strings.Join(keys, ", "), key, got)
		}
	}
}
