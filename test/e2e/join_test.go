//go:build e2e

package e2e

import (
	"context"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
)

// Nodes join only with the information in their user data.
//
// Rule: token-deleted-when-running.
func TestNodesJoinThroughUserDataTokenAndCSR(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(2, nil)
	machines := m.awaitRunning(2)

	csrs := &certificatesv1.CertificateSigningRequestList{}
	if err := m.target.List(context.Background(), csrs); err != nil {
		t.Fatal(err)
	}
	for i := range machines {
		ref := machines[i].Status.NodeRef
		node := &corev1.Node{}
		if err := m.target.Get(context.Background(), client.ObjectKey{Name: ref.Name}, node); err != nil {
			t.Fatal(err)
		}
		if node.UID != ref.UID || node.Spec.ProviderID != machines[i].Spec.ProviderID {
			t.Errorf("machine %s refers to node %v with provider ID %s, but the node is %s with provider ID %s",
				machines[i].Name, ref, machines[i].Spec.ProviderID, node.UID, node.Spec.ProviderID)
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == v1beta1.NodeTaintUninitialized {
				t.Errorf("node %s still has the taint %s", node.Name, taint.Key)
			}
		}
		if !requestedByToken(csrs.Items, node.Name) {
			t.Errorf("no certificate for node %s was requested with a bootstrap token", node.Name)
		}
	}
	// A machine that has joined no longer needs its token.
	secrets := &corev1.SecretList{}
	if err := m.target.List(context.Background(), secrets, client.InNamespace("kube-system")); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if s.Type == "bootstrap.kubernetes.io/token" {
			t.Errorf("bootstrap token %s still exists", s.Name)
		}
	}
}

func requestedByToken(csrs []certificatesv1.CertificateSigningRequest, node string) bool {
	user := regexp.MustCompile(`^system:bootstrap:[a-z0-9]{6}$`)
	for _, csr := range csrs {
		if user.MatchString(csr.Spec.Username) &&
			csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
			len(csr.Status.Certificate) > 0 && strings.Contains(commonName(csr.Spec.Request), "system:node:"+node) {
			return true
		}
	}
	return false
}

// Kubelets do not set provider IDs. Without a cloud controller manager, Machinist sets the provider ID of each Node.
//
// Rule: node-paired-by-token.
func TestNodesWithoutProviderIDJoin(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.settings(simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{NoCloudController: ptr.To(true)}})
	m.createFleet(3, nil)
	machines := m.awaitRunning(3)
	for i := range machines {
		node := m.node(&machines[i])
		if node.UID != machines[i].Status.NodeRef.UID || node.Spec.ProviderID == "" ||
			node.Spec.ProviderID != machines[i].Spec.ProviderID {
			t.Errorf("machine %s has the provider ID %s, but its node %s has %q", machines[i].Name,
				machines[i].Spec.ProviderID, node.Name, node.Spec.ProviderID)
		}
		for _, field := range node.ManagedFields {
			if field.Manager == "kubelet" && strings.Contains(string(field.FieldsV1.Raw), "f:providerID") {
				t.Errorf("the kubelet of node %s has set its provider ID", node.Name)
			}
		}
	}
	m.scale(0)
	m.awaitNoMachines()
	nodes := &corev1.NodeList{}
	if err := m.target.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 || m.countLive() != 0 {
		t.Errorf("%d nodes and %d instances are left", len(nodes.Items), m.countLive())
	}
	m.wantNoTwins()
}

// The same fleet must not join with an unknown token. Otherwise, the tests above would prove nothing.
func TestInstanceWithWrongTokenDoesNotJoin(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, func(o client.Object) {
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			for key, value := range s.StringData {
				s.StringData[key] = strings.ReplaceAll(value, "<<BOOTSTRAP_TOKEN>>", "abcdef.0123456789abcdef")
			}
			for key, value := range s.Data {
				s.Data[key] = []byte(strings.ReplaceAll(string(value), "<<BOOTSTRAP_TOKEN>>", "abcdef.0123456789abcdef"))
			}
		}
	})
	machines := m.await("a machine with an instance", func(machines []v1beta1.Machine) bool {
		return len(machines) == 1 && machines[0].Spec.ProviderID != ""
	})
	id := machines[0].Spec.ProviderID[strings.LastIndex(machines[0].Spec.ProviderID, "/")+1:]
	cloud, err := m.CloudClient()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine's console shows that the API server refused the token", func() (bool, string) {
		console, err := cloud.ConsoleOutput(context.Background(), id)
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(console, "401") || strings.Contains(console, "Unauthorized"), console
	})
	nodes := &corev1.NodeList{}
	if err := m.target.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 {
		t.Errorf("%d nodes registered with a wrong token", len(nodes.Items))
	}
	// A machine that never joined can be deleted.
	m.scale(0)
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
