package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"machinist.dev/machinist/devel/controlplane"
)

// TestMachineWaitsForApproval checks that a machine waits for approval without a time limit. After a restart or a
// denied request, the machine sends another request.
func TestMachineWaitsForApproval(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{WithControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	kube, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	c, p := &cluster{cp: cp, kube: kube}, startProcess(t)
	token, _ := c.token(t)
	inst := p.create("pends", c.userData(token))

	first := c.wantRequest(t, "pends")
	// A kubelet does not save a key without a certificate, so it sends another request after a restart.
	p.restart(syscall.SIGKILL)
	second := c.wantRequest(t, "pends", first.Name)
	p.wantConsole(inst.ID, "waiting for approval of CertificateSigningRequest "+second.Name)
	c.decide(t, second, certificatesv1.CertificateDenied)
	p.wantConsole(inst.ID, "Denied: Test: decided by a test")

	third := c.wantRequest(t, "pends", first.Name, second.Name)
	c.decide(t, third, certificatesv1.CertificateApproved)
	c.wantReady(t, "pends", corev1.ConditionTrue)
	if n := len(c.requestsFor(t, "pends")); n != 3 {
		t.Errorf("got %d requests, want 3", n)
	}
}

// wantRequest waits for a certificate request of a node that is not in known.
func (c *cluster) wantRequest(t testing.TB, node string, known ...string) (request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	eventually(t, func() error {
		for _, r := range c.requestsFor(t, node) {
			if !slices.Contains(known, r.Name) {
				request = &r
				return nil
			}
		}
		return fmt.Errorf("node %s has no request except %q", node, known)
	})
	return request
}

func (c *cluster) decide(t testing.TB, request *certificatesv1.CertificateSigningRequest,
	decision certificatesv1.RequestConditionType) {
	t.Helper()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: decision, Status: corev1.ConditionTrue, Reason: "Test", Message: "decided by a test",
	})
	if _, err := c.kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), request.Name, request,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
