package migration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

const migratorUser = "machinist-migrator-sim"

func clientOf(t testing.TB, user string) client.Client {
	t.Helper()
	return clientFor(t, env.Impersonate(user))
}

func clientFor(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func oldKinds(t testing.TB, group string) {
	t.Helper()
	definitions := append(sources.CRDs(group), sources.LinkedCRDs(group)...)
	if err := install.Apply(context.Background(), env.Config(), definitions...); err != nil {
		t.Fatal(err)
	}
}

// installPolicies installs the policies of a migrator as the chart does.
func installPolicies(t testing.TB, namespaces ...string) {
	t.Helper()
	system := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: manifests.Namespace}}
	objects := append([]client.Object{system}, manifests.MigrationPolicies("sim", namespaces...)...)
	if err := install.Apply(context.Background(), env.Config(), objects...); err != nil {
		t.Fatal(err)
	}
}

// fencedBy writes the ConfigMap of a fence, and waits until the policy refuses a request.
func fencedBy(t testing.TB, m *v1beta1.Migration, record *corev1.ConfigMap, policy string, refused func() error) {
	t.Helper()
	ctx := context.Background()
	r := &Reconciler{Options: Options{Control: env.Client(t), SystemNamespace: manifests.Namespace}}
	if changed, err := r.writeRecord(ctx, record); err != nil || !changed {
		t.Fatalf("write the record: changed %t, %v", changed, err)
	}
	t.Cleanup(func() {
		if err := r.removeRecord(ctx, m); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the policy "+policy+" is in force", func() bool { return refusedBy(refused(), policy) })
	have := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.Control.Get(ctx, client.ObjectKey{Name: policy}, have); err != nil {
		t.Fatal(err)
	}
	if checking := have.Status.TypeChecking; checking != nil && len(checking.ExpressionWarnings) > 0 {
		t.Errorf("the API server warns: %v", checking.ExpressionWarnings)
	}
	if changed, err := r.writeRecord(ctx, record); err != nil || changed {
		t.Errorf("an unchanged record is reported as changed: %v", err)
	}
}

func refusedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), "'"+policy+"'")
}

// eventually polls until done returns true. The API server sends no event when it begins to apply a policy.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(env.Patience); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited %s until %s", env.Patience, what)
		}
	}
}

type try struct {
	what    string
	as      client.Client
	do      func(client.Client) error
	allowed bool
}

func (c try) run(t *testing.T, policy string) {
	t.Helper()
	switch err := c.do(c.as); {
	case c.allowed && err != nil:
		t.Errorf("%s is refused: %v", c.what, err)
	case !c.allowed && err == nil:
		t.Errorf("%s is allowed", c.what)
	case !c.allowed && !refusedBy(err, policy):
		t.Errorf("%s is refused, but not by the policy: %v", c.what, err)
	}
}

func oldObject(group, version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
	o.SetAPIVersion(group + "/" + version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func lease(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// The expressions of the policies need a real API server.
func TestPolicies(t *testing.T) {
	env.Start(t)
	t.Run("only the migrator changes old objects", testOnlyTheMigratorChangesOldObjects)
	t.Run("only the migrator changes cluster-scoped old objects", testOnlyTheMigratorChangesClusterScopedOldObjects)
	t.Run("only the migrator changes the objects that it created", testOnlyTheMigratorChangesCreatedObjects)
	t.Run("a finalizer leaves the specification as it is", testFinalizerLeavesSpec)
}

// testOnlyTheMigratorChangesOldObjects sends requests of an old controller, a user and the garbage collector.
//
// Rule: migration-old-objects-closed.
func testOnlyTheMigratorChangesOldObjects(t *testing.T) {
	const group = provider.SourceClusterK8s
	ctx := context.Background()
	oldKinds(t, group)
	namespace, elsewhere := env.Namespace(t), env.Namespace(t)
	admin, migrator, other := env.Client(t), clientOf(t, migratorUser), clientOf(t, "old-controller")
	for _, o := range []client.Object{
		oldObject(group, "v1alpha1", "MachineSet", namespace, "set"),
		oldObject(group, "v1alpha1", "MachineSet", namespace, "doomed"),
		oldObject(group, "v1alpha1", "MachineSet", elsewhere, "set"),
		lease(namespace, "machine-controller"), lease(namespace, "another"), lease(elsewhere, "machine-controller"),
		lease(metav1.NamespaceSystem, "kube-other"),
	} {
		eventually(t, "the API server accepts "+o.GetName(), func() bool {
			return client.IgnoreAlreadyExists(admin.Create(ctx, o)) == nil
		})
	}
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "closed"},
		Spec: v1beta1.MigrationSpec{Source: group, Provider: "sim"}}
	// The policies protect only the first Lease. The second Lease is in a namespace that is not in the value
	// migrator.namespaces of the chart. The name of the third Lease contains the name of another Lease. The fourth
	// Lease, kube-other, belongs to a component of Kubernetes.
	leases := []v1beta1.MigrationLease{{Namespace: namespace, Name: "machine-controller"},
		{Namespace: elsewhere, Name: "machine-controller"}, {Namespace: namespace, Name: "x," + namespace + "/another,"},
		{Namespace: metav1.NamespaceSystem, Name: "kube-other"}}
	installPolicies(t, namespace, metav1.NamespaceSystem)
	record := fenceRecord(manifests.Namespace, m, migratorUser, leases, fenceScope{})
	policy := policyOfOldObjects("sim")
	set := func(namespace string) *unstructured.Unstructured {
		return oldObject(group, "v1alpha1", "MachineSet", namespace, "set")
	}
	dry := client.DryRunAll
	create := func(o client.Object) func(client.Client) error {
		return func(c client.Client) error { return c.Create(ctx, o.DeepCopyObject().(client.Object), dry) }
	}
	patch := func(o client.Object, text string) func(client.Client) error {
		return func(c client.Client) error { return c.Patch(ctx, o.DeepCopyObject().(client.Object), merge(text), dry) }
	}
	status := func(c client.Client) error {
		return c.Status().Patch(ctx, set(namespace), merge(`{"status":{"replicas":1}}`), dry)
	}
	scale := func(c client.Client) error {
		return c.SubResource("scale").Update(ctx, set(namespace), client.WithSubResourceBody(
			&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}), dry)
	}
	remove := func(o client.Object) func(client.Client) error {
		return func(c client.Client) error { return c.Delete(ctx, o.DeepCopyObject().(client.Object), dry) }
	}
	marked := func(o client.Object, value string) client.Object {
		o.SetAnnotations(map[string]string{v1beta1.AnnotationFenceProbe: value})
		return o
	}
	labels := `{"metadata":{"labels":{"a":"b"}}}`
	t.Run("the namespace", func(t *testing.T) {
		fencedBy(t, m, record, policy, func() error { return patch(set(namespace), labels)(other) })
		made := oldObject(group, "v1alpha1", "MachineSet", namespace, "new")
		deleteAll := func(o client.Object) func(client.Client) error {
			return func(c client.Client) error { return c.DeleteAllOf(ctx, o, client.InNamespace(namespace), dry) }
		}
		value := record.Data[recordProbe]
		probe := marked(lease(namespace, probeLease), value)
		for _, c := range []try{
			{"another's creation", other, create(made), false},
			{"another's change", other, patch(set(namespace), labels), false},
			{"another's change of the status", other, status, false},
			{"another's scaling", other, scale, false},
			{"another's deletion", other, remove(set(namespace)), false},
			{"another's deletion of all", other, deleteAll(set("")), false},
			{"the administrator's deletion", admin, remove(set(namespace)), false},
			{"the migrator's creation", migrator, create(made), true},
			{"the migrator's change", migrator, patch(set(namespace), labels), true},
			{"the migrator's change of the status", migrator, status, true},
			{"the migrator's scaling", migrator, scale, true},
			{"the migrator's deletion", migrator, remove(set(namespace)), true},
			{"the migrator's deletion of all", migrator, deleteAll(set("")), true},
			{"another's change in another namespace", other, patch(set(elsewhere), labels), true},
			{"another's deletion in another namespace", other, remove(set(elsewhere)), true},

			{"another's renewal of the Lease", other, patch(lease(namespace, "machine-controller"),
				`{"spec":{"holderIdentity":"old"}}`), false},
			{"another's deletion of the Lease", other, remove(lease(namespace, "machine-controller")), false},
			{"another's deletion of all Leases", other, deleteAll(&coordinationv1.Lease{}), false},
			{"the migrator's renewal of the Lease", migrator, patch(lease(namespace, "machine-controller"),
				`{"spec":{"holderIdentity":"us"}}`), true},
			{"the migrator's deletion of the Lease", migrator, remove(lease(namespace, "machine-controller")), true},
			{"another's Lease of another name", other, patch(lease(namespace, "another"), `{"spec":{"holderIdentity":"x"}}`),
				true},
			{"another's Lease with the same name in another namespace", other, patch(lease(elsewhere, "machine-controller"),
				`{"spec":{"holderIdentity":"x"}}`), true},
			{"another's Lease of Kubernetes", other, patch(lease(metav1.NamespaceSystem, "kube-other"),
				`{"spec":{"holderIdentity":"x"}}`), true},

			{"the migrator's probe", migrator, create(probe), false},
			{"another's probe", other, create(probe), false},
			{"a probe of another version", migrator, create(marked(lease(namespace, probeLease), "older")), true},
			{"a probe in another namespace", migrator, create(marked(lease(elsewhere, probeLease), value)), true},
			{"the probe's annotation on an old object", migrator, patch(set(namespace),
				`{"metadata":{"annotations":{"`+v1beta1.AnnotationFenceProbe+`":"`+value+`"}}}`), false},
		} {
			c.run(t, policy)
		}
	})
	t.Run("the record has another name", func(t *testing.T) {
		// A provider may label the ConfigMaps that it writes.
		forged := record.DeepCopy()
		forged.Name, forged.UID, forged.ResourceVersion = "machinist-orphans", "", ""
		eventually(t, "nothing is protected", func() bool { return patch(set(namespace), labels)(other) == nil })
		if err := admin.Create(ctx, forged); err != nil {
			t.Fatal(err)
		}
		later := record.DeepCopy() // An API server that has this record also has the forged record.
		later.UID, later.ResourceVersion = "", ""
		later.Data[recordSourceNamespace] = elsewhere
		fencedBy(t, m, later, policy, func() error { return patch(set(elsewhere), labels)(other) })
		try{"another's change", other, patch(set(namespace), labels), true}.run(t, policy)
		if err := admin.Delete(ctx, forged); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("everywhere", func(t *testing.T) {
		wide := fenceRecord(manifests.Namespace, m, migratorUser, leases, fenceScope{allNamespaces: true})
		eventually(t, "nothing is protected", func() bool { return patch(set(namespace), labels)(other) == nil })
		fencedBy(t, m, wide, policy, func() error { return patch(set(elsewhere), labels)(other) })
		for _, c := range []try{
			{"another's deletion in another namespace", other, remove(set(elsewhere)), false},
			{"another's creation in another namespace", other,
				create(oldObject(group, "v1alpha1", "MachineSet", elsewhere, "new")), false},
			{"the migrator's change in another namespace", migrator, patch(set(elsewhere), labels), true},
			{"another's Lease with the same name in another namespace", other, patch(lease(elsewhere, "machine-controller"),
				`{"spec":{"holderIdentity":"x"}}`), true},
		} {
			c.run(t, policy)
		}
	})
}

// Rule: migration-old-objects-closed.
func testOnlyTheMigratorChangesClusterScopedOldObjects(t *testing.T) {
	const group = provider.SourceMachineK8s
	ctx := context.Background()
	oldKinds(t, group)
	migrator, other := clientOf(t, migratorUser), clientOf(t, "old-controller")
	object := oldObject(group, "v1alpha1", "Machine", "", "closed")
	eventually(t, "the API server accepts the machine", func() bool {
		return client.IgnoreAlreadyExists(other.Create(ctx, object.DeepCopy())) == nil
	})
	t.Cleanup(func() { _ = other.Delete(ctx, object.DeepCopy()) })
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "closed"},
		Spec: v1beta1.MigrationSpec{Source: group, Provider: "sim"}}
	installPolicies(t, "kube-system")
	policy := policyOfOldObjects("sim")
	remove := func(c client.Client) error { return c.Delete(ctx, object.DeepCopy(), client.DryRunAll) }
	fencedBy(t, m, fenceRecord(manifests.Namespace, m, migratorUser, nil, fenceScope{}), policy,
		func() error { return remove(other) })
	try{"another's deletion", other, remove, false}.run(t, policy)
	try{"the migrator's deletion", migrator, remove, true}.run(t, policy)
}

// testOnlyTheMigratorChangesCreatedObjects sends requests of users, autoscalers and Machinist's processes.
//
// Rules: migration-copies-closed, migration-marks-by-label-and-origin.
func testOnlyTheMigratorChangesCreatedObjects(t *testing.T) {
	ctx := context.Background()
	namespace, elsewhere := env.Namespace(t), env.Namespace(t)
	migrator, other := clientOf(t, migratorUser), clientOf(t, "machinist-manager")
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stays"},
		Spec: v1beta1.MigrationSpec{Source: provider.SourceClusterK8s, Provider: "sim"}}
	installPolicies(t, namespace)
	policy := policyOfCopies("sim")
	set := func(namespace, name string, labels map[string]string) *v1beta1.MachineSet {
		s := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		s.Spec.Selector.MatchLabels = map[string]string{"pool": name}
		s.Spec.Template.ObjectMeta.Labels = s.Spec.Selector.MatchLabels
		s.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: "class"}
		s.Spec.Replicas = new(int32(1))
		return s
	}
	ours := map[string]string{v1beta1.LabelMigration: "stays", v1beta1.LabelFreeze: v1beta1.FreezeMigration}
	made := func(o client.Object) client.Object {
		annotate(o, v1beta1.AnnotationMigratedFrom, "group/old/web/uid")
		return o
	}
	secret := func(name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	for _, o := range []client.Object{made(set(namespace, "ours", ours)), set(namespace, "theirs", nil),
		set(namespace, "labelled", ours), made(set(elsewhere, "ours", ours)), made(secret("ours", ours)),
		secret("labelled", ours)} {
		if err := other.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	ofSecret := func(name, text string) func(client.Client) error {
		return func(c client.Client) error { return c.Patch(ctx, secret(name, nil), merge(text), client.DryRunAll) }
	}
	removeSecret := func(name string) func(client.Client) error {
		return func(c client.Client) error { return c.Delete(ctx, secret(name, nil), client.DryRunAll) }
	}
	noLabel := `{"metadata":{"labels":{"machinist.dev/migration":null}}}`
	noOrigin := `{"metadata":{"annotations":{"machinist.dev/migrated-from":null}}}`
	patch := func(namespace, name, text string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(ctx, set(namespace, name, nil), merge(text), client.DryRunAll)
		}
	}
	remove := func(namespace, name string) func(client.Client) error {
		return func(c client.Client) error { return c.Delete(ctx, set(namespace, name, nil), client.DryRunAll) }
	}
	scale := func(namespace, name string) func(client.Client) error {
		return func(c client.Client) error {
			return c.SubResource("scale").Update(ctx, set(namespace, name, nil), client.WithSubResourceBody(
				&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}), client.DryRunAll)
		}
	}
	status := func(c client.Client) error {
		return c.Status().Patch(ctx, set(namespace, "ours", nil), merge(`{"status":{"replicas":1}}`), client.DryRunAll)
	}
	smaller := `{"spec":{"replicas":0}}`
	fencedBy(t, m, fenceRecord(manifests.Namespace, m, migratorUser, nil, fenceScope{}), policy,
		func() error { return patch(namespace, "ours", smaller)(other) })
	for _, c := range []try{
		{"a change of the specification", other, patch(namespace, "ours", smaller), false},
		{"scaling", other, scale(namespace, "ours"), false},
		{"a deletion", other, remove(namespace, "ours"), false},
		{"thawing", other, patch(namespace, "ours", `{"metadata":{"labels":{"machinist.dev/freeze":null}}}`), false},
		{"removing the label", other, patch(namespace, "ours", noLabel), false},
		{"removing the origin", other, patch(namespace, "ours", noOrigin), false},
		{"adding another label", other, patch(namespace, "ours", `{"metadata":{"labels":{"a":"b"}}}`), true},
		{"adding a finalizer", other, patch(namespace, "ours", `{"metadata":{"finalizers":["example.com/f"]}}`), true},
		{"pausing", other, patch(namespace, "ours", `{"metadata":{"annotations":{"machinist.dev/paused":""}}}`), true},
		{"a status update", other, status, true},
		{"a change of an object of another owner", other, patch(namespace, "theirs", smaller), true},
		{"a deletion of an object of another owner", other, remove(namespace, "theirs"), true},
		{"a change of an object with only the label", other, patch(namespace, "labelled", smaller), true},
		{"removing the label of an object with only the label", other, patch(namespace, "labelled", noLabel), true},
		{"a deletion of a Secret", other, removeSecret("ours"), false},
		{"removing the label of a Secret", other, ofSecret("ours", noLabel), false},
		{"removing the origin of a Secret", other, ofSecret("ours", noOrigin), false},
		{"changing the data of a Secret", other, ofSecret("ours", `{"stringData":{"token":"new"}}`), true},
		{"adding a finalizer to a Secret", other, ofSecret("ours", `{"metadata":{"finalizers":["example.com/f"]}}`), true},
		{"a deletion of a Secret with only the label", other, removeSecret("labelled"), true},
		{"the migrator's deletion of a Secret", migrator, removeSecret("ours"), true},
		{"a change in another namespace", other, patch(elsewhere, "ours", smaller), true},
		{"scaling in another namespace", other, scale(elsewhere, "ours"), true},
		{"the migrator's change", migrator, patch(namespace, "ours", smaller), true},
		{"the migrator's scaling", migrator, scale(namespace, "ours"), true},
		{"the migrator's deletion", migrator, remove(namespace, "ours"), true},
		{"the migrator's end of the freeze", migrator, patch(namespace, "ours", `{"metadata":{"labels":{"machinist.dev/freeze":null}}}`),
			true},
	} {
		c.run(t, policy)
	}
}

// testFinalizerLeavesSpec patches the finalizer. A policy refuses each change of the spec by a migrator, even the
// removal of an empty field.
//
// Rule: migrator-changes-only-migrations.
func testFinalizerLeavesSpec(t *testing.T) {
	ctx, c := context.Background(), env.Client(t)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": provider.SourceClusterK8s,
		"provider": "sim", "sourceNamespace": "", "accept": []any{}, "processFlags": map[string]any{}}}}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("Migration"))
	object.SetNamespace(env.Namespace(t))
	object.SetName("empty")
	if err := c.Create(ctx, object); err != nil {
		t.Fatal(err)
	}
	m := &v1beta1.Migration{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), m); err != nil {
		t.Fatal(err)
	}
	p := &pass{Reconciler: New(Options{Control: c}), migration: m}
	if err := p.ensureFinalizer(ctx); err != nil {
		t.Fatal(err)
	}
	if len(m.Finalizers) != 1 || m.Generation != object.GetGeneration() {
		t.Errorf("got finalizers %q and generation %d, want one finalizer and generation %d", m.Finalizers, m.Generation,
			object.GetGeneration())
	}
}

// Rule: migration-old-objects-closed.
func TestChangedRecordOfFenceIsRestored(t *testing.T) {
	ctx := context.Background()
	admin := env.Client(t)
	r := &Reconciler{Options: Options{Control: admin, SystemNamespace: manifests.Namespace}}
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "right"},
		Spec: v1beta1.MigrationSpec{Source: provider.SourceGardener, Provider: "sim"}}
	want := func() *corev1.ConfigMap { return fenceRecord(manifests.Namespace, m, migratorUser, nil, fenceScope{}) }
	if _, err := r.writeRecord(ctx, want()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.removeRecord(ctx, m) })
	for what, spoil := range map[string]func(*corev1.ConfigMap){
		"another user":      func(c *corev1.ConfigMap) { c.Data[recordUser] = "other" },
		"no source":         func(c *corev1.ConfigMap) { delete(c.Data, recordSource) },
		"the copies opened": func(c *corev1.ConfigMap) { c.Data[recordCopies] = "Open" },
		"no data":           func(c *corev1.ConfigMap) { c.Data = nil },
		"no label":          func(c *corev1.ConfigMap) { c.Labels = nil },
	} {
		have := &corev1.ConfigMap{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(want()), have); err != nil {
			t.Fatal(err)
		}
		spoil(have)
		if err := admin.Update(ctx, have); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if changed, err := r.writeRecord(ctx, want()); err != nil || !changed {
			t.Errorf("%s: the record is not restored: %v", what, err)
		}
		if changed, err := r.writeRecord(ctx, want()); err != nil || changed {
			t.Errorf("%s: the record is changed again: %v", what, err)
		}
	}
	if err := r.removeRecord(ctx, m); err != nil {
		t.Fatal(err)
	}
	if exists, err := r.recordExists(ctx, m); err != nil || exists {
		t.Errorf("the record exists: %t, %v", exists, err)
	}
}

func TestRecordsOfFencesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, key := range [][2]string{{"a", "b-c"}, {"a-b", "c"}, {"a-b", "d"}} {
		m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: key[0], Name: key[1]}}
		record := fenceRecord("system", m, migratorUser, nil, fenceScope{})
		for _, text := range []string{record.Name, record.Data[recordProbe]} {
			if other, found := seen[text]; found {
				t.Errorf("%v and %s both have %s", key, other, text)
			}
			seen[text] = fmt.Sprint(key)
		}
	}
}

func TestFenceNeedsPoliciesOfChart(t *testing.T) {
	installPolicies(t, "default")
	r := &Reconciler{Options: Options{Control: env.Client(t), SystemNamespace: manifests.Namespace}}
	if missing, err := r.missingPolicy(context.Background(), "sim"); err != nil || missing != "" {
		t.Errorf("got missing %q, %v", missing, err)
	}
	missing, err := r.missingPolicy(context.Background(), "other")
	if err != nil || !strings.Contains(missing, "machinist-migrator-other-old does not exist") ||
		!strings.Contains(missing, "migrator.enabled=true") {
		t.Errorf("got missing %q, %v; want the name of the policy and the value of the chart", missing, err)
	}
	r.SystemNamespace = "elsewhere"
	missing, err = r.missingPolicy(context.Background(), "sim")
	if err != nil || !strings.Contains(missing, "does not use the ConfigMaps of namespace elsewhere") {
		t.Errorf("got missing %q, %v; want that the migrator runs in another namespace", missing, err)
	}
}

// The roles must name each object that the migrator deletes.
func TestRoleNamesAllDefinitionsOfOldKinds(t *testing.T) {
	text, err := os.ReadFile("../../../config/rbac/migrator-control.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for group, system := range source.Systems() {
		for _, kind := range system.Kinds() {
			name := kind.Resource + "." + group
			if listed := strings.Contains(string(text), "- "+name+"\n"); listed == keepsKinds(group) {
				t.Errorf("the role names the definition %s: %t", name, listed)
			}
		}
	}
}

// A migrator reads bootstrap configs, which contain tokens, only in the namespaces of migrations, and it cannot delete
// a Cluster or its infrastructure.
func TestRolesForClusterAPI(t *testing.T) {
	const infrastructure, bootstrap = "infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"
	allows := func(file, group, resource, verb string) bool {
		text, err := os.ReadFile("../../../config/rbac/migrator-" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.ClusterRole{} // the first document
		if err := yaml.Unmarshal(bytes.Split(text, []byte("\n---\n"))[0], role); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Verbs, verb) &&
				(slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, resource))
		})
	}
	for _, access := range []struct {
		file, group, resource, verb string
		want                        bool
	}{
		{"control", bootstrap, "kubeadmconfigs", "list", false},
		{"control", infrastructure, "azuremachines", "list", false},
		{"control", infrastructure, "azureclusteridentities", "list", true},
		{"control", infrastructure, "openstackclusteridentities", "list", true},
		{"namespace", bootstrap, "kubeadmconfigs", "list", true},
		{"namespace", bootstrap, "kubeadmconfigs", "delete", true},
		{"namespace", infrastructure, "azureclusters", "list", true},
		{"namespace", infrastructure, "azureclusters", "delete", false},
		{"namespace", infrastructure, "PROVIDERmachines", "delete", true},
		{"namespace", infrastructure, "openstackservers", "delete", true},
		{"namespace", provider.SourceClusterAPI, "clusters", "patch", true},
		{"namespace", provider.SourceClusterAPI, "clusters", "delete", false},
	} {
		if got := allows(access.file, access.group, access.resource, access.verb); got != access.want {
			t.Errorf("migrator-%s: %s of %s.%s is allowed: %t", access.file, access.verb, access.resource, access.group, got)
		}
	}
	for _, kind := range source.Systems()[provider.SourceClusterAPI].Kinds() {
		want := kind.Role != source.RoleOther
		if got := allows("namespace", kind.Group, kind.Resource, "delete"); got != want {
			t.Errorf("the deletion of %s is allowed: %t", kind.Resource, got)
		}
	}
}
