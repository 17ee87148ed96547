//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/retry"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
)

// autoscaler sends the requests of cluster-autoscaler 1.36 with the provider clusterapi and CAPI_GROUP=machinist.dev.
// The user of the client has only the permissions of the chart's role.
type autoscaler struct {
	t       *testing.T
	objects dynamic.Interface
	scales  scale.ScalesGetter
}

type nodeGroup struct {
	object            *unstructured.Unstructured
	resource          schema.GroupVersionResource
	smallest, largest int
	capacity          corev1.ResourceList
	labels            map[string]string
	taints            []corev1.Taint
}

const autoscalerUser = "autoscaler"

func newAutoscaler(m *machinist) *autoscaler {
	m.t.Helper()
	role := manifests.ClusterAutoscaler.Objects("", "")
	if len(role) != 1 {
		m.t.Fatalf("the chart has %d roles for cluster-autoscaler", len(role))
	}
	if err := m.control.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: autoscalerUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role[0].GetName()},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: autoscalerUser}},
	}); err != nil {
		m.t.Fatal(err)
	}
	config := rest.CopyConfig(m.Control.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: autoscalerUser, Groups: []string{"system:authenticated"}}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		m.t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		m.t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(found))
	if err != nil {
		m.t.Fatal(err)
	}
	return &autoscaler{m.t, objects, scales}
}

func resourceOf(plural string) schema.GroupVersionResource {
	return v1beta1.GroupVersion.WithResource(plural)
}

func (a *autoscaler) groups() (map[string]*nodeGroup, error) {
	a.t.Helper()
	groups := map[string]*nodeGroup{}
	for _, resource := range []schema.GroupVersionResource{resourceOf("machinesets"), resourceOf("machinedeployments")} {
		list, err := a.objects.Resource(resource).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			a.t.Fatalf("list %s: %v", resource.Resource, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			owned := false
			for _, owner := range object.GetOwnerReferences() {
				owned = owned || owner.Kind == "MachineDeployment" && owner.Name != ""
			}
			if owned {
				continue
			}
			group, err := groupOf(object, resource)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", object.GetName(), err)
			}
			if group != nil {
				groups[object.GetName()] = group
			}
		}
	}
	return groups, nil
}

func (a *autoscaler) validGroups() map[string]*nodeGroup {
	a.t.Helper()
	groups, err := a.groups()
	if err != nil {
		a.t.Fatalf("read the node groups as the autoscaler: %v", err)
	}
	return groups
}

const (
	groupPrefix    = "machinist.dev/cluster-api-autoscaler-node-group-"
	capacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"
)

// groupOf returns the node group of an object, or nil. A group without machines must be scalable from zero.
func groupOf(object *unstructured.Unstructured, resource schema.GroupVersionResource) (*nodeGroup, error) {
	annotations := object.GetAnnotations()
	g := &nodeGroup{object: object, resource: resource, labels: map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}}
	for key, size := range map[string]*int{"min-size": &g.smallest, "max-size": &g.largest} {
		text, found := annotations[groupPrefix+key]
		if !found {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("invalid %s annotation: %q", key, text)
		}
		*size = n
	}
	if g.largest < g.smallest {
		return nil, fmt.Errorf("invalid max annotation")
	}
	if err := g.readCapacity(annotations); err != nil {
		g.capacity = nil
	}
	replicas, found, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if err != nil || !found {
		return nil, fmt.Errorf("unable to find replicas: %w", err)
	}
	_, cpu := g.capacity[corev1.ResourceCPU]
	_, memory := g.capacity[corev1.ResourceMemory]
	if g.largest == 0 || replicas == 0 && !(cpu && memory) {
		return nil, nil
	}
	return g, nil
}

func (g *nodeGroup) readCapacity(annotations map[string]string) error {
	g.capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	gpu := annotations[capacityPrefix+"gpu-type"]
	for name, of := range map[string]corev1.ResourceName{"cpu": corev1.ResourceCPU, "memory": corev1.ResourceMemory,
		"ephemeral-disk": corev1.ResourceEphemeralStorage, "maxPods": corev1.ResourcePods, "gpu-count": corev1.ResourceName(gpu)} {
		text := annotations[capacityPrefix+name]
		if text == "" || of == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if name == "maxPods" || name == "gpu-count" {
			var n int64
			n, err = strconv.ParseInt(text, 10, 0)
			quantity = *resource.NewQuantity(n, resource.DecimalSI)
		}
		if err != nil {
			return fmt.Errorf("%s: %q: %w", name, text, err)
		}
		if !quantity.IsZero() {
			g.capacity[of] = quantity
		}
	}
	for pair := range strings.SplitSeq(annotations[capacityPrefix+"labels"], ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			g.labels[key] = value
		}
	}
	for text := range strings.SplitSeq(annotations[capacityPrefix+"taints"], ",") {
		if pair, effect, ok := strings.Cut(text, ":"); ok {
			key, value, _ := strings.Cut(pair, "=")
			g.taints = append(g.taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	return nil
}

func (a *autoscaler) size(g *nodeGroup) int {
	a.t.Helper()
	s, err := a.scales.Scales(g.object.GetNamespace()).Get(context.Background(), g.resource.GroupResource(),
		g.object.GetName(), metav1.GetOptions{})
	if err != nil {
		a.t.Fatalf("read the size of %s: %v", g.object.GetName(), err)
	}
	return int(s.Spec.Replicas)
}

func (a *autoscaler) setSize(g *nodeGroup, size int) {
	a.t.Helper()
	if size < g.smallest || size > g.largest {
		a.t.Fatalf("size of %s: got %d, want a size between %d and %d", g.object.GetName(), size, g.smallest, g.largest)
	}
	if _, err := a.scales.Scales(g.object.GetNamespace()).Patch(context.Background(), g.resource, g.object.GetName(),
		types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size), metav1.PatchOptions{}); err != nil {
		a.t.Fatalf("set the size of %s: %v", g.object.GetName(), err)
	}
}

func (a *autoscaler) increase(g *nodeGroup, delta int) {
	a.t.Helper()
	a.setSize(g, a.size(g)+delta)
}

// remove does the same as DeleteNodes of cluster-autoscaler and finds the machine by the Node's annotations.
func (a *autoscaler) remove(g *nodeGroup, node *corev1.Node) {
	a.t.Helper()
	size := a.size(g)
	machines := a.objects.Resource(resourceOf("machines")).Namespace(node.Annotations["machinist.dev/cluster-namespace"])
	name := node.Annotations["machinist.dev/machine"]
	// After a conflict, a real autoscaler retries in its next loop.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		machine, err := machines.Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if id, _, _ := unstructured.NestedString(machine.Object, "spec", "providerID"); path.Base(id) !=
			path.Base(node.Spec.ProviderID) {
			return fmt.Errorf("the machine has the provider ID %s, but its node has %s", id, node.Spec.ProviderID)
		}
		annotations := maps.Clone(machine.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["machinist.dev/delete-machine"] = time.Now().String()
		machine.SetAnnotations(annotations)
		_, err = machines.Update(context.Background(), machine, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		a.t.Fatalf("mark machine %s: %v", name, err)
	}
	a.setSize(g, size-1)
}

// wantNode checks that a Node matches the template that the autoscaler calculated for the empty group.
func (g *nodeGroup) wantNode(t *testing.T, node *corev1.Node) {
	t.Helper()
	for key, value := range g.labels {
		if got, found := node.Labels[key]; !found || got != value {
			t.Errorf("node %s, label %s: got %q, want %q", node.Name, key, got, value)
		}
	}
	for name, quantity := range g.capacity {
		if got := node.Status.Allocatable[name]; got.Cmp(quantity) != 0 {
			t.Errorf("node %s, allocatable %s: got %s, want %s", node.Name, name, got.String(), quantity.String())
		}
	}
	for _, taint := range g.taints {
		found := false
		for _, has := range node.Spec.Taints {
			found = found || has.MatchTaint(&taint) && has.Value == taint.Value
		}
		if !found {
			t.Errorf("node %s lacks the taint %s", node.Name, taint.ToString())
		}
	}
	for _, has := range node.Spec.Taints {
		// Kubernetes adds and removes its own taints when the state of the Node changes.
		if !strings.HasPrefix(has.Key, "node.kubernetes.io/") && !slices.ContainsFunc(g.taints, func(taint corev1.Taint) bool {
			return taint.MatchTaint(&has)
		}) {
			t.Errorf("node %s has the unexpected taint %s", node.Name, has.ToString())
		}
	}
}
