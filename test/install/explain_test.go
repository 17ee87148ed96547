//go:build e2e && linux

package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/realnode"
)

func (m *machinist) describe(namespace string) string {
	var b strings.Builder
	machines := m.machines(namespace)
	fmt.Fprintf(&b, "%d machines", len(machines))
	for _, machine := range machines[:min(5, len(machines))] {
		fmt.Fprintf(&b, "\n  %s phase=%s", machine.Name, machine.Status.Phase)
		for _, c := range machine.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				fmt.Fprintf(&b, " %s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	for _, pod := range m.pods(system, "") {
		fmt.Fprintf(&b, "\n  pod %s", describePod(&pod))
	}
	providers := &v1beta1.ProviderList{}
	// The call fails if the operator's CRD is not installed.
	if err := m.api.List(context.Background(), providers); err == nil {
		for _, p := range providers.Items {
			fmt.Fprintf(&b, "\n  provider %s: %+v", p.Name, p.Status.Conditions)
		}
	}
	return b.String()
}

func describePod(pod *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			fmt.Fprintf(&b, ", %s: %s", c.Type, c.Message)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			fmt.Fprintf(&b, ", waiting: %s %s", w.Reason, w.Message)
		}
		if s.RestartCount > 0 {
			fmt.Fprintf(&b, ", %d restarts", s.RestartCount)
		}
		if e := s.LastTerminationState.Terminated; e != nil {
			fmt.Fprintf(&b, ", last ended with %d: %s %s", e.ExitCode, e.Reason, e.Message)
		}
	}
	return b.String()
}

func (m *machinist) readLog(pod *corev1.Pod) (string, error) {
	lines := int64(200)
	text, err := m.cluster.Kube().CoreV1().Pods(pod.Namespace).
		GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(context.Background())
	return string(text), err
}

// explain logs the state of all pods and all warning events after a failed test, and also copies all log files to the
// folder in E2E_LOGS.
func (m *machinist) explain() {
	for _, pod := range m.pods(metav1.NamespaceAll, "") {
		if pod.Spec.NodeName != "" && pod.Spec.NodeName != realnode.KubeadmNodeName {
			continue
		}
		text, err := m.readLog(&pod)
		if err != nil {
			text = err.Error()
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		m.t.Logf("pod %s/%s\n%s", pod.Namespace, describePod(&pod), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	events, err := m.cluster.Kube().CoreV1().Events(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
	if err == nil {
		for _, e := range events.Items {
			if e.Type == corev1.EventTypeWarning {
				m.t.Logf("event on %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
	}
	if folder := os.Getenv("E2E_LOGS"); folder != "" {
		logs, _ := filepath.Glob(filepath.Join(m.cluster.Dir(), "*.log"))
		more, _ := filepath.Glob("/var/log/*.log")
		for _, path := range append(logs, more...) {
			content, err := os.ReadFile(path)
			if err == nil {
				err = os.MkdirAll(folder, 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, filepath.Base(path)), content, 0o644)
			}
			if err != nil {
				m.t.Logf("copy log %s: %v", path, err)
			}
		}
	}
}
