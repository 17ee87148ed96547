package api

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func impersonate(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(env.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const authors = "authors"

// newAuthors returns the clients of two users who may write machines and fleets in the namespace. The user of the
// client trusted also has the permission for verb on resource.
func newAuthors(t *testing.T, namespace, verb, resource string) (author, trusted client.Client) {
	t.Helper()
	write := rbacv1.PolicyRule{APIGroups: []string{machinistv1.GroupName}, Verbs: []string{"create", "update", "get"},
		Resources: []string{"machines", "machinesets", "machinedeployments"}}
	special := rbacv1.PolicyRule{APIGroups: []string{machinistv1.GroupName}, Verbs: []string{verb},
		Resources: []string{resource}}
	for name, rules := range map[string][]rbacv1.PolicyRule{authors: {write}, "trusted": {write, special}} {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		for _, o := range []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}}},
		} {
			if err := env.Client(t).Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	return impersonate(t, "author", authors), impersonate(t, "trusted", "trusted")
}

// requireExemptOnly fails the test unless the policy exempts exactly the given users. requireExemptOnly also tries the
// names of other processes, similar names, and members of other groups.
func requireExemptOnly(t *testing.T, policy string, object *unstructured.Unstructured, exempt ...string) {
	t.Helper()
	const group, account = "machinist-processes", "system:serviceaccount:machinist-system:"
	groups := map[string]string{"oidc:machinist-manager": group,
		"system:serviceaccount:other:machinist-manager": "system:serviceaccounts:other"}
	for _, name := range []string{"author", "machinist-manager", "machinist-manager-2", "machinist-managers",
		"my-machinist-manager", "machinist-operator", "machinist-provider-sim", "machinist-migrator-sim"} {
		groups[name], groups[account+name] = group, "system:serviceaccounts:machinist-system"
	}
	// Add the label and the annotation of a migration, because another policy allows migrators to create only objects
	// with this label and this annotation.
	object = apply(t, object.DeepCopy(), change{"metadata/labels/machinist.dev~1migration", "over"},
		change{"metadata/annotations/machinist.dev~1migrated-from", "group/kind/name/uid"})
	for user, group := range groups {
		err := dryRun(t, impersonate(t, user, group, authors), object)
		switch {
		case slices.Contains(exempt, user) && err != nil:
			t.Errorf("%s is not exempt from the policy %s: %v", user, policy, err)
		case !slices.Contains(exempt, user) && !refusedBy(policy, err) && !refusedBy("operator", err):
			t.Errorf("%s: got error %v, want a rejection by the policy %s", user, err, policy)
		}
	}
	if err := dryRun(t, impersonate(t, "machinist-manager", authors), object); !refusedBy(policy, err) {
		t.Errorf("machinist-manager without the group of the processes: got error %v, want a rejection by the policy %s", err,
			policy)
	}
}

func beginDeletion(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	c := env.Client(t)
	if err := c.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func withGeneratedName(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetName("")
	object.SetGenerateName("a-")
	return object
}

func dryRun(t *testing.T, user client.Client, object *unstructured.Unstructured) error {
	t.Helper()
	return user.Create(t.Context(), object.DeepCopy(), client.DryRunAll)
}

func specPaths() map[string]string {
	return map[string]string{machine: "spec", set: "spec/template/spec", deployment: "spec/template/spec"}
}

// Rule: restricted-node-labels.
func TestRestrictedNodeLabelsNeedPermission(t *testing.T) {
	namespace := env.Namespace(t)
	author, trusted := newAuthors(t, namespace, "set-restricted-node-labels", "machines")
	labelled := func(sample, path, label string) *unstructured.Unstructured {
		return apply(t, withGeneratedName(parse(t, namespace, sample)),
			change{path + "/node/labels", map[string]any{"team": "a", label: "x"}})
	}
	// The API server applies new policies and roles only after a delay.
	await(t, "the policy for node labels", func() bool {
		return refusedBy("node-labels", dryRun(t, author, labelled(machine, "spec", "node-role.kubernetes.io/control-plane")))
	})
	await(t, "the permission to set node labels", func() bool {
		return dryRun(t, trusted, labelled(machine, "spec", "node-role.kubernetes.io/control-plane")) == nil
	})
	for sample, path := range specPaths() {
		for _, key := range []string{"node-role.kubernetes.io/ingress", "node-restriction.kubernetes.io/tier",
			"team.node-restriction.kubernetes.io/tier", "kubernetes.io/tier", "k8s.io/tier", "team.k8s.io/tier",
			"topology.kubernetes.io/rack"} {
			requireRejection(t, dryRun(t, author, labelled(sample, path, key)), ".node.labels["+key+
				"]", "set-restricted-node-labels", namespace)
			if err := dryRun(t, trusted, labelled(sample, path, key)); err != nil {
				t.Errorf("a user with the permission is refused: %v", err)
			}
		}
		for _, key := range []string{"example.com/node-role.kubernetes.io", "notkubernetes.io/tier", "kubernetes.io",
			"node.kubernetes.io/tier", "team.node.kubernetes.io/tier", "kubelet.kubernetes.io/tier",
			"topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"} {
			if err := dryRun(t, author, labelled(sample, path, key)); err != nil {
				t.Errorf("a label that kubelets may set is refused: %v", err)
			}
		}
	}
	requireExemptOnly(t, "node-labels", labelled(machine, "spec", "node-role.kubernetes.io/ingress"),
		"machinist-manager", "oidc:machinist-manager", "system:serviceaccount:machinist-system:machinist-manager",
		"machinist-migrator-sim", "system:serviceaccount:machinist-system:machinist-migrator-sim")
	// The other fields of an object that already has a restricted label can still change.
	existing := create(t, apply(t, labelled(machine, "spec", "node-role.kubernetes.io/ingress"),
		change{"metadata/finalizers", []string{"test.machinist.dev/hold"}}))
	if err := author.Update(t.Context(), apply(t, existing.DeepCopy(), change{"spec/version", "v1.36.3"}),
		client.DryRunAll); err != nil {
		t.Errorf("a change of another field is refused: %v", err)
	}
	another := change{"spec/node/labels/node-role.kubernetes.io~1ingress", "y"}
	requireRejection(t, author.Update(t.Context(), apply(t, existing.DeepCopy(), another), client.DryRunAll),
		"spec.node.labels")
	// The labels stay restricted while the Machine is being deleted, because its Node runs pods until the Node is drained.
	existing = beginDeletion(t, existing)
	requireRejection(t, author.Update(t.Context(), apply(t, existing.DeepCopy(), another), client.DryRunAll),
		"spec.node.labels")
	if err := author.Update(t.Context(), apply(t, existing, change{"metadata/finalizers", nil})); err != nil {
		t.Errorf("the finalizer of a machine that is being deleted cannot be removed: %v", err)
	}
}

// Rule: inline-needs-permission.
func TestInlineMachinesNeedPermission(t *testing.T) {
	namespace := env.Namespace(t)
	author, trusted := newAuthors(t, namespace, "use-inline", "machineclasses")
	providerSpec := func(image string) map[string]any {
		return map[string]any{"apiVersion": "sim.machinist.dev/v1beta1", "kind": "SimMachine", "region": "sim-1",
			"instanceType": "small", "image": image}
	}
	inline := func(sample, path string) *unstructured.Unstructured {
		return apply(t, withGeneratedName(parse(t, namespace, sample)), change{path + "/classRef", nil},
			change{path + "/provider", "sim"}, change{path + "/providerSpec", providerSpec("sim-os-1")})
	}
	await(t, "the policy for inline machines", func() bool {
		return refusedBy("inline", dryRun(t, author, inline(machine, "spec")))
	})
	await(t, "the permission to write inline machines", func() bool {
		return dryRun(t, trusted, inline(machine, "spec")) == nil
	})
	for sample, path := range specPaths() {
		requireRejection(t, dryRun(t, author, inline(sample, path)), strings.ReplaceAll(path, "/", ".")+".provider sim",
			"use-inline", namespace)
		if err := dryRun(t, trusted, inline(sample, path)); err != nil {
			t.Errorf("a user with the permission is refused: %v", err)
		}
		if err := dryRun(t, author, withGeneratedName(parse(t, namespace, sample))); err != nil {
			t.Errorf("a machine with a class is refused: %v", err)
		}

		// The other fields of an object that already has inline fields can still change.
		existing := create(t, apply(t, inline(sample, path),
			change{"metadata/finalizers", []string{"test.machinist.dev/hold"}}))
		update := func(changes ...change) error {
			return author.Update(t.Context(), apply(t, existing.DeepCopy(), changes...), client.DryRunAll)
		}
		for name, err := range map[string]error{
			"another field": update(change{path + "/version", "v1.36.3"}),
			"a label":       update(change{"metadata/labels/team", "a"}),
			"to a class": update(change{path + "/provider", nil}, change{path + "/providerSpec", nil},
				change{path + "/classRef", map[string]any{"name": "small"}}),
		} {
			if err != nil {
				t.Errorf("a change of %s is refused: %v", name, err)
			}
		}
		for name, err := range map[string]error{
			"providerSpec":   update(change{path + "/providerSpec", providerSpec("sim-os-2")}),
			"credentialsRef": update(change{path + "/credentialsRef", map[string]any{"name": "theirs"}}),
			"userDataRef":    update(change{path + "/userDataRef", map[string]any{"name": "theirs"}}),
		} {
			if !refusedBy("inline", err) {
				t.Errorf("a change of %s: got error %v, want a rejection by the policy", name, err)
			}
		}
		// The inline fields stay restricted while the Machine is being deleted, because the provider uses their credentials
		// to delete the instance.
		existing = beginDeletion(t, existing)
		if err := update(change{path + "/credentialsRef", map[string]any{"name": "theirs"}}); !refusedBy("inline", err) {
			t.Errorf("a change of credentialsRef during the deletion: got error %v, want a rejection by the policy", err)
		}
		if err := author.Update(t.Context(), apply(t, existing, change{"metadata/finalizers", nil})); err != nil {
			t.Errorf("the finalizer of an object that is being deleted cannot be removed: %v", err)
		}
	}
	requireExemptOnly(t, "inline", inline(machine, "spec"), "machinist-manager", "oidc:machinist-manager",
		"system:serviceaccount:machinist-system:machinist-manager")
}

// Rule: provider-id-needs-permission.
func TestProviderIDNeedsPermission(t *testing.T) {
	namespace := env.Namespace(t)
	author, trusted := newAuthors(t, namespace, "patch", "machineclasses/status")
	const id = "sim:///zone-a/vm-1"
	unset := create(t, apply(t, withGeneratedName(parse(t, namespace, machine)),
		change{"metadata/finalizers", []string{"test.machinist.dev/hold"}}))
	adopting := create(t, apply(t, withGeneratedName(parse(t, namespace, machine)), change{"spec/providerID", id},
		change{"metadata/finalizers", []string{"test.machinist.dev/hold"}}))
	update := func(as client.Client, object *unstructured.Unstructured, changes ...change) error {
		return as.Update(t.Context(), apply(t, object.DeepCopy(), changes...), client.DryRunAll)
	}
	await(t, "the policy for provider IDs", func() bool {
		return refusedBy("provider-id", update(author, unset, change{"spec/providerID", id}))
	})
	await(t, "the permission to set provider IDs", func() bool {
		return update(trusted, unset, change{"spec/providerID", id}) == nil
	})
	for name, err := range map[string]error{
		"another field without a provider ID": update(author, unset, change{"spec/version", "v1.36.3"}),
		"another field with a provider ID":    update(author, adopting, change{"spec/version", "v1.36.3"}),
		"missing to empty":                    update(author, unset, change{"spec/providerID", ""}),
	} {
		if err != nil {
			t.Errorf("a change of %s is refused: %v", name, err)
		}
	}
	// The schema would allow the removal while the instance is replaced.
	apply(t, adopting, change{"status/launch", map[string]any{"step": "Replacing", "attempt": 1}})
	if err := env.Client(t).Status().Update(t.Context(), adopting); err != nil {
		t.Fatal(err)
	}
	requireRejection(t, update(author, adopting, change{"spec/providerID", nil}), "spec.providerID")
	if err := update(trusted, adopting, change{"spec/providerID", nil}); err != nil {
		t.Errorf("the removal by a provider is refused: %v", err)
	}
	for _, user := range []string{"machinist-manager", "machinist-migrator-sim", "cluster-autoscaler"} {
		// The policy for migrators rejects this change too, and the API server names only one of the two policies.
		err := update(impersonate(t, user, "machinist-processes", authors), unset, change{"spec/providerID", id})
		if !refusedBy("provider-id", err) && !refusedBy("migrator", err) {
			t.Errorf("%s: got error %v, want a rejection by the policy", user, err)
		}
	}

	if err := env.Client(t).Delete(t.Context(), unset); err != nil {
		t.Fatal(err)
	}
	if err := env.Client(t).Get(t.Context(), client.ObjectKeyFromObject(unset), unset); err != nil {
		t.Fatal(err)
	}
	requireRejection(t, update(author, unset, change{"spec/providerID", id}), "spec.providerID", id)
	if err := update(author, unset, change{"metadata/finalizers", nil}); err != nil {
		t.Errorf("the finalizer of a machine that is being deleted cannot be removed: %v", err)
	}
}
