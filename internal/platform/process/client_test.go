package process

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/process/fence"
)

func newClass(namespace, name string) *v1beta1.MachineClass {
	return &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MachineClassSpec{
			Provider:     "test",
			ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"test.machinist.dev/v1","kind":"Spec"}`)},
		},
	}
}

// Rule: reads-see-own-writes.
func TestReadsSeeOwnWritesAtOnce(t *testing.T) {
	c := testConfig(t)
	p := start(t, c, testOptions(), nil)
	p.elected()
	api, ns := p.Control().Client, client.InNamespace(c.LeaderElectionNamespace)
	count := func() int {
		list := &v1beta1.MachineClassList{}
		if err := api.List(t.Context(), list, ns); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	for i := range 50 {
		class := newClass(c.LeaderElectionNamespace, fmt.Sprintf("class-%d", i))
		if err := api.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != i+1 {
			t.Fatalf("%d classes after %d were created", got, i+1)
		}
		before := class.DeepCopy()
		class.Labels = map[string]string{"seen": "yes"}
		if err := api.Patch(t.Context(), class, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		read := &v1beta1.MachineClass{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(class), read); err != nil {
			t.Fatal(err)
		}
		if read.Labels["seen"] != "yes" {
			t.Fatalf("read %v, without the process's own patch", read.Labels)
		}
	}
	for i := range 50 {
		if err := api.Delete(t.Context(), newClass(c.LeaderElectionNamespace, fmt.Sprintf("class-%d", i))); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != 49-i {
			t.Fatalf("%d classes after %d of 50 were deleted", got, i+1)
		}
	}
}

func TestAReadEndsIfTheCacheCannotCatchUp(t *testing.T) {
	c, o := testConfig(t), testOptions()
	c.Namespace = newNamespace(t)
	o.ReadTimeout = 200 * time.Millisecond
	p := start(t, c, o, nil)
	p.elected()
	api := p.Control().Client
	// The cache contains only one namespace, so it never contains this object.
	outside := newClass(newNamespace(t), "outside")
	if err := api.Create(t.Context(), outside); err != nil {
		t.Fatal(err)
	}
	if err := api.List(t.Context(), &v1beta1.MachineClassList{}); !errors.Is(err, ErrBehind) {
		t.Errorf("List() = %v, want ErrBehind", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := api.List(ctx, &v1beta1.MachineClassList{}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrBehind) {
		t.Errorf("List() with a cancelled context = %v, want context.Canceled", err)
	}
	if err := api.Create(t.Context(), newClass(c.Namespace, "inside")); err != nil {
		t.Fatal(err)
	}
	list := &v1beta1.MachineClassList{}
	if err := api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "inside" {
		t.Errorf("the cache of namespace %s contains %d objects", c.Namespace, len(list.Items))
	}
}

// Rule: reads-see-own-writes.
func TestOnlyDeclaredKindsGetAnInformer(t *testing.T) {
	c := testConfig(t)
	p := start(t, c, testOptions(), nil)
	p.elected()
	cluster := p.Control()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.LeaderElectionNamespace, Name: "credentials"}}
	secret.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "the data"}
	key := client.ObjectKeyFromObject(secret)

	// The client can write objects of every kind, and creates no informer for them.
	if err := cluster.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Fatal(err)
	}
	unstructuredClass := &unstructured.Unstructured{}
	unstructuredClass.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineClass"))

	for name, read := range map[string]func() error{
		"get a Secret":                   func() error { return cluster.Client.Get(t.Context(), key, &corev1.Secret{}) },
		"list Secrets":                   func() error { return cluster.Client.List(t.Context(), &corev1.SecretList{}) },
		"list Pods":                      func() error { return cluster.Client.List(t.Context(), &corev1.PodList{}) },
		"get from the cache":             func() error { return cluster.Cache.Get(t.Context(), key, &corev1.Secret{}) },
		"list from the cache":            func() error { return cluster.Cache.List(t.Context(), &corev1.PodList{}) },
		"get an uncached kind of ours":   func() error { return cluster.Client.Get(t.Context(), key, &v1beta1.Machine{}) },
		"get a cached kind unstructured": func() error { return cluster.Client.Get(t.Context(), key, unstructuredClass) },
		"get a cached kind as metadata":  func() error { return cluster.Client.Get(t.Context(), key, classMetadata()) },
		"ask for an informer": func() error {
			_, err := cluster.Cache.GetInformer(t.Context(), &corev1.Pod{})
			return err
		},
		"ask for an informer by its kind": func() error {
			_, err := cluster.Cache.GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Secret"))
			return err
		},
		"index": func() error {
			return cluster.Cache.IndexField(t.Context(), &corev1.Pod{}, "spec.nodeName", func(client.Object) []string {
				return nil
			})
		},
		"through the manager": func() error { return p.Manager().GetClient().Get(t.Context(), key, &corev1.Secret{}) },
	} {
		if err := read(); !errors.Is(err, ErrNotCached) {
			t.Errorf("%s: %v, want ErrNotCached", name, err)
		}
	}
	if err := cluster.LiveClient.Get(t.Context(), key, &corev1.Secret{}); err != nil {
		t.Errorf("live: %v", err)
	}

	eventually(t, func() error {
		got := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
		if err := cluster.Client.Get(t.Context(), key, got); err != nil {
			return err
		}
		if got.Labels["a"] != "b" {
			return fmt.Errorf("labels are %v", got.Labels)
		}
		if len(got.Annotations) > 0 || len(got.ManagedFields) > 0 {
			t.Fatalf("cached: annotations %v, managed fields %v", got.Annotations, got.ManagedFields)
		}
		return nil
	})

	// MachineClasses are cached as typed objects. A read would not wait for the effect of an unstructured write, so the
	// client must refuse such a write.
	unstructuredClass.SetNamespace(c.LeaderElectionNamespace)
	unstructuredClass.SetName("unseen")
	if err := cluster.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(unstructuredClass)); err == nil {
		t.Error("applied a cached kind unstructured")
	}
	if err := cluster.Client.Create(t.Context(), unstructuredClass); err == nil {
		t.Error("created a cached kind unstructured")
	}
	err := cluster.LiveClient.Get(t.Context(), client.ObjectKeyFromObject(unstructuredClass), &v1beta1.MachineClass{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a refused write was sent: %v", err)
	}
}

func classMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineClass"))
	return m
}

func TestNewKindsRefusesKindsThatMustNotBeCached(t *testing.T) {
	metadataOf := func(kind string) client.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	}
	for name, test := range map[string]struct {
		kinds []Kind
		ok    bool
	}{
		"ours":                               {[]Kind{{Object: &v1beta1.Machine{}}, {Object: &v1beta1.MachineSet{}}}, true},
		"nodes":                              {[]Kind{{Object: &corev1.Node{}}}, true},
		"Secrets' metadata":                  {[]Kind{{Object: metadataOf("Secret")}}, true},
		"Secrets' metadata in one namespace": {[]Kind{{Object: metadataOf("Secret"), Namespaces: []string{"a"}}}, true},
		"Secrets' metadata in no namespace":  {[]Kind{{Object: metadataOf("Secret"), Namespaces: []string{}}}, false},
		"machines of one namespace":          {[]Kind{{Object: &v1beta1.Machine{}, Namespaces: []string{"a"}}}, false},
		"Secrets":                            {[]Kind{{Object: &corev1.Secret{}}}, false},
		"ConfigMaps":                         {[]Kind{{Object: &corev1.ConfigMap{}}}, false},
		"Pods":                               {[]Kind{{Object: &corev1.Pod{}}}, false},
		"Pods' metadata":                     {[]Kind{{Object: metadataOf("Pod")}}, false},
		"the metadata of selected Pods": {[]Kind{{Object: metadataOf("Pod"),
			Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}}, true},
		"two forms of one": {[]Kind{{Object: &corev1.Node{}}, {Object: metadataOf("Node")}}, false},
		"unstructured": {[]Kind{{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
			"kind": "Node"}}}}, false},
		"metadata without a kind": {[]Kind{{Object: &metav1.PartialObjectMetadata{}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newKinds(test.kinds, testScheme(), ""); (err == nil) != test.ok {
				t.Errorf("newKinds() = %v, want ok: %t", err, test.ok)
			}
		})
	}
}

func TestTheVersionOfTheAPIServer(t *testing.T) {
	c, err := newCluster(planes.control.Config(), clusterOptions{scheme: testScheme(), fence: fence.AlwaysOpen()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.ServerVersion(t.Context())
	want, wantErr := c.discovery.ServerVersion()
	if err != nil || wantErr != nil || got != want.GitVersion || got == "" {
		t.Errorf("ServerVersion() = %q, %v; want %+v, %v", got, err, want, wantErr)
	}
}

func TestTheMapperEqualsTheAPIServer(t *testing.T) {
	cached := map[schema.GroupVersion][]string{
		v1beta1.GroupVersion: {"MachineClass", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck",
			"MachineDisruptionBudget", "Migration", "Provider"},
		corev1.SchemeGroupVersion:       {"Secret", "ConfigMap", "Namespace", "Node", "Pod", "Service", "ServiceAccount"},
		appsv1.SchemeGroupVersion:       {"Deployment"},
		networkingv1.SchemeGroupVersion: {"NetworkPolicy"},
		rbacv1.SchemeGroupVersion:       {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},

		certificatesv1.SchemeGroupVersion: {"CertificateSigningRequest"},
		policyv1.SchemeGroupVersion:       {"PodDisruptionBudget"},
		admissionv1.SchemeGroupVersion:    {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
	}
	all := kinds{declared: map[schema.GroupVersionKind]representation{}}
	for version, kinds := range cached {
		for _, kind := range kinds {
			all.declared[version.WithKind(kind)] = asTyped
		}
	}
	mapper, api := all.mapper(meta.NewDefaultRESTMapper(nil)), clientset(t, planes.control.Config()).Discovery()
	for gvk := range all.declared {
		known, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Error(err)
			continue
		}
		list, err := api.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, served := range list.APIResources {
			if served.Name != known.Resource.Resource {
				continue
			}
			found = true
			if served.Kind != gvk.Kind || served.Namespaced != (known.Scope == meta.RESTScopeNamespace) {
				t.Errorf("%s: served as %s, namespaced: %t", gvk, served.Kind, served.Namespaced)
			}
		}
		if !found {
			t.Errorf("%s: no resource %s is served", gvk, known.Resource.Resource)
		}
	}
}
