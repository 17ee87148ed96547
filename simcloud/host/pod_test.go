package host

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/simcloud"
)

var (
	dawn     = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	settings = simcloud.HostSettings{PodStartTime: simcloud.Duration(time.Second),
		PodStopTime: simcloud.Duration(2 * time.Second)}
)

func boundPod(restart corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Generation: 3,
		Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations["simcloud/"+annotations[i]] = annotations[i+1]
	}
	p.Spec.RestartPolicy = restart
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/c"}}
	return p
}

// deletedPod returns the pod after a delete request at the given time.
func deletedPod(p *corev1.Pod, at time.Duration, grace time.Duration) *corev1.Pod {
	p = p.DeepCopy()
	p.Generation++
	stamp := metav1.NewTime(dawn.Add(at + grace))
	p.DeletionTimestamp = &stamp
	return p
}

func describe(p *pod) string {
	s := p.status("10.0.0.1")
	c := s.ContainerStatuses[0]
	parts := []string{string(s.Phase)}
	switch {
	case c.State.Waiting != nil:
		parts = append(parts, c.State.Waiting.Reason)
	case c.State.Terminated != nil:
		parts = append(parts, fmt.Sprintf("exit=%d", c.State.Terminated.ExitCode))
	}
	for _, condition := range s.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			parts = append(parts, "ready")
		}
		if condition.Type == corev1.PodReadyToStartContainers && condition.Status == corev1.ConditionTrue &&
			s.Phase == corev1.PodPending {
			parts = append(parts, "prepared")
		}
	}
	if c.RestartCount > 0 {
		parts = append(parts, fmt.Sprintf("restarts=%d", c.RestartCount))
	}
	if p.terminated {
		parts = append(parts, "terminated")
	}
	return strings.Join(parts, " ")
}

// simulate advances the pod until the given time, and describes each change with its time.
func simulate(t *testing.T, p *pod, now time.Time, until time.Duration) []string {
	t.Helper()
	var log []string
	for range 100 {
		p.advance(now, settings)
		if p.wantsCall() {
			log = append(log, fmt.Sprintf("%s %s", now.Sub(dawn), describe(p)))
			p.isReported = true
			p.deleted = p.terminated
		}
		due := p.dueTime(settings)
		if due.IsZero() || due.Sub(dawn) > until {
			return log
		}
		if !due.After(now) {
			t.Fatalf("the pod is due at %s, but it is already %s", due.Sub(dawn), now.Sub(dawn))
		}
		now = due
	}
	t.Fatal("the pod does not come to rest")
	return nil
}

func TestPodLifecycle(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"service": {boundPod(corev1.RestartPolicyAlways), "0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready"},
		"slow": {boundPod(corev1.RestartPolicyAlways, "ready-after", "5s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running; 6s Running ready"},
		"never ready": {boundPod(corev1.RestartPolicyAlways, "ready-after", "never"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running"},
		"job": {boundPod(corev1.RestartPolicyNever, "complete-after", "5s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; 6s Running exit=0; 6.5s Succeeded exit=0"},
		"job on failure": {boundPod(corev1.RestartPolicyOnFailure, "complete-after", "5s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; 6s Running exit=0; 6.5s Succeeded exit=0"},
		"failing job": {boundPod(corev1.RestartPolicyNever, "crash-after", "5s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; 6s Running exit=1; 6.5s Failed exit=1"},
		"crashing service": {boundPod(corev1.RestartPolicyAlways, "crash-after", "5s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; " +
				"6s Running exit=1; 6.5s Running ready restarts=1; 11.5s Running exit=1 restarts=1; " +
				"21.5s Running CrashLoopBackOff restarts=1; 22s Running ready restarts=2; 27s Running exit=1 restarts=2; " +
				"37s Running CrashLoopBackOff restarts=2; 47s Running ready restarts=3; 52s Running exit=1 restarts=3"},
		"ending service": {boundPod(corev1.RestartPolicyAlways, "complete-after", "50s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; 51s Running exit=0; 51.5s Running ready restarts=1"},
		"crashes before it completes": {boundPod(corev1.RestartPolicyNever, "crash-after", "5s", "complete-after", "6s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready; 6s Running exit=1; 6.5s Failed exit=1"},
		"crashes immediately": {boundPod(corev1.RestartPolicyNever, "crash-after", "0s"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running exit=1; 1.5s Failed exit=1"},
		"unreadable": {boundPod(corev1.RestartPolicyAlways, "ready-after", "soon"),
			"0s Pending ContainerCreating; 500ms Pending ContainerCreating prepared; 1s Running ready"},
		"deleted before it starts": {deletedPod(boundPod(corev1.RestartPolicyAlways), 0, 30*time.Second),
			"0s Failed exit=137 terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			p, note := newPod(test.pod, dawn, settings)
			if (note != nil) != (name == "unreadable") {
				t.Errorf("note: %v", note)
			}
			if got := strings.Join(simulate(t, p, dawn, time.Minute), "; "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPodDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		annotations []string
		grace       time.Duration
		secondGrace time.Duration // grace period of a second delete request, one second later
		want        string
	}{
		"default": {nil, 30 * time.Second, 0, "10s Running ready; 12s Succeeded exit=0 terminated"},
		"slowly": {[]string{"stop-after", "20s"}, 30 * time.Second, 0, "10s Running ready; 30s Succeeded " +
			"exit=0 terminated"},
		"longer than its grace period": {[]string{"stop-after", "never"}, 5 * time.Second, 0, "10s Running ready; 15s Failed " +
			"exit=137 terminated"},
		"immediately":          {[]string{"stop-after", "0s"}, 30 * time.Second, 0, "10s Succeeded exit=0 terminated"},
		"without grace period": {[]string{"stop-after", "never"}, 0, 0, "10s Failed exit=137 terminated"},
		"shorter second grace period": {[]string{"stop-after", "never"}, 30 * time.Second, 2 * time.Second,
			"11s Running ready; 13s Failed exit=137 terminated"},
		"before it crashes": {[]string{"crash-after", "9.5s"}, 30 * time.Second, 0, "10s Running ready; 12s Succeeded " +
			"exit=0 terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			from := boundPod(corev1.RestartPolicyAlways, test.annotations...)
			p, _ := newPod(from, dawn, settings)
			simulate(t, p, dawn, 10*time.Second)
			if note := p.update(deletedPod(from, 10*time.Second, test.grace), dawn.Add(10*time.Second),
				settings); note != nil {
				t.Error(note)
			}
			now := dawn.Add(10 * time.Second)
			if test.secondGrace > 0 {
				now = now.Add(time.Second)
				_ = p.update(deletedPod(from, 11*time.Second, test.secondGrace), now, settings)
			}
			got := strings.Join(simulate(t, p, now, time.Minute), "; ")
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestDeletionKeepsResultOfEndedPod(t *testing.T) {
	for _, test := range []struct{ annotation, want string }{
		{"crash-after", "Failed exit=1"}, {"complete-after", "Succeeded exit=0"},
	} {
		from := boundPod(corev1.RestartPolicyNever, test.annotation, "1s")
		p, _ := newPod(from, dawn, settings)
		simulate(t, p, dawn, 10*time.Second)
		_ = p.update(deletedPod(from, 10*time.Second, 30*time.Second), dawn.Add(10*time.Second), settings)
		p.advance(dawn.Add(10*time.Second), settings)
		if !p.isReported || !p.wantsCall() || describe(p) != test.want+" terminated" {
			t.Errorf("%s: %s", test.annotation, describe(p))
		}
	}
}

// After a restart, the machine reads the status of its pods from the API server, and continues the simulation of each
// pod from this status.
func TestPodsResumeAfterRestart(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		at   time.Duration // time at which the machine stops
		want string        // expected report 10 s later, after the restart
	}{
		"ready":             {boundPod(corev1.RestartPolicyAlways), 3 * time.Second, ""},
		"not ready yet":     {boundPod(corev1.RestartPolicyAlways, "ready-after", "30s"), 3 * time.Second, "31s Running ready"},
		"prepared":          {boundPod(corev1.RestartPolicyAlways), 700 * time.Millisecond, "10.7s Running ready"},
		"starting":          {boundPod(corev1.RestartPolicyAlways), 0, "10s Pending ContainerCreating; 10.5s Pending ContainerCreating prepared; 11s Running ready"},
		"ended":             {boundPod(corev1.RestartPolicyNever, "complete-after", "1s"), 3 * time.Second, ""},
		"failed":            {boundPod(corev1.RestartPolicyNever, "crash-after", "1s"), 3 * time.Second, ""},
		"crashes while off": {boundPod(corev1.RestartPolicyNever, "crash-after", "5s"), 3 * time.Second, "13s Failed exit=1"},
		"in backoff": {boundPod(corev1.RestartPolicyAlways, "crash-after", "1s"), 50 * time.Second,
			"1m0s Pending ContainerCreating restarts=3; 1m0.5s Pending ContainerCreating prepared restarts=3; " +
				"1m1s Running ready restarts=3; 1m2s Running exit=1 restarts=3; 1m12s Running CrashLoopBackOff restarts=3"},
	} {
		t.Run(name, func(t *testing.T) {
			first, _ := newPod(test.pod, dawn, settings)
			first.ip = "100.64.0.7"
			simulate(t, first, dawn, test.at)
			data, err := first.patch("10.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			seen := test.pod.DeepCopy()
			if err := json.Unmarshal(data, seen); err != nil {
				t.Fatal(err)
			}
			now := dawn.Add(test.at + 10*time.Second)
			second, _ := newPod(seen, now, settings)
			if second.ip != seen.Status.PodIP || (second.ip == "") != (name == "starting" || name == "prepared") || !second.startTime.Equal(first.startTime) {
				t.Errorf("address %q, start %s", second.ip, second.startTime)
			}
			if got := strings.Join(simulate(t, second, now, 75*time.Second), "; "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPodPatchHasUIDAndGeneration(t *testing.T) {
	p, _ := newPod(boundPod(corev1.RestartPolicyAlways), dawn, settings)
	p.ip = "100.64.0.7"
	p.advance(dawn.Add(time.Second), settings)
	data, err := p.patch("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Pod
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.UID != "u" || got.Status.ObservedGeneration != 3 || got.Status.PodIPs[0].IP != "100.64.0.7" ||
		got.Status.HostIP != "10.0.0.1" {
		t.Errorf("got %s", data)
	}
	if strings.Contains(string(data), "PodScheduled") {
		t.Error("the patch changes the scheduler's condition")
	}
}
