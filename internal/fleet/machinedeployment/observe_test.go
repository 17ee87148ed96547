package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
)

func annotated(key, value string, change func(*v1beta1.Machine)) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Annotations = map[string]string{key: value}
		change(m)
	}
}

func going(change func(*v1beta1.Machine)) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		change(m)
		now := metav1.NewTime(noon)
		m.DeletionTimestamp = &now
	}
}

func ill(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineUnhealthy
	notReady(m)
}

func toBeRemedied(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonBuiltInPolicy)(m)
}

func unlaunched(m *v1beta1.Machine) {
	notReady(m)
	m.Spec.ProviderID = ""
}

func free(first, free int32) victims.Forecast { return victims.Forecast{First: first, Free: free} }

func TestCount(t *testing.T) {
	now := noon.Add(10 * time.Minute)
	type ms = []*v1beta1.Machine
	tests := []struct {
		name         string
		machines     ms
		seconds      int32
		want         Set
		requeueAfter time.Duration
	}{
		{"nothing", nil, 0, Set{}, 0},
		{"all there is", ms{
			machine("a", 1, isReady), machine("b", 1, notReady), machine("c", 1, ill),
			machine("d", 1, failedFor(v1beta1.FailureCreateError)),
			machine("e", 1, going(isReady)), machine("f", 1, unlaunched),
		}, 0, Set{Live: 5, Deleting: 1, Ready: 1, Available: 1, Unhealthy: 2, Unlaunched: 2, Forecast: free(4, 4)}, 0},
		{"Ready long enough, and not yet", ms{machine("a", 1, isReady), machine("b", 9, isReady), machine("c", 8, isReady)},
			180,
			Set{Live: 3, Ready: 3, Available: 1, Forecast: free(0, 2)}, time.Minute},
		{"a machine from the future is available without minReadySeconds", ms{machine("a", 99, isReady)}, 0,
			Set{Live: 1, Ready: 1, Available: 1}, 0},
		{"an available machine that is marked goes before those that are not available", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeleteMachine, "", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1, Forecast: free(0, 1)}, 0},
		{"one that is marked and not available goes first", ms{
			machine("a", 1, isReady), machine("b", 1, annotated(v1beta1.AnnotationDeleteMachine, "", notReady)),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1, Forecast: free(1, 1)}, 0},
		{"an available machine that must be replaced goes before one that comes up", ms{
			machine("a", 1, toBeRemedied), machine("b", 1, unlaunched), machine("c", 1, failedFor(v1beta1.FailureCreateError)),
		}, 0, Set{Live: 3, Ready: 1, Available: 1, Unhealthy: 2, Unlaunched: 2, Forecast: free(0, 2)}, 0},
		{"priority goes before readiness", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "-1", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Forecast: free(0, 1)}, 0},
		{"a malformed priority is the default", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "first", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Forecast: free(1, 1)}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := setOf("a", 1, noon)
			test.want.Name = set.Name
			got, requeueAfter := count(set, test.machines, false, test.seconds, now)
			if got != test.want || requeueAfter != test.requeueAfter {
				t.Errorf("counted %+v, requeue after %s; expected %+v, %s", got, requeueAfter, test.want, test.requeueAfter)
			}
		})
	}
}

func markedForOthers(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonExternalRemediation)(m)
}

func interrupted(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionInterruptionNotice, metav1.ConditionTrue, v1beta1.ReasonPreemptionNotice)(m)
}
