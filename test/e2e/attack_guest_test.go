//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr/csrtest"
	"machinist.dev/machinist/simcloud"
)

// An attacker with root rights in a guest makes its agent report an address of the attacker's choice, and requests a
// serving certificate for this address: an address of another host, or that of the Service kubernetes, although a
// range of --approve-guest-addresses contains it. The requests must stay pending, and the Machine must report the
// reason. An address in a range is approved if nothing else has this address.
//
// Rules: guest-address-only-in-ranges, no-serving-certificate-for-reserved-addresses.
func TestAttackGuestReportsForeignAddresses(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{}
	m := start(t, stack.Options{ProviderArgs: []string{"--approve-guest-addresses=198.51.100.0/24,10.0.0.0/8"}})
	if err := m.target.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, service); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(service.Spec.ClusterIP, "10.") {
		t.Fatalf("the Service kubernetes has the address %s outside the approved ranges", service.Spec.ClusterIP)
	}
	m.removeDelays()
	m.createFleet(0, nil)
	known := map[types.UID]bool{}
	for address, want := range map[string]string{
		"192.0.2.1":            "--approve-guest-addresses",
		service.Spec.ClusterIP: service.Spec.ClusterIP,
		"198.51.100.5":         "",
	} {
		// The provider reuses the answer of the cloud about a joining machine, so each address needs a new machine.
		m.settings(simcloud.SettingsPatch{GuestIP: &address})
		m.scale(int32(len(known) + 1))
		machines := m.awaitRunning(len(known) + 1)
		machine := machines[slices.IndexFunc(machines, func(m v1beta1.Machine) bool { return !known[m.UID] })]
		known[machine.UID] = true
		node := machine.Status.NodeRef.Name
		decided := m.requestCertificate(m.asKubelet(node), csrtest.ForServing(node, []string{node}, []string{address}))
		eventually(t, "the decision about "+address, func() (bool, string) {
			approved, state := decided()
			if want == "" {
				return approved, state
			}
			if approved {
				t.Fatalf("the certificate for %s was approved: %s", address, state)
			}
			if err := m.control.Get(t.Context(), client.ObjectKeyFromObject(&machine), &machine); err != nil {
				return false, err.Error()
			}
			c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionCertificateApproved)
			return c != nil && c.Reason == v1beta1.ReasonServingCertificateNotApproved && strings.Contains(c.Message, want),
				fmt.Sprintf("%+v", c)
		})
	}
}
