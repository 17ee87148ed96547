package api

import (
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

// impersonate returns the client of a user without other permissions than those that its roles grant.
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

// newAuthors returns the clients of two users who may write machines and fleets in the namespace. Only the second one
// also has the verb on the resource.
func newAuthors(t *testing.T, namespace, verb, resource string) (author, trusted client.Client) {
	t.Helper()
	write := rbacv1.PolicyRule{APIGroups: []string{machinistv1.GroupName}, Verbs: []string{"create", "update", "get"},
		Resources: []string{"machines", "machinesets", "machinedeployments"}}
	special := rbacv1.PolicyRule{APIGroups: []string{machinistv1.GroupName}, Verbs: []string{verb},
		Resources: []string{resource}}
	for name, rules := range map[string][]rbacv1.PolicyRule{"author": {write}, "trusted": {write, special}} {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		for _, o := range []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}},
		} {
			if err := env.Client(t).Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	return impersonate(t, "author"), impersonate(t, "trusted")
}

// anonymous lets the API server choose the name of an object, and returns the object.
func anonymous(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetName("")
	object.SetGenerateName("a-")
	return object
}

// dryRun creates an object in a dry run as a user.
func dryRun(t *testing.T, user client.Client, object *unstructured.Unstructured) error {
	t.Helper()
	return user.Create(t.Context(), object.DeepCopy(), client.DryRunAll)
}

// specPaths returns the path of the spec of a machine in each sample that has one.
func specPaths() map[string]string {
	return map[string]string{machine: "spec", set: "spec/template/spec", deployment: "spec/template/spec"}
}

// Rule: restricted-node-labels.
func TestRestrictedNodeLabelsNeedPermission(t *testing.T) {
	namespace := env.Namespace(t)
	author, trusted := newAuthors(t, namespace, "set-restricted-node-labels", "machines")
	labelled := func(sample, path, label string) *unstructured.Unstructured {
		return apply(t, anonymous(parse(t, namespace, sample)),
			change{path + "/node/labels", map[string]any{"team": "a", label: "x"}})
	}
	// The API server applies new policies and roles with a delay.
	await(t, "the policy for node labels", func() bool {
		return refusedBy("node-labels", dryRun(t, author, labelled(machine, "spec", "node-role.kubernetes.io/control-plane")))
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
	if err := dryRun(t, impersonate(t, "author", "machinist-processes", "system:authenticated"),
		labelled(machine, "spec", "node-role.kubernetes.io/ingress")); err != nil {
		t.Errorf("a process of Machinist is refused: %v", err)
	}
	// An existing label must not block other changes.
	existing := create(t, labelled(machine, "spec", "node-role.kubernetes.io/ingress"))
	if err := author.Update(t.Context(), apply(t, existing.DeepCopy(), change{"spec/version", "v1.36.3"}),
		client.DryRunAll); err != nil {
		t.Errorf("a change of another field is refused: %v", err)
	}
	requireRejection(t, author.Update(t.Context(),
		apply(t, existing, change{"spec/node/labels/node-role.kubernetes.io~1ingress", "y"}), client.DryRunAll),
		"spec.node.labels")
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
		return apply(t, anonymous(parse(t, namespace, sample)), change{path + "/classRef", nil},
			change{path + "/provider", "sim"}, change{path + "/providerSpec", providerSpec("sim-os-1")})
	}
	await(t, "the policy for inline machines", func() bool {
		return refusedBy("inline", dryRun(t, author, inline(machine, "spec")))
	})
	for sample, path := range specPaths() {
		requireRejection(t, dryRun(t, author, inline(sample, path)), strings.ReplaceAll(path, "/", ".")+".provider sim",
			"use-inline", namespace)
		if err := dryRun(t, trusted, inline(sample, path)); err != nil {
			t.Errorf("a user with the permission is refused: %v", err)
		}
		if err := dryRun(t, author, anonymous(parse(t, namespace, sample))); err != nil {
			t.Errorf("a machine with a class is refused: %v", err)
		}
		if err := dryRun(t, impersonate(t, "author", "machinist-processes", "system:authenticated"),
			inline(sample, path)); err != nil {
			t.Errorf("a process of Machinist is refused: %v", err)
		}

		// The inline fields of an object must not block changes of its other fields.
		existing := create(t, inline(sample, path))
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
	}
}
