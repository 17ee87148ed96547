//go:build e2e

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

// A kubelet that requests a serving certificate gets one for its own name and address.
func TestKubeletsGetServingCertificates(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(2, func(o client.Object) {
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			const kind = "kind: KubeletConfiguration\n"
			replaceUserData(s, kind, kind+"      serverTLSBootstrap: true\n")
		}
	})
	machines := m.awaitRunning(2)
	list := env.Await(t, m.target, &certificatesv1.CertificateSigningRequestList{}, "two serving certificates",
		func(l *certificatesv1.CertificateSigningRequestList) (bool, string) {
			signed, state := 0, ""
			for _, csr := range l.Items {
				if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
					state += fmt.Sprintf("%s by %s: %v\n", csr.Name, csr.Spec.Username, csr.Status.Conditions)
					if len(csr.Status.Certificate) > 0 {
						signed++
					}
				}
			}
			return signed == 2, state
		})
	for i := range machines {
		name := machines[i].Status.NodeRef.Name
		found := false
		for _, csr := range list.Items {
			if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || csr.Spec.Username != "system:node:"+name {
				continue
			}
			found = true
			block, _ := pem.Decode(csr.Status.Certificate)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if err := certificate.VerifyHostname(name); err != nil || len(certificate.IPAddresses) != 1 {
				t.Errorf("the certificate of node %s is for %v and %v", name, certificate.DNSNames, certificate.IPAddresses)
			}
		}
		if !found {
			t.Errorf("node %s has no serving certificate", name)
		}
	}
}
