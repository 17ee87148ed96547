//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	plans "machinist.dev/machinist/internal/transfer/migration"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
)

// In these tests, the authors of Migrations or old objects try to misuse the permissions of the migrator.

const (
	// vault is a namespace of another team. The authors of old objects have no permission to read Secrets in vault.
	vault    = "vault"
	treasure = "treasure"
	farValue = "far-swordfish-4711"
	// nearValue is the value of a Secret in the namespace of the old objects. The author of the old objects may not
	// read this Secret either.
	nearValue = "near-swordfish-4712"
)

// secretReader is a manifest with an old MachineSet without machines, which refers to Secrets. With this manifest,
// the attacker tries to make the migrator publish the values of the Secrets.
const secretReader = `
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineSet
metadata: {name: thief, namespace: kube-system}
spec:
  replicas: 0
  selector: {matchLabels: {workerset: thief}}
  template:
    metadata: {labels: {workerset: thief}}
    spec:
      providerSpec:
        value:
          cloudProvider: sim
          cloudProviderSpec:
            region: sim-1
            size: small
            image: sim-os-1
            tags:
              far: {secretKeyRef: {namespace: vault, name: treasure, key: token}}
              near: {secretKeyRef: {namespace: kube-system, name: treasure, key: token}}
            credentials: {token: {secretKeyRef: {namespace: kube-system, name: old-account, key: token}}}
          operatingSystem: ubuntu
      versions: {kubelet: 1.36.3}
`

// An author of old objects may not read Secrets, but writes references to Secrets of other users into the old objects.
// The migrator must not read a Secret of another namespace. Even after the owner of the Secret has allowed its use, the
// values of Secrets must not appear in a plan, status, event or log. An administrator must also accept the use of the
// Secret, because its values would become part of a class. If the fleet needs a Secret and its use is allowed, the
// migrator must use it.
//
// Rules: migration-secrets-need-consent, migration-hides-values-of-secrets.
func TestAttackMigrationPublishesForeignSecrets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const machines = 3
	f := start(t, stack.Options{}).oldFleet(provider.SourceClusterK8s, machines)
	f.killController()
	secretOf := func(namespace, value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: treasure},
			StringData: map[string]string{"token": value}}
	}
	set := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(secretReader), &set.Object); err != nil {
		t.Fatal(err)
	}
	far := secretOf(vault, farValue)
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vault}}, far,
		secretOf(metav1.NamespaceSystem, nearValue), set} {
		if err := f.control.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	m := f.migrate()
	blocked := m.Await("the Blocker about the Secret", func(o *v1beta1.Migration) bool {
		return o.Status.PlanHash != ""
	})
	i := slices.IndexFunc(blocked.Status.Findings, func(found v1beta1.MigrationFinding) bool {
		return found.Level == string(provider.FindingBlocker)
	})
	if i < 0 || blocked.Status.Findings[i].Code != plans.CodeSecretNotAllowed {
		t.Fatalf("got findings %+v, want the Blocker %s first", blocked.Status.Findings, plans.CodeSecretNotAllowed)
	}
	contains(t, blocked.Status.Findings[i].Message, "MachineSet/thief", "tags.far", "Secret vault/treasure",
		v1beta1.LabelMigrationUse)
	m.wantUnpublished(farValue, nearValue)
	migrator := f.asUser("machinist-migrator-"+driver.Name, stack.ProcessGroup)
	if err := migrator.Get(ctx, client.ObjectKeyFromObject(far), &corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("the migrator reads a Secret of a namespace that its chart does not name: got error %v, want Forbidden", err)
	}

	// Now an administrator adds the namespace to migrator.namespaces, and the owner of the Secret allows its use.
	if _, err := f.NewMigrator(ctx, []string{namespace, metav1.NamespaceSystem, vault}, "unused"); err != nil {
		t.Fatal(err)
	}
	consent := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`,
		v1beta1.LabelMigrationUse, v1beta1.MigrationUseAllowed))
	if err := f.control.Patch(ctx, far, consent); err != nil {
		t.Fatal(err)
	}
	planned := m.Await("a plan without Blockers", func(o *v1beta1.Migration) bool {
		return !slices.ContainsFunc(o.Status.Findings, func(found v1beta1.MigrationFinding) bool {
			return found.Level == string(provider.FindingBlocker)
		})
	})
	if n := countOf(planned, plans.CodeSecretInClass); n != 2 {
		t.Errorf("got %d losses %s, want one for each Secret: %+v", n, plans.CodeSecretInClass, planned.Status.Findings)
	}
	m.wantUnpublished(farValue, nearValue)
	m.SetStage(v1beta1.MigrationAdopt, m.AwaitPlan()...)
	m.AwaitPhase(v1beta1.MigrationAdopted)
	m.wantUnpublished(farValue, nearValue)
	m.awaitRunning(machines)
}

func countOf(m *v1beta1.Migration, code string) (n int32) {
	for _, finding := range m.Status.Findings {
		if finding.Code == code {
			n += finding.Count
		}
	}
	return n
}

func (m *migration) wantUnpublished(values ...string) {
	m.t.Helper()
	ctx := context.Background()
	found, pages, events := &v1beta1.Migration{}, &corev1.ConfigMapList{}, &corev1.EventList{}
	if err := m.control.Get(ctx, client.ObjectKey{Namespace: namespace, Name: m.Key.Name}, found); err != nil {
		m.t.Fatal(err)
	}
	for list, options := range map[client.ObjectList][]client.ListOption{
		pages:  {client.InNamespace(namespace), client.MatchingLabels{v1beta1.LabelMigration: m.Key.Name}},
		events: nil,
	} {
		if err := m.control.List(ctx, list, options...); err != nil {
			m.t.Fatal(err)
		}
	}
	if len(pages.Items) == 0 {
		m.t.Error("there is no plan to read")
	}
	published, err := json.Marshal([]any{found, pages, events})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, migrator := range m.migrators {
		log, err := os.ReadFile(migrator.LogPath())
		if err != nil {
			m.t.Fatal(err)
		}
		published = append(published, log...)
	}
	// The error is ignored, because `migrate plan` fails until the user has accepted all losses.
	manifests, _ := m.tryCommand("migrate", "plan", m.Key.Name, "-o", "yaml")
	for _, value := range values {
		if i := strings.Index(string(published)+manifests, value); i >= 0 {
			m.t.Errorf("the value %s of a Secret is published: …%s…", value, (string(published) + manifests)[max(0, i-200):i])
		}
	}
}

// A user who creates a Migration, or changes its spec, needs permissions for all objects that the Migration affects. In
// the first part of the test, each user lacks exactly one of the permissions that a migration within the user's own
// namespace requires.
//
// Rule: migration-authors-need-rights.
func TestAttackMigrationBeyondRightsOfAuthor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{NoTarget: true})
	legitimate := func() *v1beta1.Migration {
		return &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "over"},
			Spec: v1beta1.MigrationSpec{Source: provider.SourceClusterK8s, Provider: driver.Name,
				Fence: v1beta1.MigrationFence{
					Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment", Namespace: namespace, Name: "old"}},
					Leases:    []v1beta1.MigrationLease{{Namespace: namespace, Name: "old"}},
				}}}
	}
	type right struct {
		group, resource, verb string
		name                  string // "" for all objects
		missing               string // what the message about the missing right contains
	}
	rights := []right{
		{"", "secrets", "get", "", "spec.sourceNamespace: you need the verb get on secrets in namespace default"},
		{"", "secrets", "create", "", "you need the verb create on secrets in namespace default"},
		{"apps", "deployments/scale", "patch", "old", "spec.fence.workloads[0]: you need the verb patch on the scale of the " +
			"Deployment old in namespace default"},
		{"coordination.k8s.io", "leases", "update", "old", "spec.fence.leases[0]: you need the verb update on the Lease old in " +
			"namespace default"},
	}
	for _, kind := range []string{"machineclasses", "machinedeployments", "machinesets", "machines", "machinehealthchecks"} {
		rights = append(rights, right{v1beta1.GroupName, kind, "create", "",
			"you need the verb create on " + kind + ".machinist.dev in namespace default"})
	}
	for _, kind := range []string{"machineclasses", "machinedeployments", "machinesets", "machines"} {
		rights = append(rights, right{provider.SourceClusterK8s, kind, "delete", "",
			"spec.source: you need the verb delete on " + kind + ".cluster.k8s.io in namespace default"})
	}
	rights = append(rights, right{v1beta1.GroupName, "machines", "set-restricted-node-labels", "",
		"you need the verb set-restricted-node-labels on machines.machinist.dev in namespace default"})
	rules := func(all []right) []rbacv1.PolicyRule {
		list := []rbacv1.PolicyRule{{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"migrations"},
			Verbs: []string{"get", "create", "update", "patch"}}}
		for _, r := range all {
			rule := rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}}
			if r.name != "" {
				rule.ResourceNames = []string{r.name}
			}
			list = append(list, rule)
		}
		return list
	}
	for i, lacks := range rights {
		name := fmt.Sprintf("tenant-%d", i)
		m.grantRights(name, namespace, rules(slices.Delete(slices.Clone(rights), i, i+1))...)
		user := m.asUser(name)
		m.awaitRefusal("without "+lacks.verb+" of "+lacks.resource, lacks.missing, func() error {
			return user.Create(ctx, legitimate(), client.DryRunAll)
		})
	}

	m.grantRights("tenant", namespace, append(rules(rights),
		rbacv1.PolicyRule{Verbs: []string{"delete"}, APIGroups: []string{provider.SourceGardener}, Resources: []string{"*"}},
		rbacv1.PolicyRule{Verbs: []string{"update"}, APIGroups: []string{"coordination.k8s.io"},
			Resources: []string{"leases"}})...)
	tenant := m.asUser("tenant")
	m.grantRights("tenant", metav1.NamespaceSystem, rbacv1.PolicyRule{APIGroups: []string{"apps"},
		Resources: []string{"deployments/scale"}, ResourceNames: []string{"granted"}, Verbs: []string{"patch"}})
	eventually(t, "a tenant migrates the own fleet", func() (bool, string) {
		err := tenant.Create(ctx, legitimate(), client.DryRunAll)
		return err == nil, errorText(err)
	})
	// Without an old system, no Leases, old objects and definitions are affected.
	adopting := legitimate()
	adopting.Spec = v1beta1.MigrationSpec{Source: v1beta1.MigrationSourceInstances, Provider: driver.Name,
		Stage: v1beta1.MigrationCommit, PlanHash: "0",
		Instances: &v1beta1.MigrationInstances{ClassRef: v1beta1.LocalRef{Name: "small"}}}
	m.grantRights("adopter", namespace, rules(slices.DeleteFunc(slices.Clone(rights), func(r right) bool {
		return r.group != "" && r.group != v1beta1.GroupName
	}))...)
	eventually(t, "a tenant adopts instances", func() (bool, string) {
		err := m.asUser("adopter").Create(ctx, adopting.DeepCopy(), client.DryRunAll)
		return err == nil, errorText(err)
	})
	workload := func(kind, namespace, name string) func(*v1beta1.Migration) {
		return func(m *v1beta1.Migration) {
			m.Spec.Fence.Workloads = append(m.Spec.Fence.Workloads, v1beta1.MigrationWorkload{Kind: kind, Namespace: namespace,
				Name: name})
		}
	}
	attacks := map[string]struct {
		change func(*v1beta1.Migration)
		want   string
	}{
		"stops a workload of kube-system": {workload("Deployment", "kube-system", "coredns"),
			"spec.fence.workloads[1]: you need the verb patch on the scale of the Deployment coredns in namespace kube-system"},
		"stops a StatefulSet": {workload("StatefulSet", namespace, "old"), "spec.fence.workloads[1]: you need the verb patch " +
			"on the scale of the StatefulSet old in namespace default"},
		"takes the Lease of kube-controller-manager": {func(m *v1beta1.Migration) {
			m.Spec.Fence.Leases = append(m.Spec.Fence.Leases, v1beta1.MigrationLease{Namespace: "kube-system",
				Name: "kube-controller-manager"})
		}, "spec.fence.leases[1]: you need the verb update on the Lease kube-controller-manager in namespace kube-system"},
		"takes the default Lease": {func(m *v1beta1.Migration) { m.Spec.Fence.Leases = nil },
			"spec.fence.leases: you need the verb update on the Lease machine-controller in namespace kube-system"},
		"takes the default Leases next to a workload": {func(m *v1beta1.Migration) {
			m.Spec.Source, m.Spec.Fence.Leases = provider.SourceGardener, nil
			workload("Deployment", "kube-system", "granted")(m)
		}, "spec.fence.leases: you need the verb update on leases in namespace kube-system"},
		"copies the fleet of another namespace": {func(m *v1beta1.Migration) { m.Spec.SourceNamespace = "kube-system" },
			"spec.sourceNamespace: you need the verb get on secrets in namespace kube-system"},
		"deletes machines without a namespace": {func(m *v1beta1.Migration) { m.Spec.Source = provider.SourceMachineK8s },
			"spec.source: you need the verb delete on machines.machine.k8s.io in the cluster"},
		"deletes the definitions of the old kinds": {func(m *v1beta1.Migration) {
			m.Spec.Stage, m.Spec.PlanHash = v1beta1.MigrationCommit, "0"
		}, "spec.stage: to commit, you need the verb delete on the CustomResourceDefinition machines.cluster.k8s.io"},
	}
	for name, attack := range attacks {
		changed := legitimate()
		attack.change(changed)
		m.awaitRefusal(name, attack.want, func() error { return tenant.Create(ctx, changed.DeepCopy(), client.DryRunAll) })
	}
	if err := tenant.Create(ctx, legitimate()); err != nil {
		t.Fatal(err)
	}
	for name, attack := range attacks {
		stored := &v1beta1.Migration{}
		if err := tenant.Get(ctx, client.ObjectKeyFromObject(legitimate()), stored); err != nil {
			t.Fatal(err)
		}
		before := stored.DeepCopy()
		if attack.change(stored); stored.Spec.Source != before.Spec.Source ||
			stored.Spec.SourceNamespace != before.Spec.SourceNamespace {
			continue // These fields are immutable, so skip them.
		}
		m.awaitRefusal(name+", later", attack.want, func() error {
			return tenant.Patch(ctx, stored.DeepCopy(), client.MergeFrom(before), client.DryRunAll)
		})
	}
	blind := m.asUser("tenant-0")
	if err := blind.Patch(ctx, legitimate(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"team":"a"}}}`)), client.DryRunAll); err != nil {
		t.Errorf("a change that does not concern the spec needs other rights: %v", err)
	}
	for what, spec := range map[string]string{
		"a change of the spec by another user": `{"accept":["UserData"]}`,
		"a change together with an abort":      `{"accept":["UserData"],"stage":"Abort"}`,
	} {
		m.awaitRefusal(what, rights[0].missing, func() error {
			return blind.Patch(ctx, legitimate(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)),
				client.DryRunAll)
		})
	}
	if err := blind.Patch(ctx, legitimate(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"stage":"Abort"}}`)),
		client.DryRunAll); err != nil {
		t.Errorf("an abort needs other rights: %v", err)
	}
}

func (m *machinist) grantRights(user, namespace string, rules ...rbacv1.PolicyRule) {
	m.t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}},
	} {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// awaitRefusal repeats a request until it is refused with the given message. awaitRefusal tolerates other refusals at
// first, because the authorizer observes new roles with a delay. The test fails if the request is allowed.
func (m *machinist) awaitRefusal(what, message string, request func() error) {
	m.t.Helper()
	eventually(m.t, what+" is refused", func() (bool, string) {
		err := request()
		if err == nil {
			m.t.Errorf("%s: the request is allowed, want the refusal %q", what, message)
			return true, ""
		}
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), message), err.Error()
	})
}

// An attacker with the identity of a migrator has the roles of the migrator, in all namespaces in the value
// migrator.namespaces. The roles must not allow the attacker to change the policies that protect fleets. Admission
// policies must restrict the attacker to the objects of migrations.
//
// Rule: migrator-changes-only-migrations.
func TestAttackWithRolesOfMigrator(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	machine := m.awaitRunning(1)[0]
	const migrator = "machinist-migrator-" + driver.Name
	if _, err := m.NewMigrator(ctx, []string{namespace, metav1.NamespaceSystem}, "migrator"); err != nil {
		t.Fatal(err)
	}
	thief := m.asUser(migrator, stack.ProcessGroup)
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	marked := func(name string) metav1.ObjectMeta {
		meta := in(namespace, name)
		meta.Labels = map[string]string{v1beta1.LabelMigration: "over"}
		meta.Annotations = map[string]string{v1beta1.AnnotationMigratedFrom: "group/old/name/uid"}
		return meta
	}
	webhookFor := func(name, group string) *admissionv1.ValidatingWebhookConfiguration {
		ignore, none := admissionv1.Ignore, admissionv1.SideEffectClassNone
		return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: name + ".example.com", FailurePolicy: &ignore, SideEffects: &none,
				ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: vault,
					Name: "gone"}},
				AdmissionReviewVersions: []string{"v1"},
				Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}}}}
	}
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: in(namespace, name)}
	}
	const mark = `{"metadata":{"labels":{"machinist.dev/migration":"over"},` +
		`"annotations":{"machinist.dev/migrated-from":"group/old/name/uid"}}}`
	const recordOfFence = "machinist-migration-fence-default.over"
	web := types.NamespacedName{Namespace: vault, Name: "web"}
	near := types.NamespacedName{Namespace: namespace, Name: "old"}
	foreign := &v1beta1.Migration{ObjectMeta: in(namespace, "over"), Spec: v1beta1.MigrationSpec{
		Source: provider.SourceClusterK8s, Provider: driver.Name}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vault}},
		&corev1.Secret{ObjectMeta: in(vault, treasure)}, newDeployment(web, 1), newDeployment(near, 1),
		webhookFor("theirs", "apps"), webhookFor(oldWebhook, provider.SourceClusterK8s), foreign,
		lease(metav1.NamespaceSystem, "kube-other"),
		&v1beta1.MachineHealthCheck{ObjectMeta: marked("ours"), Spec: v1beta1.MachineHealthCheckSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "none"}}}},
	} {
		if err := m.control.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(o client.Object, text string) func() error {
		return func() error {
			return thief.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
		}
	}
	create := func(o client.Object) func() error {
		return func() error { return thief.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll) }
	}
	remove := func(o client.Object) func() error {
		return func() error { return thief.Delete(ctx, o, client.DryRunAll) }
	}
	scale := func(name types.NamespacedName) func() error {
		return func() error {
			return thief.SubResource("scale").Patch(ctx, newDeployment(name, 1), client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"replicas":0}}`)), client.DryRunAll)
		}
	}
	machineLike := func(meta metav1.ObjectMeta) *v1beta1.Machine {
		return &v1beta1.Machine{ObjectMeta: meta, Spec: machine.Spec}
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: migrator + "-old"}}
	// A migrator needs these requests. If the API server refused these requests too, the rejections that the test
	// checks below would prove nothing.
	for name, request := range map[string]func() error{
		"a plan":                          create(&corev1.ConfigMap{ObjectMeta: in(namespace, "machinist-migration-over-0")}),
		"the record of a fence":           create(&corev1.ConfigMap{ObjectMeta: in(stack.SystemNamespace, recordOfFence)}),
		"a copy of a Secret":              create(&corev1.Secret{ObjectMeta: marked("copy")}),
		"a copy of a machine":             create(machineLike(marked("copy"))),
		"removing an object of a fleet":   remove(&v1beta1.MachineHealthCheck{ObjectMeta: in(namespace, "ours")}),
		"the Lease of an old controller":  create(lease(metav1.NamespaceSystem, "machine-controller")),
		"stopping an old controller":      scale(near),
		"a finalizer of a Migration":      patch(foreign.DeepCopy(), `{"metadata":{"finalizers":["machinist.dev/migration"]}}`),
		"removing a webhook of old kinds": remove(webhookFor(oldWebhook, "")),
		"reading a Secret of the fleet": func() error {
			return thief.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
		},
		"checking that the policies exist": func() error {
			return thief.Get(ctx, client.ObjectKeyFromObject(policy), &admissionv1.ValidatingAdmissionPolicy{})
		},
	} {
		// The authorizer observes new bindings with a short delay.
		eventually(t, "the migrator may do this: "+name, func() (bool, string) {
			err := request()
			return err == nil, errorText(err)
		})
	}
	for name, attack := range map[string]func() error{
		"reading a Secret of another namespace": func() error {
			return thief.Get(ctx, client.ObjectKey{Namespace: vault, Name: treasure}, &corev1.Secret{})
		},
		"reading all Secrets":                 func() error { return thief.List(ctx, &corev1.SecretList{}) },
		"a policy":                            create(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: in("", "mine")}),
		"changing the policy for old objects": patch(policy, `{"spec":{"failurePolicy":"Ignore"}}`),
		"removing the policy for Secrets": remove(&admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "processes-secrets.machinist.dev"}}),
		"removing the binding of its policy": remove(&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}),
		"removing a webhook of other kinds": remove(webhookFor("theirs", "")),
		"removing the definition of Machines": remove(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: "machines.machinist.dev"}}),
		"stopping a workload of another namespace": scale(web),
		"the Lease of kube-controller-manager":     create(lease(metav1.NamespaceSystem, "kube-controller-manager")),
		"removing a Lease of Kubernetes":           remove(lease(metav1.NamespaceSystem, "kube-other")),
		"the Lease of another namespace":           create(lease(vault, "machine-controller")),
		"the manager's Lease":                      func() error { return m.takeLease(thief, "machinist-manager") },
		"removing a Machine that was not migrated": remove(machine.DeepCopy()),
		"marking a Machine that was not migrated":  patch(machine.DeepCopy(), mark),
		"a Machine that is not marked":             create(machineLike(in(namespace, "mine"))),
		"a Machine in another namespace":           create(machineLike(in(vault, "mine"))),
		"a Secret that is not marked":              create(&corev1.Secret{ObjectMeta: in(namespace, "mine")}),
		"a ConfigMap of another name":              create(&corev1.ConfigMap{ObjectMeta: in(namespace, "mine")}),
		"changing a ConfigMap of the system":       func() error { return m.changeConfigMap(thief) },
		"committing a Migration":                   patch(foreign.DeepCopy(), `{"spec":{"stage":"Commit","planHash":"0"}}`),
		"a token of a controller's ServiceAccount": create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "mint",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "generic-garbage-collector"}},
			Type: corev1.SecretTypeServiceAccountToken}),
		"its own role": create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}),
	} {
		if err := attack(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got error %v, want a rejection", name, err)
		}
	}
}

func (m *machinist) changeConfigMap(c client.Client) error {
	found := &corev1.ConfigMap{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: metav1.NamespaceSystem,
		Name: "extension-apiserver-authentication"}, found); err != nil {
		m.t.Fatal(err)
	}
	return c.Update(context.Background(), found, client.DryRunAll)
}
