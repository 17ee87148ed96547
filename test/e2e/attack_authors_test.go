//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud/driver"
)

// tenant is the name of a user who may write machines and fleets in the namespace, but no classes.
const tenant = "tenant"

// asTenant grants the tenant's permissions, and returns a client of the tenant.
func (m *machinist) asTenant() client.Client {
	m.t.Helper()
	m.grant(tenant, rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName},
		Resources: []string{"machines", "machinesets", "machinedeployments"},
		Verbs:     []string{"get", "list", "create", "update", "patch", "delete"}})
	c := m.as(tenant)
	eventually(m.t, "the tenant has its permissions", func() (bool, string) {
		err := c.List(context.Background(), &v1beta1.MachineList{}, client.InNamespace(namespace))
		return err == nil, errorText(err)
	})
	return c
}

// grant grants a permission in the namespace to the tenant. name is the name of the role.
func (m *machinist) grant(name string, rule rbacv1.PolicyRule) {
	m.t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenant}}},
	} {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// authored returns a new Machine, MachineSet and MachineDeployment with a spec.
func authored(spec v1beta1.MachineSpec) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "authored"}
	labels := map[string]string{"pool": "authored"}
	template := v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels}, Spec: spec}
	return []client.Object{
		&v1beta1.Machine{ObjectMeta: meta, Spec: spec},
		&v1beta1.MachineSet{ObjectMeta: meta, Spec: v1beta1.MachineSetSpec{Replicas: new(int32(0)),
			Selector: metav1.LabelSelector{MatchLabels: labels}, Template: template}},
		&v1beta1.MachineDeployment{ObjectMeta: meta, Spec: v1beta1.MachineDeploymentSpec{Replicas: new(int32(0)),
			Selector: metav1.LabelSelector{MatchLabels: labels}, Template: template}},
	}
}

// A tenant who may write fleets but no classes describes instances inline, with an image, a network and credentials of
// the tenant's choice.
//
// Rule: inline-needs-permission.
func TestAttackTenantWritesInlineMachines(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	inline := v1beta1.MachineSpec{
		Provider: driver.Name, ProviderSpec: providerSpec(t, "small"), Version: "v1.36.3",
		CredentialsRef: &v1beta1.LocalRef{Name: examples.CredentialsSecret},
		UserDataRef:    &v1beta1.UserDataRef{Name: examples.UserDataSecret},
	}
	// An administrator creates an inline fleet. The manager creates its set and its machine.
	m.createFleet(1, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec = inline
		}
	})
	m.awaitRunning(1)
	c := m.asTenant()
	for _, o := range authored(inline) {
		m.wantDeniedBy("inline", "create "+o.GetName(), c.Create(ctx, o))
	}
	for _, o := range authored(v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}}) {
		m.wantAllowed("a machine with a class", c.Create(ctx, o, client.DryRunAll))
	}
	patch := func(o client.Object, text string) error {
		return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	for _, text := range []string{
		`{"spec": {"template": {"spec": {"providerSpec": {"image": "sim-os-2"}}}}}`,
		`{"spec": {"template": {"spec": {"credentialsRef": {"name": "theirs"}}}}}`,
		`{"spec": {"template": {"spec": {"userDataRef": {"name": "theirs"}}}}}`,
	} {
		m.wantDeniedBy("inline", text, patch(m.deployment(), text))
	}
	machine := m.awaitRunning(1)[0]
	m.wantDeniedBy("inline", "the providerSpec of a machine",
		patch(&machine, `{"spec": {"providerSpec": {"image": "sim-os-2"}}}`))

	// The tenant still operates the fleet, and its machines are still created and deleted.
	m.wantAllowed("more replicas", patch(m.deployment(), `{"spec": {"replicas": 2}}`))
	m.awaitRunning(2)
	m.wantAllowed("a label of the nodes",
		patch(m.deployment(), `{"spec": {"template": {"spec": {"node": {"labels": {"tier": "front"}}}}}}`))
	m.grant("inline", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machineclasses"},
		Verbs: []string{"use-inline"}})
	for _, o := range authored(inline) {
		// The authorizer sees a new binding only after a moment.
		eventually(t, "a tenant with the permission creates an inline object", func() (bool, string) {
			err := c.Create(ctx, o, client.DryRunAll)
			return err == nil, errorText(err)
		})
	}
	m.wantAllowed("no replicas", patch(m.deployment(), `{"spec": {"replicas": 0}}`))
	m.awaitNoMachines()
}

// A tenant gives the nodes of a fleet a label by which the workloads of another team recognize their nodes, and
// receives the pods of that team.
//
// Rule: restricted-node-labels.
func TestAttackTenantSetsTrustedNodeLabels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, withSecretLabel)
	m.awaitRunning(1)
	c := m.asTenant()
	labelled := func(key string) []client.Object {
		return authored(v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass},
			Node: v1beta1.NodeTemplate{Labels: map[string]string{key: "true"}}})
	}
	trusted := []string{secretLabel, "node-role.kubernetes.io/control-plane", "kubernetes.io/payments", "payments.k8s.io/tier"}
	for _, key := range trusted {
		for _, o := range labelled(key) {
			m.wantDeniedBy("node-labels", key, c.Create(ctx, o))
		}
	}
	// A kubelet may set these labels itself.
	for _, key := range []string{"payments", "example.com/payments", "node.kubernetes.io/pool", "topology.kubernetes.io/zone"} {
		for _, o := range labelled(key) {
			m.wantAllowed(key, c.Create(ctx, o, client.DryRunAll))
		}
	}
	patch := func(text string) error {
		return c.Patch(ctx, m.deployment(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	const of = `{"spec": {"template": {"spec": {"node": {"labels": {"KEY": "other"}}}}}}`
	m.wantDeniedBy("node-labels", "another value", patch(strings.ReplaceAll(of, "KEY", secretLabel)))
	m.wantAllowed("another label", patch(strings.ReplaceAll(of, "KEY", "tier")))
	m.wantAllowed("more replicas", patch(`{"spec": {"replicas": 2}}`))
	for _, machine := range m.awaitRunning(2) {
		if node := m.readNode(machine.Status.NodeRef.Name); node.Labels[secretLabel] != "true" {
			t.Errorf("node %s has the labels %v, want the label that an administrator set", node.Name, node.Labels)
		}
	}
	m.grant("node-labels", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machines"},
		Verbs: []string{"set-restricted-node-labels"}})
	for _, key := range trusted {
		for _, o := range labelled(key) {
			// The authorizer sees a new binding only after a moment.
			eventually(t, "a tenant with the permission sets "+key, func() (bool, string) {
				err := c.Create(ctx, o, client.DryRunAll)
				return err == nil, errorText(err)
			})
		}
	}
}
