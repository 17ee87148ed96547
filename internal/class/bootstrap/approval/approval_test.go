package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

func TestApprovesJoinWithTokenOfMachine(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.wantSigned(w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m"))), ReasonMachineJoins)
}

func TestJoinWaitsForMachineStatus(t *testing.T) {
	w := newTestApprover(t)
	m := w.machineWithoutStatus("m")
	name := w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m")))
	w.wantPendingWithoutEvent(name)
	w.status(m, func(s *v1beta1.MachineStatus) {
		s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstancePending, Provider: w.ns, NodeName: w.node("m")}
	})
	w.wantSigned(name, ReasonMachineJoins)
}

// A joining kubelet sends only one request. If the provider does not report the node name yet, the request stays
// pending and is approved as soon as the provider reports the name.
//
// Rule: certificate-name-from-provider.
func TestJoinWaitsForProvider(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.cloud.setAnswer(errUnreachable)
	name := w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m")))
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, env.Patience, true,
		func(context.Context) (bool, error) { return w.cloud.calls() > 0, nil }); err != nil {
		t.Fatalf("wait until the provider was asked: %v", err)
	}
	w.wantPendingWithoutEvent(name)
	later := func(d time.Duration) reconcile.Result {
		t.Helper()
		w.clock.SetTime(w.clock.Now().Add(d))
		live := *w.approver
		live.Cache = w.WithWatch
		return w.decide(&live, name)
	}
	if got := later(2 * kubeletWait).RequeueAfter; got != answerRetry {
		t.Errorf("while the provider is unreachable: requeued after %s, want %s", got, answerRetry)
	}
	w.cloud.setAnswer(nil, "10.0.0.5")
	w.cloud.rename(func(provider.Machine) string { return "" })
	if got := later(answerRetry).RequeueAfter; got != answerRetry {
		t.Errorf("while the provider reports no name: requeued after %s, want %s", got, answerRetry)
	}
	w.wantReported(name, ReasonNameUnknown)
	w.cloud.rename(func(m provider.Machine) string { return w.node(m.Name) })
	later(answerRetry)
	w.wantSigned(name, ReasonMachineJoins)
}

// Rule: client-certificate-for-token-bearer.
func TestTokenIsRefusedForNameOfAnotherMachine(t *testing.T) {
	w := newTestApprover(t)
	w.machine("victim")
	thief := w.asToken(w.token(w.machine("thief")))
	w.wantReported(w.post(thief, csrtest.ForClient(w.node("victim"))), ReasonWrongName)
}

// An attacker writes the name of a future Node into the status of a Machine.
//
// Rule: certificate-name-from-provider.
func TestTokenIsRefusedForNameInForgedStatus(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.status(m, func(s *v1beta1.MachineStatus) { s.Instance.NodeName = w.node("control-plane") })
	w.wantReported(w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("control-plane"))), ReasonWrongName)
}

// An attacker writes the status of a Machine to claim the Node of a Machine in another namespace. The attacker's
// Machine is older, or has the nodeRef and provider ID of the Node.
//
// Rules: status-claims-end-at-namespace, certificate-name-from-provider.
func TestForgedStatusOfOtherNamespaceBlocksNoCertificate(t *testing.T) {
	w := newTestApprover(t)
	claims := func(name string, uid types.UID, id string) {
		for i := range 3 {
			forged := &v1beta1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: fmt.Sprintf("forged-%d", i),
					Labels: map[string]string{v1beta1.LabelProvider: w.ns}},
				Spec: v1beta1.MachineSpec{Provider: w.ns, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}},
			}
			w.create(forged)
			w.status(forged, func(s *v1beta1.MachineStatus) {
				s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: w.ns, NodeName: w.node(name),
					NodeProviderID: id}
				s.NodeRef = &v1beta1.NodeRef{Name: w.node(name), UID: uid}
			})
		}
	}
	claims("m", "1", "acme:///"+w.node("m"))
	m := w.machine("m")
	w.wantSigned(w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m"))), ReasonMachineJoins)
	w.pair(m)
	claims("m", m.Status.NodeRef.UID, m.Spec.ProviderID)
	w.wantSigned(w.post(w.asNode(w.node("m")), csrtest.ForClient(w.node("m"))), ReasonNodeRenews)
	w.cloud.setAnswer(nil, "10.0.0.5")
	w.wantSigned(w.post(w.asNode(w.node("m")), csrtest.ForServing(w.node("m"), []string{w.node("m")}, nil)),
		ReasonNodeServes)
}

func TestTokenIsRefusedForNameOfExistingNode(t *testing.T) {
	w := newTestApprover(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node("m")},
		Spec: corev1.NodeSpec{ProviderID: "acme:///control-plane"}}
	w.create(node)
	m := w.machine("m")
	name := w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m")))
	w.wantReported(name, ReasonNameInUse)
	if err := w.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.wantSigned(name, ReasonMachineJoins)
}

// Rule: client-certificate-for-token-bearer.
func TestTokenIsRefusedAfterMachineJoined(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	instance := w.asToken(w.token(m))
	w.wantSigned(w.post(instance, csrtest.ForClient(w.node("m"))), ReasonMachineJoins)
	w.pair(m)
	w.wantReported(w.post(instance, csrtest.ForClient(w.node("m"))), ReasonAlreadyJoined)
}

// Rule: client-certificate-for-token-bearer.
func TestExpiredTokenIsRefused(t *testing.T) {
	w := newTestApprover(t)
	w.clock.SetTime(time.Now().Add(time.Hour + time.Minute))
	m := w.machine("m")
	w.wantReported(w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m"))), ReasonTokenExpired)
}

func TestTokenOfEarlierAttemptIsRefused(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	token := w.token(m)
	w.status(m, func(s *v1beta1.MachineStatus) { s.Launch = &v1beta1.LaunchStatus{Attempt: 2} })
	w.wantReported(w.post(w.asToken(token), csrtest.ForClient(w.node("m"))), ReasonTokenOutdated)
}

// Rule: client-certificate-for-token-bearer.
func TestDeletedMachineDoesNotJoin(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	instance := w.asToken(w.token(m))
	w.remove(m)
	w.wantPendingWithoutEvent(w.post(instance, csrtest.ForClient(w.node("m"))))
}

func TestSharedTokenIsReportedOnRequestedMachine(t *testing.T) {
	w := newTestApprover(t)
	w.machine("m")
	shared := bootstrap.Token{Value: "shared.0123456789abcdef"}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-shared"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "shared", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": controlplane.KubeadmTokens},
	}
	w.create(secret)
	t.Cleanup(func() {
		if err := w.Delete(context.Background(), secret); err != nil {
			t.Error(err)
		}
	})
	w.wantReported(w.post(w.asToken(shared), csrtest.ForClient(w.node("m"))), ReasonTokenUnknown)
	w.wantPendingWithoutEvent(w.post(w.asToken(shared), csrtest.ForClient(w.node("m"))))
}

// Rule: other-requests-left-pending.
func TestMalformedRequestIsLeftPending(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	// The API server rejects system:masters itself.
	w.wantReported(w.post(w.asToken(w.token(m)),
		csrtest.ForClient(w.node("m"), csrtest.Organizations("system:nodes", "example:operators"))), ReasonMalformed)
}

// Rule: other-requests-left-pending.
func TestMachinesOfOtherProvidersAreIgnored(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m", func(m *v1beta1.Machine) {
		m.Spec.Provider, m.Labels[v1beta1.LabelProvider] = "another", "another"
	})
	w.wantPendingWithoutEvent(w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m"), csrtest.DNSNames("x"))))
}

// Rule: client-certificate-for-token-bearer.
func TestApprovesRenewalByNode(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	early := w.post(w.asNode(w.node("m")), csrtest.ForClient(w.node("m")))
	w.wantPendingWithoutEvent(early)
	w.pair(m)
	w.wantSigned(early, ReasonNodeRenews)
	w.wantPendingWithoutEvent(w.post(w.asNode(w.node("stranger")), csrtest.ForClient(w.node("stranger"))))
}

// If the class defines the provider ID of the Node, only the mark proves that the Node belongs to the machine. The
// cache may show status.nodeRef of the Machine before it shows the mark of the Node.
//
// Rule: certificate-name-from-provider.
func TestRenewalWaitsForMarkOfNode(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node("m")},
		Spec: corev1.NodeSpec{ProviderID: "k3s://" + w.node("m")}}
	w.create(node)
	w.status(m, func(s *v1beta1.MachineStatus) {
		s.Instance.NodeProviderID = node.Spec.ProviderID
		s.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	})
	name := w.post(w.asNode(node.Name), csrtest.ForClient(node.Name))
	w.wantPendingWithoutEvent(name)
	before := node.DeepCopy()
	node.Annotations = markOf(m)
	if err := w.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.wantSigned(name, ReasonNodeRenews)
}

// Rule: serving-certificate-for-known-addresses.
func TestServingCertificateOnlyForAddressesFromProvider(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.pair(m)
	w.cloud.setAnswer(nil, "10.0.0.5")
	node, own := w.asNode(w.node("m")), []string{w.node("m")}
	w.wantSigned(w.post(node, csrtest.ForServing(w.node("m"), own, []string{"10.0.0.5"})), ReasonNodeServes)
	others := w.post(node, csrtest.ForServing(w.node("m"), own, []string{"10.0.0.5", "10.0.0.6"}))
	w.wantReported(others, ReasonUnknownAddress)
	w.wantReported(w.post(node, csrtest.ForServing(w.node("m"), own, []string{"10.0.0.5"}, csrtest.URI)), ReasonMalformed)
	if n := w.cloud.calls(); n != 1 {
		t.Errorf("the provider was asked %d times within five minutes, want once", n)
	}
	// The requeued request asks the provider again, which knows the address now.
	w.cloud.setAnswer(nil, "10.0.0.5", "10.0.0.6")
	result := w.decide(w.approver, others)
	if result.RequeueAfter <= 0 || result.RequeueAfter > answerValid {
		t.Fatalf("requeued after %s", result.RequeueAfter)
	}
	w.wantPending(others)
	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	w.decide(w.approver, others)
	w.wantSigned(others, ReasonNodeServes)
}

func TestUnreachableProviderIsNotAskedInLoop(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.pair(m)
	w.cloud.setAnswer(errUnreachable)
	name := w.post(w.asNode(w.node("m")), csrtest.ForServing(w.node("m"), nil, []string{"10.0.0.5"}))
	for range 5 {
		w.wantPendingWithoutEvent(name)
	}
	if n := w.cloud.calls(); n > 2 { // The controller and this test may call the provider at the same time.
		t.Errorf("the provider was asked %d times", n)
	}
	w.cloud.setAnswer(nil, "10.0.0.5")
	w.clock.SetTime(w.clock.Now().Add(answerRetry))
	w.decide(w.approver, name)
	w.wantSigned(name, ReasonNodeServes)
}

func TestApprovalDoesNotOverwriteDenial(t *testing.T) {
	w := newTestApprover(t)
	m := w.machineWithoutStatus("m")
	name := w.post(w.asToken(w.token(m)), csrtest.ForClient(w.node("m")))
	read := &certificatesv1.CertificateSigningRequest{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: name}, read); err != nil {
		t.Fatal(err)
	}
	denied := read.DeepCopy()
	denied.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
		Status: corev1.ConditionTrue, Reason: "Person"}}
	if err := w.SubResource("approval").Update(t.Context(), denied); err != nil {
		t.Fatal(err)
	}
	// An approver with an outdated cache tries to approve the request.
	result, err := w.approver.approve(t.Context(), read, approve(ReasonMachineJoins, "late"))
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("approve returned %+v, %v, want a requeue", result, err)
	}
	env.Await(t, w.WithWatch, &certificatesv1.CertificateSigningRequestList{}, "the denial",
		func(l *certificatesv1.CertificateSigningRequestList) (bool, string) {
			return len(l.Items) == 1 && len(l.Items[0].Status.Conditions) == 1 &&
				!slices.ContainsFunc(l.Items[0].Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
					return c.Type != certificatesv1.CertificateDenied
				}), "it is not denied, or approved too"
		}, client.MatchingFields{"metadata.name": name})
}

type staleReader struct {
	client.Reader
	machine v1beta1.Machine
	others  []v1beta1.Machine
}

func (s staleReader) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.machine.DeepCopyInto(o.(*v1beta1.Machine))
	return nil
}

func (s staleReader) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*v1beta1.MachineList).Items = append([]v1beta1.Machine{s.machine}, s.others...)
	return nil
}

// Rule: approval-reads-live.
func TestNoApprovalForNameTakenSinceCacheRead(t *testing.T) {
	for name, take := range map[string]func(w *testApprover, other *v1beta1.Machine){
		"by a node": func(w *testApprover, _ *v1beta1.Machine) {
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node("m")},
				Spec: corev1.NodeSpec{ProviderID: "acme:///another"}})
		},
		"by another machine": func(w *testApprover, other *v1beta1.Machine) {
			w.status(other, func(s *v1beta1.MachineStatus) { s.NodeRef = &v1beta1.NodeRef{Name: w.node("m"), UID: "1"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestApprover(t)
			m := w.machine("m")
			other := w.machineWithoutStatus("other", func(o *v1beta1.Machine) {
				o.Labels[v1beta1.LabelProvider], o.Spec.Provider = "another",
					"another"
			})
			w.status(other, func(s *v1beta1.MachineStatus) {
				s.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: "another", NodeName: w.node("m")}
			})
			as, late := w.asToken(w.token(m)), *w.approver
			younger := *other.DeepCopy()
			younger.CreationTimestamp = metav1.NewTime(m.CreationTimestamp.Add(time.Hour))
			late.Machines, late.Cache = staleReader{machine: *m.DeepCopy(),
				others: []v1beta1.Machine{younger}}, withoutNodes{w.WithWatch}
			take(w, other)
			name := w.post(as, csrtest.ForClient(w.node("m")))
			w.decide(&late, name)
			w.wantPending(name)
		})
	}
}

func TestNoApprovalBasedOnStaleMachine(t *testing.T) {
	for name, change := range map[string]func(*testApprover, *v1beta1.Machine){
		"joined":  func(w *testApprover, m *v1beta1.Machine) { w.pair(m) },
		"deleted": func(w *testApprover, m *v1beta1.Machine) { w.remove(m) },
		"launched again": func(w *testApprover, m *v1beta1.Machine) {
			w.status(m, func(s *v1beta1.MachineStatus) { s.Launch = &v1beta1.LaunchStatus{Attempt: 2} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestApprover(t)
			m := w.machine("m")
			as, late := w.asToken(w.token(m)), *w.approver
			late.Machines, late.Cache = staleReader{machine: *m.DeepCopy()}, withoutNodes{w.WithWatch}
			change(w, m)
			name := w.post(as, csrtest.ForClient(w.node("m")))
			w.decide(&late, name)
			w.wantPending(name)
		})
	}
}

type withoutNodes struct{ client.Reader }

func (r withoutNodes) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	if _, ok := o.(*corev1.Node); ok {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	return r.Reader.Get(ctx, key, o, options...)
}

// Rule: node-paired-by-token.
func TestJoinsOfListsCertificatesIssuedForTokens(t *testing.T) {
	t.Parallel()
	w := newTestApprover(t)
	joins := kubeletcsr.NewJoinFinder(w.WithWatch)
	wantJoins := func(node string, want ...string) {
		t.Helper()
		got, err := joins.Find(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, j := range got {
			ids = append(ids, j.TokenID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("node %s joined with the tokens %q, want %q", node, ids, want)
		}
	}
	m := w.machine("m")
	wantJoins(w.node("m"))
	token := w.token(m)
	id, _, _ := strings.Cut(token.Value, ".")
	w.post(w.asToken(token), csrtest.ForClient(w.node("stranger")))
	w.wantSigned(w.post(w.asToken(token), csrtest.ForClient(w.node("m"))), ReasonMachineJoins)
	w.pair(m)
	w.wantSigned(w.post(w.asNode(w.node("m")), csrtest.ForClient(w.node("m"))), ReasonNodeRenews)
	wantJoins(w.node("m"), id)
	wantJoins(w.node("stranger"))
}
