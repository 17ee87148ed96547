package approval

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"
	"machinist.dev/machinist/test/env"
)

// wantCondition waits until CertificateApproved has the reason and message. If the reason is empty, it waits until the
// Machine has no condition CertificateApproved.
func (w *testApprover) wantCondition(m *v1beta1.Machine, reason, message string) {
	w.Helper()
	env.Await(w, w.WithWatch, &v1beta1.MachineList{}, "the condition of "+m.Name,
		func(l *v1beta1.MachineList) (bool, string) {
			for i := range l.Items {
				if l.Items[i].Name != m.Name {
					continue
				}
				c := meta.FindStatusCondition(l.Items[i].Status.Conditions, v1beta1.ConditionCertificateApproved)
				if c == nil {
					return reason == "", "the condition is absent"
				}
				return c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, message),
					c.Reason + ": " + c.Message
			}
			return false, "the machine does not exist"
		}, client.InNamespace(w.ns))
}

// Rule: refused-request-in-condition.
func TestConditionReportsRefusedRequestUntilItEnds(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.pair(m)
	w.cloud.setAnswer(nil, "10.0.0.5")
	node, own := w.asNode(w.node("m")), []string{w.node("m")}
	first := w.post(node, csrtest.ForServing(w.node("m"), own, []string{"10.0.0.6"}))
	second := w.post(node, csrtest.ForServing(w.node("m"), own, []string{"10.0.0.6", "10.0.0.5"}))
	w.wantCondition(m, v1beta1.ReasonServingCertificateNotApproved, "10.0.0.6")
	remove := func(name string) {
		t.Helper()
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := w.Delete(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
	}
	remove(first)
	w.wantCondition(m, v1beta1.ReasonServingCertificateNotApproved, "10.0.0.6")
	w.cloud.setAnswer(nil, "10.0.0.5", "10.0.0.6")
	w.clock.SetTime(w.clock.Now().Add(answerValid))
	w.decide(w.approver, second)
	w.wantSigned(second, ReasonNodeServes)
	w.wantCondition(m, "", "")

	joins := w.machine("joins")
	wrong := w.post(w.asToken(w.token(joins)), csrtest.ForClient(w.node("another")))
	w.wantCondition(joins, v1beta1.ReasonClientCertificateNotApproved, string(ReasonWrongName))
	remove(wrong)
	w.wantCondition(joins, "", "")
}

// An attacker who controls a guest reports the address of an API server and requests a serving certificate for this
// address. The request must stay pending, and the condition must say what an administrator can do. An address in a
// range of --approve-guest-addresses must be approved.
//
// Rules: guest-address-only-in-ranges, refused-request-in-condition.
func TestAttackGuestReportsAddressOfAPIServer(t *testing.T) {
	w := newTestApprover(t)
	m := w.machine("m")
	w.pair(m)
	w.cloud.setGuestAddresses("198.51.100.5", "192.0.2.1")
	node, own := w.asNode(w.node("m")), []string{w.node("m")}
	theirs := w.post(node, csrtest.ForServing(w.node("m"), own, []string{"192.0.2.1"}))
	w.wantReported(theirs, ReasonGuestAddress)
	w.wantCondition(m, v1beta1.ReasonServingCertificateNotApproved, "--approve-guest-addresses")
	w.wantSigned(w.post(node, csrtest.ForServing(w.node("m"), own, []string{"198.51.100.5"})), ReasonNodeServes)
	w.wantPending(theirs)
}

// An attacker who takes the place of the cloud reports the addresses of the Service kubernetes and of its endpoints
// as those of an instance. The approver must read these addresses from the target cluster and refuse the request.
//
// Rules: no-serving-certificate-for-reserved-addresses, refused-request-in-condition.
func TestAttackCloudReportsAddressOfServiceKubernetes(t *testing.T) {
	w := newTestApprover(t)
	service := &corev1.Service{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, service); err != nil {
		t.Fatal(err)
	}
	// The API server of the test does not publish its own address, because it is a loopback address.
	servers := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}
	w.create(servers)
	t.Cleanup(func() {
		if err := w.Delete(context.Background(), servers); err != nil {
			t.Error(err)
		}
	})
	ips := []string{service.Spec.ClusterIP, "192.0.2.1"}
	w.cloud.setAnswer(nil, append(ips, "10.0.0.5")...)
	for i, ip := range ips {
		m := w.machine(fmt.Sprintf("m%d", i))
		w.pair(m)
		name := w.node(m.Name)
		node, own := w.asNode(name), []string{name}
		w.wantReported(w.post(node, csrtest.ForServing(name, own, []string{"10.0.0.5", ip})), ReasonReservedAddress)
		w.wantCondition(m, v1beta1.ReasonServingCertificateNotApproved, ip)
		w.wantSigned(w.post(node, csrtest.ForServing(name, own, []string{"10.0.0.5"})), ReasonNodeServes)
	}
}

// A provider with the role of an earlier release may not read the EndpointSlice. The Machine must report that.
//
// Rules: no-serving-certificate-for-reserved-addresses, refused-request-in-condition.
func TestMissingPermissionForAddressesOfAPIServersIsReported(t *testing.T) {
	w := newTestApprover(t, func(o *Options) {
		o.Target = interceptor.NewClient(o.Target.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context,
			c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*discoveryv1.EndpointSlice); ok {
				return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), key.Name, nil)
			}
			return c.Get(ctx, key, object, options...)
		}})
	})
	m := w.machine("m")
	w.pair(m)
	w.cloud.setAnswer(nil, "10.0.0.5")
	name := w.node(m.Name)
	w.wantReported(w.post(w.asNode(name), csrtest.ForServing(name, []string{name}, []string{"10.0.0.5"})),
		ReasonReservedAddress)
	w.wantCondition(m, v1beta1.ReasonServingCertificateNotApproved, "EndpointSlice kubernetes")
}
