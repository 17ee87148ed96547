package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

type testInstaller struct {
	*testing.T
	client.WithWatch
	namespace string
	writes    atomic.Int64
	// withoutService removes the Service from the chart.
	withoutService atomic.Bool
}

// newTestInstaller runs the controller during the test and removes the Providers afterwards.
func newTestInstaller(t *testing.T) *testInstaller {
	t.Helper()
	w := &testInstaller{T: t, WithWatch: env.Client(t), namespace: env.Namespace(t)}
	t.Cleanup(w.clean)
	live := interceptor.NewClient(env.Client(t), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, a ...client.ApplyOption) error {
			w.writes.Add(1)
			return c.Apply(ctx, o, a...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, a ...client.DeleteOption) error {
			w.writes.Add(1)
			return c.Delete(ctx, o, a...)
		},
	})
	env.Manager(t, func(_ context.Context, mgr manager.Manager) error {
		return installer.New(installer.Options{Client: mgr.GetClient(), LiveClient: live, Render: w.render,
			Namespace: w.namespace, Recorder: mgr.GetEventRecorder(installer.Name), Clock: clock.RealClock{},
		}).Register(mgr)
	})
	return w
}

func (w *testInstaller) clean() {
	ctx := context.Background()
	list := &v1beta1.ProviderList{}
	if err := w.List(ctx, list); err != nil {
		w.Error(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := w.Patch(ctx, p, patch); client.IgnoreNotFound(err) != nil {
			w.Error(err)
		}
		if err := w.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
			w.Error(err)
		}
		for _, ref := range p.Status.Installed {
			if err := w.Delete(ctx, emptyOf(ref)); client.IgnoreNotFound(err) != nil {
				w.Error(err)
			}
		}
	}
}

func emptyOf(ref v1beta1.InstalledObject) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(ref.APIVersion)
	o.SetKind(ref.Kind)
	o.SetNamespace(ref.Namespace)
	o.SetName(ref.Name)
	return o
}

// render renders a chart with typical objects: namespaced, cluster-scoped, in two namespaces, and a Deployment.
func (w *testInstaller) render(r installer.Release) ([]*unstructured.Unstructured, error) {
	if bad, found, _ := unstructured.NestedString(r.Values, "bad"); found {
		return nil, fmt.Errorf("bad: %q is not allowed", bad)
	}
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(r.Values, path...)
		return value
	}
	replicas, _, _ := unstructured.NestedInt64(r.Values, "replicas")
	port, _, _ := unstructured.NestedFloat64(r.Values, "port")
	args, _, _ := unstructured.NestedSlice(r.Values, "extraArgs")
	labels := map[string]any{"app": r.Name}
	object := func(apiVersion, kind, namespace string, more map[string]any) *unstructured.Unstructured {
		metadata := map[string]any{"name": r.Name, "labels": labels}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		content := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
		for key, value := range more {
			content[key] = value
		}
		return (&unstructured.Unstructured{Object: content}).DeepCopy()
	}
	rules := map[string]any{"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"nodes"},
		"verbs": []any{"get"}}}}
	const rbac = "rbac.authorization.k8s.io/v1"
	objects := []*unstructured.Unstructured{
		object("v1", "ServiceAccount", r.Namespace, nil),
		object(rbac, "ClusterRole", "", rules),
		object(rbac, "Role", "kube-system", rules),
		object("v1", "Service", r.Namespace, map[string]any{"spec": map[string]any{"selector": labels,
			"ports": []any{map[string]any{"name": "webhook", "port": int64(port) + 443, "targetPort": int64(9443)}}}}),
		object("apps/v1", "Deployment", r.Namespace, map[string]any{"spec": map[string]any{
			"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"containers": []any{map[string]any{"name": "main", "args": args,
					"image":     "registry.example.com/" + text("image", "repository") + ":" + text("image", "tag"),
					"resources": map[string]any{"requests": map[string]any{"cpu": "1000m"}},
				}}}},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", map[string]any{"webhooks": []any{}}),
	}
	if w.withoutService.Load() {
		objects = slices.Delete(objects, 3, 4)
	}
	return objects, nil
}

func (w *testInstaller) provider(name string, change func(*v1beta1.ProviderSpec)) *v1beta1.Provider {
	w.Helper()
	p := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Type, p.Spec.Image.Repository, p.Spec.Image.Tag = "acme", "acme", "v1"
	if change != nil {
		change(&p.Spec)
	}
	w.must("create the Provider", w.Create(w.Context(), p))
	return p
}

func (w *testInstaller) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func (w *testInstaller) patchSpec(name, patch string) {
	w.Helper()
	p := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.must("change the Provider",
		w.Patch(w.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// awaitCondition waits until a condition has the given status and reason for the latest generation.
func (w *testInstaller) awaitCondition(name, of string, status metav1.ConditionStatus,
	reason string) *v1beta1.Provider {
	w.Helper()
	what := fmt.Sprintf("Provider %s with %s=%s %s", name, of, status, reason)
	list := env.Await(w.T, w.WithWatch, &v1beta1.ProviderList{}, what, func(l *v1beta1.ProviderList) (bool, string) {
		for i := range l.Items {
			if p := &l.Items[i]; p.Name == name {
				c := meta.FindStatusCondition(p.Status.Conditions, of)
				return c != nil && c.Status == status && c.Reason == reason && p.Status.ObservedGeneration == p.Generation,
					fmt.Sprintf("%+v", p.Status)
			}
		}
		return false, "no such Provider"
	})
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i]
		}
	}
	return nil
}

func (w *testInstaller) deployment(name string) *appsv1.Deployment {
	w.Helper()
	d := &appsv1.Deployment{}
	w.must("read the Deployment", w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, d))
	return d
}

// simulateRollout makes the pods of a Deployment ready, and one of them the leader.
func (w *testInstaller) simulateRollout(name string) {
	w.Helper()
	d := w.deployment(name)
	for i := range *d.Spec.Replicas {
		pod := w.pod(d, fmt.Sprintf("%s-%d", name, i))
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		w.must("run a pod", w.Status().Update(w.Context(), pod))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(name + "-0_uuid")}}
	w.must("create the Lease", w.Create(w.Context(), lease))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas,
		UpdatedReplicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas, AvailableReplicas: *d.Spec.Replicas}
	w.must("report the rollout", w.Status().Update(w.Context(), d))
}

func (w *testInstaller) pod(d *appsv1.Deployment, name string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = w.namespace, name
	w.must("create a pod", w.Create(w.Context(), pod))
	return pod
}

func (w *testInstaller) isGone(o client.Object) bool {
	err := w.Get(w.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return err != nil || o.GetDeletionTimestamp() != nil
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
