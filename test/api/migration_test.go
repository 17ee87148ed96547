package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/manifests/sources"
)

// Rule: migration-results-are-admitted.
func TestMigratedObjectsAreAdmitted(t *testing.T) {
	admitted := map[string]int{}
	for group, system := range source.Systems() {
		if l, ok := system.(source.Linked); ok {
			system = l.With(sources.LinkedObjects(group))
		}
		samples := sources.Samples(group)
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			for _, old := range samples[name] {
				kinds := system.Kinds()
				i := slices.IndexFunc(kinds, func(k source.Kind) bool { return k.GroupVersionKind == old.GroupVersionKind() })
				c := system.Convert(kinds[i].Role, old, nil)
				if c.HasBlocker() {
					continue
				}
				for _, object := range convertedObjects(t, c) {
					if err := tryCreate(t, object); err != nil {
						t.Errorf("%s/%s: %s converted from %s %s: %v", group, name, object.GetKind(), old.GetKind(), old.GetName(), err)
					}
					admitted[group]++
				}
			}
		}
		if admitted[group] == 0 {
			t.Errorf("%s: no object was admitted", group)
		}
	}
}

// convertedObjects returns the objects that a conversion produces and adds the class and the annotations that the
// migration sets after the conversion.
func convertedObjects(t *testing.T, c source.Converted) (all []*unstructured.Unstructured) {
	classRef := v1beta1.LocalRef{Name: "small"}
	objects := []client.Object{}
	switch object := c.Object.(type) {
	case *v1beta1.MachineDeployment:
		object.Spec.Template.Spec.ClassRef = &classRef
	case *v1beta1.MachineSet:
		object.Spec.Template.Spec.ClassRef = &classRef
	case *v1beta1.Machine:
		object.Spec.ClassRef = &classRef
	}
	if c.Object != nil {
		annotations := map[string]string{}
		maps.Copy(annotations, c.Object.GetAnnotations())
		maps.Copy(annotations, c.LaterAnnotations)
		c.Object.SetAnnotations(annotations)
		objects = append(objects, c.Object)
	}
	if c.HealthCheck != nil {
		objects = append(objects, c.HealthCheck)
	}
	if c.Class != nil {
		class := &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Provider: "sim", Capacity: c.Class.Capacity,
			// Leave the provider spec empty, because the tests of the drivers cover it.
			ProviderSpec: &runtime.RawExtension{Raw: []byte("{}")}}}
		if class.Name = c.Class.Name; class.Name == "" {
			class.Name = c.Class.ContentName("a")
		}
		objects = append(objects, class)
	}
	for _, object := range objects {
		object.SetNamespace("default")
		kind, err := apiutil.GVKForObject(object, env.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: raw}
		u.SetGroupVersionKind(kind)
		unstructured.RemoveNestedField(u.Object, "status")
		all = append(all, u)
	}
	return all
}

// An abort restarts only the workloads that spec lists. So spec must still list a workload after the migration
// has stopped it.
//
// Rule: migrator-acts-on-spec-only.
func TestStoppedWorkloadStaysInMigration(t *testing.T) {
	c := env.Client(t)
	workload := func(name string) v1beta1.MigrationWorkload {
		return v1beta1.MigrationWorkload{Kind: "Deployment", Namespace: "old", Name: name}
	}
	m := &v1beta1.Migration{Spec: v1beta1.MigrationSpec{Source: "cluster.k8s.io", Provider: "sim",
		Fence: v1beta1.MigrationFence{Workloads: []v1beta1.MigrationWorkload{workload("stopped"), workload("running")}}}}
	m.Namespace, m.Name = env.Namespace(t), "over"
	if err := c.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Status.Fence.Workloads = []v1beta1.StoppedWorkload{
		{Kind: "Deployment", Namespace: "old", Name: "stopped", Replicas: 1},
		{Kind: "Deployment", Namespace: "old", Name: "foreign", Replicas: 1}}
	if err := c.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, left := range [][]v1beta1.MigrationWorkload{nil, {workload("running")}} {
		changed := m.DeepCopy()
		changed.Spec.Fence.Workloads = left
		requireRejection(t, c.Update(t.Context(), changed), "spec.fence", "must stay in spec.fence.workloads")
	}
	m.Spec.Fence.Workloads = []v1beta1.MigrationWorkload{workload("another"), workload("stopped")}
	if err := c.Update(t.Context(), m); err != nil {
		t.Errorf("a workload that was not stopped cannot be replaced: %v", err)
	}
}

// A commit deletes the infrastructure objects and bootstrap configs of Cluster API, so its author must have this right.
// The CustomResourceDefinitions stay.
func TestCommitOfClusterAPINeedsRightToDeleteParts(t *testing.T) {
	for _, object := range manifests.Policies() {
		if strings.HasPrefix(object.GetName(), "migration.machinist.dev") {
			if err := install.Apply(t.Context(), env.Config(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	admin, author := env.Client(t), "author-of-commits"
	rule := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: author}, Rules: []rbacv1.PolicyRule{
		rule("", "*"), rule("machinist.dev", "*"), rule("cluster.x-k8s.io", "*"), rule("coordination.k8s.io", "*")}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: author},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: author},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: author}}}
	for _, object := range []client.Object{role, binding} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), object) })
	}
	config := rest.CopyConfig(env.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: author}
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	namespace := env.Namespace(t)
	const infrastructure, bootstrap = "infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"
	create := func(cloud string) error {
		m := &v1beta1.Migration{Spec: v1beta1.MigrationSpec{Source: "cluster.x-k8s.io", Provider: cloud,
			Stage: v1beta1.MigrationCommit, PlanHash: "x"}}
		m.Namespace, m.Name = namespace, "commit"
		return c.Create(t.Context(), m, client.DryRunAll)
	}
	for _, needed := range []struct{ group, resource, text string }{
		{infrastructure, "openstackmachines", "delete on openstackmachines." + infrastructure},
		{infrastructure, "openstackservers", "delete on openstackservers." + infrastructure},
		{bootstrap, "*", "delete on all resources (*) of " + bootstrap},
		{infrastructure, "simmachines", ""}, // for the other provider
	} {
		await(t, "the policy and the role", func() bool {
			err := create("openstack")
			if needed.text == "" {
				return err == nil
			}
			return err != nil && strings.Contains(err.Error(), needed.text)
		})
		role.Rules = append(role.Rules, rule(needed.group, needed.resource))
		if needed.text == "" {
			// Only OpenStack has OpenStackServers, and each provider has machines of its own.
			if err := create("sim"); err == nil || !strings.Contains(err.Error(), "delete on simmachines."+infrastructure) {
				t.Errorf("without the right to delete SimMachines: got error %v, want a rejection", err)
			}
			role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, "openstackservers")
			})
		}
		if err := admin.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the right to delete the machines of the provider suffices", func() bool { return create("sim") == nil })
}
