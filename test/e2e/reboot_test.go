//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

// Two machines become silent. The first one hangs and also ignores a shutdown. A reboot heals it. While its
// instance is off, the Node has the out-of-service taint, so that its pod ends. A reboot does not heal the second
// machine, which is then replaced.
//
// Rules: reboot-first, reboot-by-owner, reboot-silent, reboot-steps, reboot-attempts, reboot-timeout-by-check,
// reboot-then-replace.
func TestSilentMachinesAreRebootedFirst(t *testing.T) {
	t.Parallel()
	m := startForHealth(t, 5)
	before := m.awaitRunning(5)
	hung, broken := before[0], before[1]
	pod := m.protectedPod("web", hung.Status.NodeRef.Name)
	m.liftBudget("web")
	// Kubernetes deletes the pods of an unreachable node after five minutes, and removes them from a node that is out
	// of service every 20 seconds. The instance therefore stays off for longer than that, but for less than five
	// minutes.
	stopTime, bootTime := simcloud.Duration(3*time.Second), simcloud.Duration(40*time.Second)
	m.settings(simcloud.SettingsPatch{StopTime: &stopTime, BootTime: &bootTime})
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"remediation":{"maxInFlight":2}}}`)
	m.createHealthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.Remediation = v1beta1.HealthCheckRemediation{Type: v1beta1.RemediationReboot,
			Reboot: &v1beta1.RebootRemediation{Timeout: &metav1.Duration{Duration: 75 * time.Second}}}
	})
	m.injectFault(simcloud.FaultHangs, hung)
	m.injectFault(simcloud.FaultSilent, broken)

	m.awaitOutOfService(hung)
	m.wantOff(hung)
	eventually(t, "the pod is removed from the node that is out of service", func() (bool, string) {
		return m.pod(pod) == nil, "the pod exists"
	})
	m.wantOff(hung)
	if !m.hasOutOfServiceTaint(hung) {
		t.Error("the taint was removed while the instance was off")
	}

	healed := m.awaitMachine(hung.Name, "the healed machine", func(o *v1beta1.Machine) bool {
		return isReady(o) && o.Status.Reboot != nil && o.Status.Reboot.State == v1beta1.RebootSucceeded
	})
	m.wantSameNode(hung, healed, false)
	if r := healed.Status.Reboot; !r.Unresponsive || r.OutOfService || !strings.HasPrefix(r.Request, "remediation-1-") {
		t.Errorf("got the reboot %+v, want the first attempt for a silent machine, without the taint", r)
	}
	if note := m.markEvent(hung.UID).note; !strings.Contains(note, "attempt 1 of 1") {
		t.Errorf("event of the mark of machine %s: got %q, want attempt 1 of 1", hung.Name, note)
	}

	m.removeDelays()
	m.awaitGone(broken)
	if note := m.markEvent(broken.UID).note; !strings.Contains(note, "Reboots that did not help: 1.") {
		t.Errorf("event of the mark of machine %s: got %q, want a replacement after one reboot", broken.Name, note)
	}
	after := m.awaitOneReplaced(before, broken)
	if !slices.ContainsFunc(after, func(o v1beta1.Machine) bool { return o.UID == hung.UID }) {
		t.Error("the healed machine was replaced")
	}
	if n := m.countBoots(hung); n != 1 {
		t.Errorf("the node of the healed machine has booted %d times, want 1", n)
	}
	m.wantInstances(t, 6, 5)
}

// wantOff requires that the instance neither runs nor shuts down.
func (m *machinist) wantOff(of v1beta1.Machine) {
	m.t.Helper()
	if r := m.instanceOf(&of); r.State != simcloud.StateStopped && r.State != simcloud.StateStarting {
		m.t.Errorf("the instance of machine %s is %s, but its node is out of service", of.Name, r.State)
	}
}

func (m *machinist) hasOutOfServiceTaint(of v1beta1.Machine) bool {
	m.t.Helper()
	return hasTaint(m.readNode(of.Status.NodeRef.Name), corev1.TaintNodeOutOfService)
}

func (m *machinist) awaitOutOfService(of v1beta1.Machine) {
	m.t.Helper()
	env.Await(m.t, m.target, &corev1.NodeList{}, "the node of machine "+of.Name+" to be out of service",
		func(l *corev1.NodeList) (bool, string) {
			i := slices.IndexFunc(l.Items, func(n corev1.Node) bool { return n.UID == of.Status.NodeRef.UID })
			if i < 0 {
				return false, "the node does not exist"
			}
			return hasTaint(&l.Items[i], corev1.TaintNodeOutOfService), l.Items[i].Spec.String()
		})
}
