//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud/driver"
)

const fleetAuthor = "fleet-author"

func (m *machinist) asFleetAuthor() client.Client {
	m.t.Helper()
	m.grant("fleets", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName},
		Resources: []string{"machines", "machinesets", "machinedeployments"},
		Verbs:     []string{"get", "list", "create", "update", "patch", "delete"}})
	c := m.asUser(fleetAuthor)
	eventually(m.t, "the fleet author has the permissions", func() (bool, string) {
		err := c.List(context.Background(), &v1beta1.MachineList{}, client.InNamespace(namespace))
		return err == nil, errorText(err)
	})
	return c
}

func (m *machinist) grant(role string, rule rbacv1.PolicyRule) {
	m.t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: role}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: fleetAuthor}}},
	} {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

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

// A tenant may write fleets, but no classes. The tenant tries to create machines without a class, in order to choose
// their image, network and credentials.
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
	// An administrator's fleet needs no class: the manager must be able to create its set and machine.
	m.createFleet(1, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec = inline
		}
	})
	m.awaitRunning(1)
	c := m.asFleetAuthor()
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

	// The tenant must be able to operate this fleet, and its machines must come and go as usual.
	m.wantAllowed("more replicas", patch(m.deployment(), `{"spec": {"replicas": 2}}`))
	m.awaitRunning(2)
	m.wantAllowed("a label of the nodes",
		patch(m.deployment(), `{"spec": {"template": {"spec": {"node": {"labels": {"tier": "front"}}}}}}`))
	m.grant("inline", rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machineclasses"},
		Verbs: []string{"use-inline"}})
	for _, o := range authored(inline) {
		// The authorizer observes a new binding with a short delay.
		eventually(t, "a tenant with the permission creates an inline object", func() (bool, string) {
			err := c.Create(ctx, o, client.DryRunAll)
			return err == nil, errorText(err)
		})
	}
	m.wantAllowed("no replicas", patch(m.deployment(), `{"spec": {"replicas": 0}}`))
	m.awaitNoMachines()
}

// The workloads of another team select their nodes by a label. A tenant tries to give this label to the nodes of a
// fleet, so that the pods of the other team run there. The policy must refuse this label. Without the policy, the
// Node would get the label.
//
// Rule: restricted-node-labels.
func TestAttackTenantSetsTrustedNodeLabels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, withSecretLabel)
	m.awaitRunning(1)
	c := m.asFleetAuthor()
	labelled := func(key string) []client.Object {
		return authored(v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass},
			Node: v1beta1.NodeTemplate{Labels: map[string]string{key: "true"}}})
	}
	trusted := []string{secretLabel, "node-role.kubernetes.io/control-plane", "kubernetes.io/payments",
		"payments.k8s.io/tier"}
	for _, key := range trusted {
		for _, o := range labelled(key) {
			m.wantDeniedBy("node-labels", key, c.Create(ctx, o))
		}
	}
	// The policy allows these labels, because every kubelet may set them on its own Node, so no workload can trust
	// these labels.
	for _, key := range []string{"payments", "example.com/payments", "node.kubernetes.io/pool",
		"topology.kubernetes.io/zone"} {
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

	const attack = "node-role.kubernetes.io/control-plane"
	sendAttack := func() error { return patch(strings.ReplaceAll(of, "KEY", attack)) }
	m.wantDeniedBy("node-labels", attack, sendAttack())
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "node-labels.machinist.dev"}}
	if err := m.control.Delete(ctx, binding); err != nil {
		t.Fatal(err)
	}
	eventually(t, "without the policy, the tenant sets "+attack, func() (bool, string) {
		err := sendAttack()
		return err == nil, errorText(err)
	})
	eventually(t, "the nodes have the label "+attack, func() (bool, string) {
		for _, machine := range m.machines() {
			if node := m.readNode(machine.Status.NodeRef.Name); node.Labels[attack] != "other" {
				return false, fmt.Sprintf("node %s has the labels %v", node.Name, node.Labels)
			}
		}
		return true, ""
	})
}
