package migration

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// migratorUser is the migrator's user name at the API server.
const migratorUser = "machinist-migrator-sim"

// clientOf returns a client of a user with all permissions.
func clientOf(t testing.TB, user string) client.Client {
	t.Helper()
	return clientFor(t, env.As(user))
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

// oldKinds installs the definitions of an old system's kinds.
func oldKinds(t testing.TB, group string) {
	t.Helper()
	if err := install.Apply(context.Background(), env.Config(), sources.CRDs(group)...); err != nil {
		t.Fatal(err)
	}
}

// fencedBy creates a policy and waits until the API server applies it.
func fencedBy(t testing.TB, want *admissionv1.ValidatingAdmissionPolicy, refused func() error) {
	t.Helper()
	ctx := context.Background()
	r := &Reconciler{Options: Options{Control: env.Client(t), Clock: testclock.NewFakeClock(time.Now())}}
	if changed, err := r.applyPolicy(ctx, want); err != nil || !changed {
		t.Fatalf("create the policy: changed %t, %v", changed, err)
	}
	t.Cleanup(func() {
		if err := r.removePolicy(ctx, want.Name); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the policy "+want.Name+" is in force", func() bool { return refusedBy(refused(), want.Name) })
	have := &admissionv1.ValidatingAdmissionPolicy{}
	if err := r.Control.Get(ctx, client.ObjectKey{Name: want.Name}, have); err != nil {
		t.Fatal(err)
	}
	if checking := have.Status.TypeChecking; checking != nil && len(checking.ExpressionWarnings) > 0 {
		t.Errorf("the API server warns: %v", checking.ExpressionWarnings)
	}
	if changed, err := r.applyPolicy(ctx, want); err != nil || changed {
		t.Errorf("an unchanged policy is reported as changed: %v", err)
	}
}

func refusedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), "'"+policy+"'")
}

// eventually polls until done returns true. The API server has no event for the moment from which it applies something.
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

// try is a write, and whether a policy allows it.
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

// A real API server compiles and evaluates the expressions of the policies.
func TestPolicies(t *testing.T) {
	env.Start(t)
	t.Run("only the migrator changes old objects", testOnlyTheMigratorChangesOldObjects)
	t.Run("only the migrator changes cluster-scoped old objects", testOnlyTheMigratorChangesClusterScopedOldObjects)
	t.Run("only the migrator changes the objects that it created", testOnlyTheMigratorChangesCreatedObjects)
}

// testOnlyTheMigratorChangesOldObjects tries what an old controller, a user and the garbage collector might do.
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
	} {
		eventually(t, "the API server accepts "+o.GetName(), func() bool {
			return client.IgnoreAlreadyExists(admin.Create(ctx, o)) == nil
		})
	}
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "closed"},
		Spec: v1beta1.MigrationSpec{Source: group}}
	leases := []v1beta1.MigrationLease{{Namespace: namespace, Name: "machine-controller"}}
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
	marked := func(o client.Object) client.Object {
		o.SetAnnotations(map[string]string{v1beta1.AnnotationFenceProbe: ""})
		return o
	}
	labels := `{"metadata":{"labels":{"a":"b"}}}`
	want := oldPolicy(m, migratorUser, leases, false)
	t.Run("the namespace", func(t *testing.T) {
		fencedBy(t, want, func() error { return patch(set(namespace), labels)(other) })
		made := oldObject(group, "v1alpha1", "MachineSet", namespace, "new")
		deleteAll := func(o client.Object) func(client.Client) error {
			return func(c client.Client) error { return c.DeleteAllOf(ctx, o, client.InNamespace(namespace), dry) }
		}
		probe := marked(lease(namespace, probeLease))
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

			{"the migrator's probe", migrator, create(probe), false},
			{"another's probe", other, create(probe), false},
			{"a probe in another namespace", migrator, create(marked(lease(elsewhere, probeLease))), true},
			{"the probe's annotation on an old object", migrator, patch(set(namespace),
				`{"metadata":{"annotations":{"`+v1beta1.AnnotationFenceProbe+`":""}}}`), false},
		} {
			c.run(t, want.Name)
		}
	})
	t.Run("everywhere", func(t *testing.T) {
		wide := oldPolicy(m, migratorUser, leases, true)
		eventually(t, "the narrow policy is gone", func() bool { return patch(set(namespace), labels)(other) == nil })
		fencedBy(t, wide, func() error { return patch(set(elsewhere), labels)(other) })
		for _, c := range []try{
			{"another's deletion in another namespace", other, remove(set(elsewhere)), false},
			{"another's creation in another namespace", other,
				create(oldObject(group, "v1alpha1", "MachineSet", elsewhere, "new")), false},
			{"the migrator's change in another namespace", migrator, patch(set(elsewhere), labels), true},
			{"another's Lease with the same name in another namespace", other, patch(lease(elsewhere, "machine-controller"),
				`{"spec":{"holderIdentity":"x"}}`), true},
		} {
			c.run(t, wide.Name)
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
		Spec: v1beta1.MigrationSpec{Source: group}}
	want := oldPolicy(m, migratorUser, nil, false)
	remove := func(c client.Client) error { return c.Delete(ctx, object.DeepCopy(), client.DryRunAll) }
	fencedBy(t, want, func() error { return remove(other) })
	try{"another's deletion", other, remove, false}.run(t, want.Name)
	try{"the migrator's deletion", migrator, remove, true}.run(t, want.Name)
}

// testOnlyTheMigratorChangesCreatedObjects tries what users, autoscalers and Machinist's own processes might do.
//
// Rules: migration-copies-closed, migration-marks-by-label-and-origin.
func testOnlyTheMigratorChangesCreatedObjects(t *testing.T) {
	ctx := context.Background()
	namespace, elsewhere := env.Namespace(t), env.Namespace(t)
	migrator, other := clientOf(t, migratorUser), clientOf(t, "machinist-manager")
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stays"}}
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
	want := newPolicy(m, migratorUser)
	smaller := `{"spec":{"replicas":0}}`
	fencedBy(t, want, func() error { return patch(namespace, "ours", smaller)(other) })
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
		c.run(t, want.Name)
	}
}

// Rule: migration-old-objects-closed.
func TestChangedPolicyIsRestored(t *testing.T) {
	ctx := context.Background()
	admin := env.Client(t)
	r := &Reconciler{Options: Options{Control: admin}}
	m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "right"},
		Spec: v1beta1.MigrationSpec{Source: provider.SourceGardener}}
	want := func() *admissionv1.ValidatingAdmissionPolicy { return oldPolicy(m, migratorUser, nil, false) }
	name := client.ObjectKey{Name: want().Name}
	if _, err := r.applyPolicy(ctx, want()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.removePolicy(ctx, name.Name) })
	for what, spoil := range map[string]func(*admissionv1.ValidatingAdmissionPolicySpec){
		"failures are ignored": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			ignore := admissionv1.Ignore
			s.FailurePolicy = &ignore
		},
		"the condition never matches": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions[0].Expression = "false"
		},
		"everything is allowed": func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "true" },
		"deletions are missing": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Create}
		},
		"a rule is missing": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ResourceRules = s.MatchConstraints.ResourceRules[:1]
		},
		"a namespace selector": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"an object selector": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"an excluded rule": func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConstraints.ExcludeResourceRules = s.MatchConstraints.ResourceRules[:1]
		},
	} {
		have := &admissionv1.ValidatingAdmissionPolicy{}
		if err := admin.Get(ctx, name, have); err != nil {
			t.Fatal(err)
		}
		spoil(&have.Spec)
		if err := admin.Update(ctx, have); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if changed, err := r.applyPolicy(ctx, want()); err != nil || !changed {
			t.Errorf("%s: the policy is not restored: %v", what, err)
		}
		if changed, err := r.applyPolicy(ctx, want()); err != nil || changed {
			t.Errorf("%s: the policy is changed again: %v", what, err)
		}
	}
	binding := bindingOf(want())
	for what, spoil := range map[string]func(*admissionv1.ValidatingAdmissionPolicyBindingSpec){
		"only a warning": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		},
		"a namespace selector": func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"a": "b"}}}
		},
	} {
		have := &admissionv1.ValidatingAdmissionPolicyBinding{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(binding), have); err != nil {
			t.Fatal(err)
		}
		spoil(&have.Spec)
		if err := admin.Update(ctx, have); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if changed, err := r.applyPolicy(ctx, want()); err != nil || !changed {
			t.Errorf("binding, %s: it is not restored: %v", what, err)
		}
	}
	if err := r.removePolicy(ctx, name.Name); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(ctx, name, &admissionv1.ValidatingAdmissionPolicy{}); !apierrors.IsNotFound(err) {
		t.Errorf("the policy still exists: %v", err)
	}
}
