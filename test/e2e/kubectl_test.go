//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// kubectl runs kubectl as a user of the control cluster would.
func (m *machinist) kubectl(args ...string) string {
	m.t.Helper()
	out, err := m.tryKubectl(args...)
	if err != nil {
		m.t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	m.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	return out
}

// tryKubectl is kubectl where an error may be right.
func (m *machinist) tryKubectl(args ...string) (string, error) {
	m.t.Helper()
	cmd := exec.Command(m.Control.Kubectl(), append([]string{"--kubeconfig", m.Control.Kubeconfig(), "-n", namespace},
		args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// What a user of kubectl does with a fleet.
func TestKubectl(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.quick()
	m.fleet(2, nil)
	m.running(2)

	contains(t, m.kubectl("get", "md,ms,ma,mclass,mhc"),
		"machinedeployment.machinist.dev/workers", "machineset.machinist.dev/workers-", "machine.machinist.dev/workers-",
		"machineclass.machinist.dev/"+examples.SmallClass, "PHASE", "Running", "READY", "True")
	contains(t, m.kubectl("get", "machinist"), "machinedeployment.machinist.dev/workers", "machine.machinist.dev/workers-")

	m.kubectl("scale", "md/workers", "--replicas=3")
	m.running(3)

	// As kubectl edit does it, without an editor.
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		examples.LargeClass+`"}}}}}`)
	m.await("three machines of the other class", func(machines []v1beta1.Machine) bool {
		for i := range machines {
			if machines[i].Spec.ClassRef.Name != examples.LargeClass || machines[i].Status.Phase != v1beta1.MachineRunning {
				return false
			}
		}
		return len(machines) == 3
	})
	m.kubectl("wait", "md/workers", "--for=condition=Available", "--timeout=60s")
	contains(t, m.kubectl("describe", "md/workers"), "Progressing", "Available", "Events:")
	machine := "ma/" + m.running(3)[0].Name
	contains(t, m.kubectl("describe", machine), "Launched", "Registered", "NodeHealthy", "Phase:                Running",
		"Events:", "The machine is a Ready node.")

	// A class that does not exist explains itself, and harms nothing.
	m.kubectl("patch", "md/workers", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"classRef":{"name":"missing"}}}}}`)
	machines := m.await("a machine that misses its class", func(machines []v1beta1.Machine) bool {
		for i := range machines {
			for _, c := range machines[i].Status.Conditions {
				if c.Type == v1beta1.ConditionLaunched && c.Reason == v1beta1.ReasonClassNotFound {
					return true
				}
			}
		}
		return false
	})
	running := 0
	for i := range machines {
		if machines[i].Status.Phase == v1beta1.MachineRunning {
			running++
		}
	}
	if running != 3 {
		t.Errorf("%d machines run beside the one without a class, want 3", running)
	}
	contains(t, m.kubectl("describe", "ma"), "ClassNotFound", "missing")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		examples.LargeClass+`"}}}}}`)
	m.running(3)

	m.kubectl("delete", "md/workers", "--wait=false")
	m.none()
	if n := m.live(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
