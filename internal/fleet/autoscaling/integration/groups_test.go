package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

type testManager struct {
	*testing.T
	admin      client.Client
	namespace  string
	group      types.NamespacedName
	reconciler *autoscaling.Reconciler
	writes     int
}

func newTestManager(t *testing.T) *testManager {
	t.Helper()
	w := &testManager{T: t, admin: env.Client(t), namespace: env.Namespace(t)}
	w.group = types.NamespacedName{Namespace: w.namespace, Name: "web"}
	w.restart()
	return w
}

func (w *testManager) restart() {
	count := func() { w.writes++ }
	w.reconciler = autoscaling.New(autoscaling.Options{Client: interceptor.NewClient(env.Client(w.T), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			count()
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			count()
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})})
}

func (w *testManager) class(name string, capacity ...string) *v1beta1.MachineClass {
	w.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1beta1.MachineClassSpec{Provider: "test", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"kind":"X","apiVersion":"v1"}`)}}}
	w.must(w.admin.Create(w.Context(), class))
	w.resolve(class, capacity...)
	return class
}

func (w *testManager) resolve(class *v1beta1.MachineClass, capacity ...string) {
	w.Helper()
	class.Status.Capacity = corev1.ResourceList{}
	for i := 0; i < len(capacity); i += 2 {
		class.Status.Capacity[corev1.ResourceName(capacity[i])] = resource.MustParse(capacity[i+1])
	}
	w.must(w.admin.Status().Update(w.Context(), class))
}

func (w *testManager) template(class string) v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{
		ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}, Node: v1beta1.NodeTemplate{
			Labels: map[string]string{"pool": "web"},
			Taints: []corev1.Taint{{Key: "dedicated", Value: "web", Effect: corev1.TaintEffectNoSchedule}},
		}},
	}
}

func bounds(more ...string) map[string]string {
	annotations := map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "0", v1beta1.AutoscalerMaxSizeAnnotation: "4"}
	for i := 0; i < len(more); i += 2 {
		annotations[v1beta1.AutoscalerCapacityPrefix+more[i]] = more[i+1]
	}
	return annotations
}

func (w *testManager) deployment(class string, annotations map[string]string) {
	w.Helper()
	zero := int32(0)
	w.must(w.admin.Create(w.Context(), &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web", Annotations: annotations},
		Spec: v1beta1.MachineDeploymentSpec{Replicas: &zero, Template: w.template(class),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, client.FieldOwner("person")))
}

func (w *testManager) pass() (*v1beta1.MachineDeployment, int) {
	w.Helper()
	w.writes = 0
	key := types.NamespacedName{Namespace: w.namespace, Name: "MachineDeployment/web"}
	result, err := w.reconciler.Reconcile(w.Context(), reconcile.Request{NamespacedName: key})
	w.must(err)
	if result.RequeueAfter > 0 {
		w.Fatalf("asks for another pass after %s", result.RequeueAfter)
	}
	return w.read(), w.writes
}

func (w *testManager) read() *v1beta1.MachineDeployment {
	w.Helper()
	d := &v1beta1.MachineDeployment{}
	w.must(w.admin.Get(w.Context(), w.group, d))
	return d
}

func (w *testManager) edit(change func(*v1beta1.MachineDeployment)) {
	w.Helper()
	d := w.read()
	change(d)
	w.must(w.admin.Update(w.Context(), d, client.FieldOwner("person")))
}

func (w *testManager) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// expect checks that the object has exactly the wanted capacity annotations, given as pairs of a short key and a value.
func (w *testManager) expect(d client.Object, want ...string) {
	w.Helper()
	got, wanted := map[string]string{}, map[string]string{}
	for key, value := range d.GetAnnotations() {
		if name, ok := strings.CutPrefix(key, v1beta1.AutoscalerCapacityPrefix); ok {
			got[name] = value
		}
	}
	for i := 0; i < len(want); i += 2 {
		wanted[want[i]] = want[i+1]
	}
	if !maps.Equal(got, wanted) {
		w.Errorf("capacity annotations are %v, want %v", got, wanted)
	}
}

// expectCondition fails unless ScalableFromZero has this status and reason. If the given status is empty, the condition
// must not exist.
func (w *testManager) expectCondition(d *v1beta1.MachineDeployment, status metav1.ConditionStatus, reason string) {
	w.Helper()
	c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionScalableFromZero)
	if c == nil {
		c = &metav1.Condition{}
	}
	if c.Status != status || c.Reason != reason {
		w.Errorf("ScalableFromZero is %s %s (%s), want %s %s", c.Status, c.Reason, c.Message, status, reason)
	}
}

func (w *testManager) wrote(n, want int) {
	w.Helper()
	if n != want {
		w.Errorf("%d writes, want %d", n, want)
	}
}

const pool, dedicated = "pool=web", "dedicated=web:NoSchedule"

// Rules: capacity-of-empty-node-groups.
func TestOneWriteForEachChangeAndNoneOtherwise(t *testing.T) {
	w := newTestManager(t)
	small, large := w.class("small", "cpu", "2", "memory", "8Gi"), w.class("large", "cpu", "8", "memory", "32Gi", "pods", "50")
	w.deployment(small.Name, bounds())

	d, writes := w.pass()
	w.wrote(writes, 1)
	w.expect(d, "cpu", "2", "memory", "8Gi", "labels", pool, "taints", dedicated)
	w.expectCondition(d, "", "")
	_, writes = w.pass()
	w.wrote(writes, 0)
	w.restart()
	_, writes = w.pass()
	w.wrote(writes, 0)

	w.Log("another class, as by a rollout")
	w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = large.Name })
	d, writes = w.pass()
	w.wrote(writes, 1)
	w.expect(d, "cpu", "8", "memory", "32Gi", "maxPods", "50", "labels", pool, "taints", dedicated)

	w.Log("the provider finds out something else")
	w.resolve(large, "cpu", "7", "memory", "32Gi")
	d, writes = w.pass()
	w.wrote(writes, 1)
	w.expect(d, "cpu", "7", "memory", "32Gi", "labels", pool, "taints", dedicated)

	w.Log("a person removes one, and it is filled in again")
	w.edit(func(d *v1beta1.MachineDeployment) { delete(d.Annotations, v1beta1.AutoscalerCPUAnnotation) })
	d, writes = w.pass()
	w.wrote(writes, 1)
	w.expect(d, "cpu", "7", "memory", "32Gi", "labels", pool, "taints", dedicated)

	w.Log("no node group any more")
	w.edit(func(d *v1beta1.MachineDeployment) {
		delete(d.Annotations, v1beta1.AutoscalerMinSizeAnnotation)
		delete(d.Annotations, v1beta1.AutoscalerMaxSizeAnnotation)
	})
	d, writes = w.pass()
	w.wrote(writes, 1)
	w.expect(d)
	_, writes = w.pass()
	w.wrote(writes, 0)
}

// Rules: capacity-annotations-of-people-stay.
func TestWhatAPersonWroteStaysThroughTenRollouts(t *testing.T) {
	w := newTestManager(t)
	theirs := bounds("cpu", " 3.5", "labels", "gpu=yes, odd ", "gpu-type", "", "taints", dedicated)
	for i := range 11 {
		w.class(fmt.Sprintf("class-%d", i), "cpu", fmt.Sprint(i+1), "memory", fmt.Sprintf("%dGi", i+1), "nvidia.com/gpu", "1")
	}
	w.deployment("class-0", theirs)
	for i := range 11 {
		w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = fmt.Sprintf("class-%d", i) })
		if i == 5 {
			w.restart()
		}
		d, _ := w.pass()
		for key, value := range theirs {
			if got, found := d.Annotations[key]; !found || got != value {
				t.Errorf("rollout %d: %s is %q, want %q", i, key, got, value)
			}
		}
		if got, want := d.Annotations[v1beta1.AutoscalerMemoryAnnotation], fmt.Sprintf("%dGi", i+1); got != want {
			t.Errorf("rollout %d: memory is %s, want %s", i, got, want)
		}
		_, writes := w.pass()
		w.wrote(writes, 0)
	}

	w.Log("without a class ours go, and theirs stay")
	w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "nowhere" })
	d, _ := w.pass()
	w.expect(d, "cpu", " 3.5", "labels", "gpu=yes, odd ", "gpu-type", "", "taints", dedicated)
	_, writes := w.pass()
	w.wrote(writes, 0)
}

// A user who overwrites or applies a value becomes its owner.
//
// Rules: capacity-annotations-of-people-stay.
func TestAPersonTakesOver(t *testing.T) {
	w := newTestManager(t)
	w.class("small", "cpu", "2", "memory", "8Gi")
	w.class("large", "cpu", "8", "memory", "32Gi")
	w.deployment("small", bounds())
	w.pass()

	w.edit(func(d *v1beta1.MachineDeployment) { d.Annotations[v1beta1.AutoscalerCPUAnnotation] = "1" })
	d, _ := w.pass()
	w.expect(d, "cpu", "1", "memory", "8Gi", "labels", pool, "taints", dedicated)
	_, writes := w.pass()
	w.wrote(writes, 0)

	applied := &metav1.PartialObjectMetadata{}
	applied.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineDeployment"))
	applied.Namespace, applied.Name = w.group.Namespace, w.group.Name
	applied.Annotations = map[string]string{v1beta1.AutoscalerMemoryAnnotation: "8Gi"}
	w.must(w.admin.Patch(w.Context(), applied, client.Apply, client.FieldOwner("gitops")))
	w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "large" })
	d, _ = w.pass()
	w.expect(d, "cpu", "1", "memory", "8Gi", "labels", pool, "taints", dedicated)
	_, writes = w.pass()
	w.wrote(writes, 0)

	w.Log("what they let go is ours again")
	w.edit(func(d *v1beta1.MachineDeployment) {
		delete(d.Annotations, v1beta1.AutoscalerCPUAnnotation)
		delete(d.Annotations, v1beta1.AutoscalerMemoryAnnotation)
	})
	d, _ = w.pass()
	w.expect(d, "cpu", "8", "memory", "32Gi", "labels", pool, "taints", dedicated)
}

// Rules: empty-node-groups-report-unknown-capacity.
func TestAGroupReportsThatItsCapacityIsUnknown(t *testing.T) {
	w := newTestManager(t)
	w.deployment("small", bounds())
	d, writes := w.pass()
	w.wrote(writes, 1)
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonClassNotFound)
	_, writes = w.pass()
	w.wrote(writes, 0)

	small := w.class("small")
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonCapacityUnknown)
	w.expect(d, "labels", pool, "taints", dedicated)

	w.resolve(small, "cpu", "2", "memory", "8Gi")
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionTrue, v1beta1.ReasonCapacityKnown)
	_, writes = w.pass()
	w.wrote(writes, 0)

	w.edit(func(d *v1beta1.MachineDeployment) { d.Annotations[v1beta1.AutoscalerMaxPodsAnnotation] = "lots" })
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonMalformedCapacity)

	w.edit(func(d *v1beta1.MachineDeployment) {
		for _, key := range []string{v1beta1.AutoscalerMaxPodsAnnotation, v1beta1.AutoscalerMinSizeAnnotation,
			v1beta1.AutoscalerMaxSizeAnnotation} {
			delete(d.Annotations, key)
		}
	})
	d, _ = w.pass()
	w.expectCondition(d, "", "")
	w.expect(d)

	w.Log("a template without a class")
	w.edit(func(d *v1beta1.MachineDeployment) {
		d.Annotations = bounds()
		d.Spec.Template.Spec.ClassRef = nil
		d.Spec.Template.Spec.Provider = "test"
		d.Spec.Template.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"X","apiVersion":"v1"}`)}
	})
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonNoClass)
	w.edit(func(d *v1beta1.MachineDeployment) {
		maps.Copy(d.Annotations, bounds("cpu", "1", "memory", "1Gi"))
	})
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionTrue, v1beta1.ReasonCapacityKnown)
}

// A MachineSet without an owner is a node group. A MachineDeployment with the same name may exist.
func TestAMachineSetIsANodeGroup(t *testing.T) {
	w := newTestManager(t)
	w.class("small", "cpu", "2", "memory", "8Gi")
	w.deployment("small", nil)
	zero := int32(0)
	w.must(w.admin.Create(w.Context(), &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web", Annotations: bounds()},
		Spec: v1beta1.MachineSetSpec{Replicas: &zero, Template: w.template("small"),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}))
	key := types.NamespacedName{Namespace: w.namespace, Name: "MachineSet/web"}
	_, err := w.reconciler.Reconcile(w.Context(), reconcile.Request{NamespacedName: key})
	w.must(err)
	d, writes := w.pass()
	w.wrote(writes, 0)
	w.expect(d)
	set := &v1beta1.MachineSet{}
	w.must(w.admin.Get(w.Context(), w.group, set))
	w.expect(set, "cpu", "2", "memory", "8Gi", "labels", pool, "taints", dedicated)
}

// The group is deleted between the read and the apply request.
func TestADeletedGroupIsNotMadeAgain(t *testing.T) {
	w := newTestManager(t)
	w.class("small", "cpu", "2", "memory", "8Gi")
	w.deployment("small", bounds())
	admin := env.Client(t)
	r := autoscaling.New(autoscaling.Options{Client: interceptor.NewClient(admin, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			w.must(client.IgnoreNotFound(c.Delete(ctx, o.DeepCopyObject().(client.Object))))
			return c.Patch(ctx, o, p, opts...)
		},
	})})
	key := types.NamespacedName{Namespace: w.namespace, Name: "MachineDeployment/web"}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Error(err)
	}
	if err := admin.Get(t.Context(), w.group, &v1beta1.MachineDeployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("the group: %v", err)
	}
}
