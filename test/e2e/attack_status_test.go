//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

const attackerNamespace = "attacker"

// forger is a client of the attacker and may only read Machines, and write the status of Machines in attackerNamespace.
type forger struct {
	*machinist
	client.Client
}

func (m *machinist) newForger() (forger, v1beta1.Machine) {
	m.t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Namespace: attackerNamespace, Name: "forger"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: attackerNamespace}},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machines"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"machines/status"}, Verbs: []string{"update", "patch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "forger"}}},
	} {
		if err := m.control.Create(ctx, o); err != nil {
			m.t.Fatal(err)
		}
	}
	m.createFleet(1, func(o client.Object) { o.SetNamespace(attackerNamespace) })
	list := env.Await(m.t, m.control, &v1beta1.MachineList{}, "the machine of the attacker",
		func(l *v1beta1.MachineList) (bool, string) {
			return len(l.Items) == 1 && l.Items[0].Status.Phase == v1beta1.MachineRunning, describe(l.Items)
		}, client.InNamespace(attackerNamespace))
	return forger{m, m.asUser("forger")}, list.Items[0]
}

// forge tries once to change the status of a Machine and does not overwrite concurrent changes.
func (f forger) forge(machine *v1beta1.Machine, change func(*v1beta1.MachineStatus)) {
	f.t.Helper()
	eventually(f.t, "the attacker wrote the status", func() (bool, string) {
		current := &v1beta1.Machine{}
		if err := f.Get(context.Background(), client.ObjectKeyFromObject(machine), current); err != nil {
			return apierrors.IsNotFound(err), errorText(err)
		}
		change(&current.Status)
		err := f.Status().Update(context.Background(), current)
		return err == nil || apierrors.IsNotFound(err), errorText(err)
	})
}

// requestCertificate creates a CertificateSigningRequest, and returns a function that reports whether the request is
// approved.
func (m *machinist) requestCertificate(as client.Client, d *csrtest.Draft) func() (approved bool, state string) {
	m.t.Helper()
	csr := d.Object(m.t)
	csr.Name = fmt.Sprintf("attack-%d", time.Now().UnixNano())
	if err := as.Create(context.Background(), csr); err != nil {
		m.t.Fatal(err)
	}
	return func() (bool, string) {
		if err := m.target.Get(context.Background(), client.ObjectKeyFromObject(csr), csr); err != nil {
			m.t.Fatal(err)
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved {
				return true, c.Reason
			}
		}
		return false, fmt.Sprint(csr.Status.Conditions)
	}
}

// An attacker may write the status of Machines in one namespace. The attacker writes the names, provider IDs and UIDs
// of Nodes into this status, although the Nodes belong to machines in another namespace. The machines of the other
// namespace must keep their certificates and must be able to join.
//
// Rules: status-claims-end-at-namespace, certificate-name-from-provider.
func TestAttackForgedStatusClaimsNodesOfOtherNamespace(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	attacker, _ := m.newForger()
	// The attacker's machines are older than the victim's. The class of the attacker's machines does not exist, so
	// the provider never corrects the status of these machines.
	var claimants []*v1beta1.Machine
	for i := range 3 {
		waiting := &v1beta1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: attackerNamespace, Name: fmt.Sprintf("waiting-%d", i)},
			Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "missing"}}}
		if err := m.control.Create(context.Background(), waiting); err != nil {
			t.Fatal(err)
		}
		claimants = append(claimants, waiting)
	}
	m.createFleet(1, nil)
	victim := m.awaitRunning(1)[0]
	claim := func(name string, node *corev1.Node) {
		for _, claimant := range claimants {
			attacker.forge(claimant, func(s *v1beta1.MachineStatus) {
				s.NodeRef = &v1beta1.NodeRef{Name: name, UID: "00000000-0000-0000-0000-000000000000"}
				s.Instance = &v1beta1.InstanceStatus{Provider: victim.Status.Instance.Provider, State: v1beta1.InstanceRunning,
					NodeName: name}
				if node != nil {
					s.NodeRef.UID, s.Instance.NodeProviderID = node.UID, node.Spec.ProviderID
				}
			})
		}
	}

	node := m.readNode(victim.Status.NodeRef.Name)
	claim(node.Name, node)
	renewal := m.requestCertificate(m.asKubelet(node.Name), csrtest.ForClient(node.Name))
	eventually(t, "the victim's node gets its next certificate", renewal)

	// The attacker claims the Node of the victim's second machine while the machine boots.
	boot := simcloud.Duration(5 * time.Second)
	m.settings(simcloud.SettingsPatch{BootTime: &boot})
	m.scale(2)
	claimed := ""
	m.await("the second machine of the victim joins", func(machines []v1beta1.Machine) bool {
		running := 0
		for i := range machines {
			switch status := &machines[i].Status; {
			case status.Phase == v1beta1.MachineRunning:
				running++
			case status.Instance != nil && status.Instance.NodeName != claimed:
				claimed = status.Instance.NodeName
				claim(claimed, nil)
			}
		}
		return running == 2
	})
	if claimed == "" {
		t.Error("the attacker claimed no Node")
	}
}

// An attacker may write the status of Machines in one namespace, and has the bootstrap token of one of these Machines.
// The attacker writes the name of another Node into the status and requests a certificate for that Node. The test
// covers two cases: the Node does not exist yet, or the Node exists and the attacker also writes its provider ID into
// the status.
//
// Rule: certificate-name-from-provider.
func TestAttackForgedStatusGivesNoIdentityOfOtherNode(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	ctx := context.Background()
	controlPlane := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane-1"},
		Spec: corev1.NodeSpec{ProviderID: "sim://control/plane/1"}}
	if err := m.target.Create(ctx, controlPlane); err != nil {
		t.Fatal(err)
	}
	attacker, _ := m.newForger()
	// The attacker's next machine boots so slowly that it does not join during the test.
	boot := simcloud.Duration(10 * time.Minute)
	m.settings(simcloud.SettingsPatch{BootTime: &boot})
	deployments := &v1beta1.MachineDeploymentList{}
	if err := m.control.List(ctx, deployments, client.InNamespace(attackerNamespace)); err != nil {
		t.Fatal(err)
	}
	before := deployments.Items[0].DeepCopy()
	deployments.Items[0].Spec.Replicas = new(int32(2))
	if err := m.control.Patch(ctx, &deployments.Items[0], client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	var own v1beta1.Machine
	env.Await(t, m.control, &v1beta1.MachineList{}, "the second machine of the attacker",
		func(l *v1beta1.MachineList) (bool, string) {
			for _, item := range l.Items {
				if item.Status.NodeRef == nil && item.Status.Instance != nil && item.Status.Instance.NodeName != "" {
					own = item
				}
			}
			return own.Name != "", describe(l.Items)
		}, client.InNamespace(attackerNamespace))
	secrets := &corev1.SecretList{}
	if err := m.target.List(ctx, secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		t.Fatal(err)
	}
	var kubelet client.Client
	for _, s := range secrets.Items {
		if s.Type == corev1.SecretTypeBootstrapToken {
			kubelet = m.asUser("system:bootstrap:"+string(s.Data["token-id"]), strings.Split(string(s.Data["auth-extra-groups"]),
				",")[0], "system:bootstrappers")
		}
	}
	if kubelet == nil {
		t.Fatal("no bootstrap token exists")
	}
	name := own.Status.Instance.NodeName
	for reason, other := range map[string]*corev1.Node{
		"WrongName": {ObjectMeta: metav1.ObjectMeta{Name: "control-plane-2"}}, "NameInUse": controlPlane} {
		forge := func() {
			attacker.forge(&own, func(s *v1beta1.MachineStatus) {
				s.Instance.NodeName, s.Instance.NodeProviderID = other.Name, other.Spec.ProviderID
			})
		}
		forge()
		decided := m.requestCertificate(kubelet, csrtest.ForClient(other.Name))
		eventually(t, "the request is reported on the machine", func() (bool, string) {
			forge()
			if approved, state := decided(); approved {
				t.Fatalf("the request for node %s was approved: %s", other.Name, state)
			}
			events := &corev1.EventList{}
			if err := m.control.List(ctx, events, client.InNamespace(attackerNamespace)); err != nil {
				t.Fatal(err)
			}
			var seen []string
			for _, e := range events.Items {
				seen = append(seen, e.Message)
			}
			all := strings.Join(seen, "\n")
			return strings.Contains(all, "("+reason+")"), all
		})
	}
	// With the node name that the provider reports, a request with the same token must be approved.
	attacker.forge(&own, func(s *v1beta1.MachineStatus) { s.Instance.NodeName, s.Instance.NodeProviderID = name, "" })
	legitimate := m.requestCertificate(kubelet, csrtest.ForClient(name))
	eventually(t, "the request for the machine's own node is approved", legitimate)
}

// An attacker may write the status of Machines in one namespace. The attacker writes the Node and the provider ID of
// another machine into the status of a Machine and deletes this Machine. The Node of the other machine must stay in
// service and keep its pods.
//
// Rule: node-ref-is-no-proof.
func TestAttackForgedNodeProviderID(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	ctx := context.Background()
	attacker, own := m.newForger()
	m.createFleet(1, nil)
	victim := m.awaitRunning(1)[0]
	controlPlane := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane-1"},
		Spec: corev1.NodeSpec{ProviderID: "sim://control/plane/1"}}
	if err := m.target.Create(ctx, controlPlane); err != nil {
		t.Fatal(err)
	}
	for i, node := range []*corev1.Node{controlPlane, m.readNode(victim.Status.NodeRef.Name)} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("work-%d", i)}}
		pod.Spec.NodeName = node.Name
		pod.Spec.Containers = []corev1.Container{{Name: "work", Image: "work"}}
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := m.target.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		before := m.readNode(node.Name)
		forge := func() {
			attacker.forge(&own, func(s *v1beta1.MachineStatus) {
				s.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
				if s.Instance != nil {
					s.Instance.NodeName, s.Instance.NodeProviderID = node.Name, node.Spec.ProviderID
				}
			})
		}
		forge()
		if err := m.control.Delete(ctx, &own); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		list := env.Await(t, m.control, &v1beta1.MachineList{}, "the machine was replaced",
			func(l *v1beta1.MachineList) (bool, string) {
				forge()
				return len(l.Items) == 1 && l.Items[0].UID != own.UID && l.Items[0].Status.Phase == v1beta1.MachineRunning,
					describe(l.Items)
			}, client.InNamespace(attackerNamespace))
		own = list.Items[0]
		after := m.readNode(node.Name)
		if after.UID != before.UID || after.Spec.Unschedulable ||
			after.Labels[v1beta1.NodeLabelMachine] != before.Labels[v1beta1.NodeLabelMachine] ||
			after.Annotations[v1beta1.NodeAnnotationInstance] != before.Annotations[v1beta1.NodeAnnotationInstance] {
			t.Errorf("node %s was changed: %+v %+v, before %+v %+v", node.Name, after.ObjectMeta, after.Spec,
				before.ObjectMeta, before.Spec)
		}
		if err := m.target.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || !pod.DeletionTimestamp.IsZero() {
			t.Errorf("the pod of node %s was deleted: %v, error %v", node.Name, pod.DeletionTimestamp, err)
		}
	}
}
