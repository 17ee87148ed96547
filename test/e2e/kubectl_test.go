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

func (m *machinist) kubectl(args ...string) string {
	m.t.Helper()
	out, err := m.tryKubectl(args...)
	if err != nil {
		m.t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	m.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	return out
}

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
			t.Errorf("got a text without %q:\n%s", w, text)
		}
	}
}

func TestKubectlCommandsWork(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(2, nil)
	m.awaitRunning(2)

	contains(t, m.kubectl("get", "md,ms,ma,mclass,mhc"),
		"machinedeployment.machinist.dev/workers", "machineset.machinist.dev/workers-", "machine.machinist.dev/workers-",
		"machineclass.machinist.dev/"+examples.SmallClass, "PHASE", "Running", "READY", "True")
	contains(t, m.kubectl("get", "machinist"), "machinedeployment.machinist.dev/workers", "machine.machinist.dev/workers-")

	m.kubectl("scale", "md/workers", "--replicas=3")
	m.awaitRunning(3)

	// This patch has the effect of kubectl edit, but the test needs no editor.
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
	machine := "ma/" + m.awaitRunning(3)[0].Name
	contains(t, m.kubectl("describe", machine), "Launched", "Registered", "NodeHealthy", "Phase:                Running",
		"Events:", "The machine is a Ready node.")

	// A missing class is reported and does not harm existing machines.
	m.kubectl("patch", "md/workers", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"classRef":{"name":"missing"}}}}}`)
	machines := m.await("a machine without its class", func(machines []v1beta1.Machine) bool {
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
		t.Errorf("got %d running machines next to the one without a class, want 3", running)
	}
	contains(t, m.kubectl("describe", "ma"), "ClassNotFound", "missing")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		examples.LargeClass+`"}}}}}`)
	m.awaitRunning(3)

	m.kubectl("delete", "md/workers", "--wait=false")
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
