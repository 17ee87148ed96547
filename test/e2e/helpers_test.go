//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

func commonName(request []byte) string {
	block, _ := pem.Decode(request)
	if block == nil {
		return ""
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return csr.Subject.CommonName
}

// eventually calls the function check until it returns true. Use eventually only for states that cannot be watched.
// check also returns a description of the current state.
func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	deadline := time.After(env.Patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var state string
	for {
		ok := false
		if ok, state = check(); ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s until %s; last seen: %s", env.Patience, what, state)
		}
	}
}

func (m *machinist) rollTo(class string) {
	m.t.Helper()
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		class+`"}}}}}`)
}

func (m *machinist) awaitClasses(what string, want map[string]int) {
	m.t.Helper()
	m.await(fmt.Sprintf("%s: %v", what, want), func(machines []v1beta1.Machine) bool {
		have := byClass(machines)
		return fmt.Sprint(have) == fmt.Sprint(want)
	})
}

func byClass(machines []v1beta1.Machine) map[string]int {
	n := map[string]int{}
	for i := range machines {
		switch {
		case !machines[i].DeletionTimestamp.IsZero():
			n["deleting"]++
		case machines[i].Status.Phase == v1beta1.MachineRunning:
			n[machines[i].Spec.ClassRef.Name]++
		default:
			n["creating"]++
		}
	}
	return n
}

func (m *machinist) apply(manifest string) {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.kubectl("apply", "-f", path)
}

func classManifest(name, instanceType string) string {
	return strings.NewReplacer("NAME", name, "TYPE", instanceType, "CREDENTIALS", examples.CredentialsSecret, "USERDATA", examples.UserDataSecret).Replace(`
apiVersion: machinist.dev/v1beta1
kind: MachineClass
metadata:
  name: NAME
spec:
  provider: sim
  providerSpec:
    apiVersion: sim.machinist.dev/v1beta1
    kind: SimMachine
    region: sim-1
    instanceType: TYPE
    image: sim-os-1
  credentialsRef: {name: CREDENTIALS}
  userDataRef: {name: USERDATA}
`)
}

func (m *machinist) awaitGone(machine v1beta1.Machine) {
	m.t.Helper()
	m.await("the end of machine "+machine.Name, func(machines []v1beta1.Machine) bool {
		return !hasMachine(machines, machine.Name)
	})
}

func (m *machinist) awaitAvailable(n int) []v1beta1.Machine {
	m.t.Helper()
	return m.await(fmt.Sprintf("%d available machines", n), func(machines []v1beta1.Machine) bool {
		return len(machines) == n && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Status.Phase != v1beta1.MachineAvailable ||
				!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
		})
	})
}

func (m *machinist) nodes(c client.Client) []string {
	m.t.Helper()
	list := &corev1.NodeList{}
	if err := c.List(context.Background(), list); err != nil {
		m.t.Fatalf("list nodes: %v", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// wantNothingLeft requires that no instance is live and that the cloud has created the given number of instances in
// total.
func (m *machinist) wantNothingLeft(made int) {
	m.t.Helper()
	if n := m.countLive(); n != 0 {
		m.t.Errorf("%d instances are left", n)
	}
	if n := len(m.instances()); n != made {
		m.t.Errorf("the cloud created %d instances, want %d", n, made)
	}
}
