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

func beingDeleted(change func(*v1beta1.Machine)) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		change(m)
		now := metav1.NewTime(noon)
		m.DeletionTimestamp = &now
	}
}

func phaseUnhealthy(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineUnhealthy
	notReady(m)
}

func toRemediate(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonBuiltInPolicy)(m)
}

func unlaunched(m *v1beta1.Machine) {
	notReady(m)
	m.Spec.ProviderID = ""
}

func forecast(first, free int32) victims.Forecast {
	return victims.Forecast{UnavailableFirst: first, Expendable: free}
}

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
		{"no machines", nil, 0, Set{}, 0},
		{"machines in all states", ms{
			machine("a", 1, isReady), machine("b", 1, notReady), machine("c", 1, phaseUnhealthy),
			machine("d", 1, failedFor(v1beta1.FailureCreateError)),
			machine("e", 1, beingDeleted(isReady)), machine("f", 1, unlaunched),
		}, 0, Set{Live: 5, Deleting: 1, Ready: 1, Available: 1, Unhealthy: 2, Unlaunched: 2, Forecast: forecast(4, 4)}, 0},
		{"Ready for long enough, and not yet",
			ms{machine("a", 1, isReady), machine("b", 9, isReady), machine("c", 8, isReady)},
			180,
			Set{Live: 3, Ready: 3, Available: 1, Forecast: forecast(0, 2)}, time.Minute},
		{"Ready in the future, by another clock, without minReadySeconds", ms{machine("a", 99, isReady)}, 0,
			Set{Live: 1, Ready: 1, Available: 1}, 0},
		{"an available machine with a delete mark is deleted before unavailable ones", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeleteMachine, "", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1, Forecast: forecast(0, 1)}, 0},
		{"an unavailable machine with a delete mark is deleted first", ms{
			machine("a", 1, isReady), machine("b", 1, annotated(v1beta1.AnnotationDeleteMachine, "", notReady)),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1, Forecast: forecast(1, 1)}, 0},
		{"an available machine to be remediated is deleted before one that is coming up", ms{
			machine("a", 1, toRemediate), machine("b", 1, unlaunched), machine("c", 1, failedFor(v1beta1.FailureCreateError)),
		}, 0, Set{Live: 3, Ready: 1, Available: 1, Unhealthy: 2, Unlaunched: 2, Forecast: forecast(0, 2)}, 0},
		{"priority takes precedence over readiness", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "-1", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Forecast: forecast(0, 1)}, 0},
		{"a malformed priority counts as the default", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "first", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Forecast: forecast(1, 1)}, 0},
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

func externallyRemediated(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonExternalRemediation)(m)
}

func interrupted(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionInterruptionNotice, metav1.ConditionTrue, v1beta1.ReasonPreemptionNotice)(m)
}
