package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func TestHistory(t *testing.T) {
	created, launched, updated, failedAt := ago(time.Hour), ago(59*time.Minute), ago(40*time.Minute), ago(50*time.Minute)
	m := machine(func(m *v1beta1.Machine) {
		m.CreationTimestamp = created
		m.Spec.ProviderID = "sim://i-1"
		m.Status.Instance = &v1beta1.InstanceStatus{LaunchTime: &launched}
		m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationSucceeded,
			LastUpdateTime: &updated, Description: "The machine is a Ready node.", Attempts: 3}
		m.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: "MachineReady", LastTransitionTime: ago(39 * time.Minute)},
			{Type: v1beta1.ConditionNodeHealthy, Status: metav1.ConditionFalse, Reason: "NodeNotReady", Message: "Kubelet stopped",
				LastTransitionTime: ago(5 * time.Minute)},
		}
	})
	events := []Event{{First: failedAt.Time, Last: ago(45 * time.Minute).Time, Count: 4, Warning: true,
		Reason:  "CreateFailed",
		Message: "quota"}}
	since := failedAt.Time
	failures := []Failure{{Namespace: m.Namespace, Machine: m.Name, Reason: "CreateError", Message: "quota of vCPUs is 8",
		Since: &since},
		{Namespace: m.Namespace, Machine: "another", Since: &since}}
	var lines []string
	for _, x := range History(m, events, failures) {
		lines = append(lines, fmt.Sprintf("%.0f %s %v %s|%s", now.Sub(x.Time).Minutes(), x.Source, x.Trouble, x.Description, x.Detail))
	}
	want := strings.TrimSpace(`
5 Condition true NodeHealthy became False: NodeNotReady|Kubelet stopped
39 Condition false Ready became True: MachineReady|` + MeaningOf("Ready", "MachineReady").Explanation + `
40 Operation false Create succeeded, after 3 attempts|The machine is a Ready node.
45 Event true CreateFailed|quota
50 Deployment true Failed: CreateError|quota of vCPUs is 8
59 Machine false The cloud started to create the instance|sim://i-1
60 Machine false Created|`)
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the history is\n%s\nwant\n%s", got, want)
	}
}
