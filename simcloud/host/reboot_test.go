package host

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched returns the pod after the API server has applied the machine's patch.
func patched(t *testing.T, seen *corev1.Pod, p *pod) *corev1.Pod {
	t.Helper()
	patch, err := p.patch("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(seen)
	if err != nil {
		t.Fatal(err)
	}
	data, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(data, next); err != nil {
		t.Fatal(err)
	}
	return next
}

func conditionOf(t *testing.T, p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	t.Helper()
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("no condition %s in %+v", kind, p.Status.Conditions)
	return corev1.PodCondition{}
}

// TestRebootRestartsPods checks the status after a machine was switched off and on. The values were measured with a
// v1.36 kubelet.
func TestRebootRestartsPods(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"service": {boundPod(corev1.RestartPolicyAlways),
			"1m0s Pending ContainerCreating; 1m0.5s Pending ContainerCreating prepared; 1m1s Running ready restarts=1"},
		"job": {boundPod(corev1.RestartPolicyOnFailure),
			"1m0s Running exit=255; 1m0.5s Running exit=255; 1m1s Running ready restarts=1"},
		"job that is not restarted": {boundPod(corev1.RestartPolicyNever), "1m0s Failed exit=255"},
		"ended before the reboot":   {boundPod(corev1.RestartPolicyNever, "complete-after", "1s"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			first, _ := newPod(test.pod, dawn, settings)
			first.ip = "100.64.0.7"
			simulate(t, first, dawn, 10*time.Second)
			seen := patched(t, test.pod, first)
			now := dawn.Add(time.Minute)
			second, _ := newPod(seen, now, settings)
			second.reboot(now)
			if got := strings.Join(simulate(t, second, now, 2*time.Minute), "; "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			last := second.status("10.0.0.1").ContainerStatuses[0].LastTerminationState
			if knows := last.Terminated != nil; knows != (name == "job") || knows && (last.Terminated.ExitCode != 255 ||
				last.Terminated.Reason != "Unknown") {
				t.Errorf("the previous run ended with %+v", last)
			}
		})
	}
}

func TestRebootChangesPodAddresses(t *testing.T) {
	from := boundPod(corev1.RestartPolicyAlways)
	first, _ := newPod(from, dawn, settings)
	first.ip = "100.64.0.7"
	simulate(t, first, dawn, 10*time.Second)
	seen := patched(t, from, first)
	if seen.Status.PodIP != "100.64.0.7" || conditionOf(t, seen, corev1.PodReadyToStartContainers).Status != corev1.ConditionTrue {
		t.Fatalf("before the reboot: %+v", seen.Status)
	}
	now := dawn.Add(time.Minute)
	second, _ := newPod(seen, now, settings)
	second.reboot(now)
	seen = patched(t, seen, second)
	if seen.Status.PodIP != "" || len(seen.Status.PodIPs) != 0 || seen.Status.Phase != corev1.PodPending ||
		conditionOf(t, seen, corev1.PodReadyToStartContainers).Status != corev1.ConditionFalse {
		t.Errorf("after the reboot: %+v", seen.Status)
	}
	second.ip = "100.64.0.8"
	second.advance(now.Add(time.Second), settings)
	seen = patched(t, seen, second)
	if seen.Status.PodIP != "100.64.0.8" || len(seen.Status.PodIPs) != 1 || seen.Status.PodIPs[0].IP != "100.64.0.8" {
		t.Errorf("running again: %+v", seen.Status)
	}
}

func TestTrueConditionHasNoReason(t *testing.T) {
	from := boundPod(corev1.RestartPolicyAlways)
	p, _ := newPod(from, dawn, settings)
	seen := patched(t, from, p)
	c := conditionOf(t, seen, corev1.PodReady)
	if c.Status != corev1.ConditionFalse || c.Reason != "ContainersNotReady" || c.Message != "containers with unready status: [c]" {
		t.Errorf("while it starts: %+v", c)
	}
	simulate(t, p, dawn, 10*time.Second)
	seen = patched(t, seen, p)
	if c := conditionOf(t, seen, corev1.PodReady); c.Status != corev1.ConditionTrue || c.Reason != "" || c.Message != "" {
		t.Errorf("when it is ready: %+v", c)
	}
}

func TestNodeRegistersNotReady(t *testing.T) {
	m := &machine{boot: &bootstrap{}, registrationTime: dawn}
	last := func() corev1.NodeCondition {
		conditions := m.node(dawn).Status.Conditions
		return conditions[len(conditions)-1]
	}
	if c := last(); c.Type != corev1.NodeReady || c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" {
		t.Errorf("the Node registers with %+v", c)
	}
	m.registrationDone = true
	if c := last(); c.Status != corev1.ConditionTrue {
		t.Errorf("after the registration: %+v", c)
	}
}
