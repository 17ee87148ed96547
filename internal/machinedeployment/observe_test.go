package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machinestate"
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
		}, 0, Set{Live: 5, Deleting: 1, Ready: 1, Available: 1, Unhealthy: 2, Spare: 4}, 0},
		{"Ready long enough, and not yet", ms{machine("a", 1, isReady), machine("b", 9, isReady), machine("c", 8, isReady)},
			180,
			Set{Live: 3, Ready: 3, Available: 1}, time.Minute},
		{"a machine from the future is available without minReadySeconds", ms{machine("a", 99, isReady)}, 0,
			Set{Live: 1, Ready: 1, Available: 1}, 0},
		{"an available machine that is marked goes before those that are not available", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeleteMachine, "", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1}, 0},
		{"one that is marked and not available goes first", ms{
			machine("a", 1, isReady), machine("b", 1, annotated(v1beta1.AnnotationDeleteMachine, "", notReady)),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Marked: 1, Spare: 1}, 0},
		{"an available machine that must be replaced goes before one that comes up", ms{
			machine("a", 1, toBeRemedied), machine("b", 1, unlaunched), machine("c", 1, failedFor(v1beta1.FailureCreateError)),
		}, 0, Set{Live: 3, Ready: 1, Available: 1, Unhealthy: 2}, 0},
		{"priority goes before readiness", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "-1", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1}, 0},
		{"a malformed priority is the default", ms{
			machine("a", 1, annotated(v1beta1.AnnotationDeletePriority, "first", isReady)), machine("b", 1, notReady),
		}, 0, Set{Live: 2, Ready: 1, Available: 1, Spare: 1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := setOf("a", 1, noon)
			test.want.Name = set.Name
			got, requeueAfter := count(set, test.machines, test.seconds, now)
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

// Rule one-deletion-order: TestSpareAgreesWithTheSet fails if the set would delete an available machine although
// Spare predicts that it would not.
func TestSpareAgreesWithTheSet(t *testing.T) {
	kinds := []func(*v1beta1.Machine){isReady, notReady, ill, unlaunched, toBeRemedied,
		failedFor(v1beta1.FailureCreateError),
		annotated(v1beta1.AnnotationDeleteMachine, "", isReady), annotated(v1beta1.AnnotationDeleteMachine, "", notReady),
		annotated(v1beta1.AnnotationDeletePriority, "1", isReady), annotated(v1beta1.AnnotationDeletePriority, "9", notReady),
		markedForOthers, interrupted}
	now := noon.Add(time.Hour)
	set := setOf("a", 1, noon)
	for a := range kinds {
		for b := range kinds {
			for c := range kinds {
				for _, policy := range []v1beta1.DeletePolicy{v1beta1.DeleteRandom, v1beta1.DeleteNewest, v1beta1.DeleteOldest} {
					machines := []*v1beta1.Machine{machine("a", 1, kinds[a]), machine("b", 2, kinds[b]), machine("c", 3, kinds[c])}
					for _, minReady := range []int32{0, 58 * 60} { // The last of them is not available yet with that.
						counted, _ := count(set, machines, minReady, now)
						for i, m := range machinestate.DeletionOrder(machines, policy, 1)[:counted.Spare] {
							if machinestate.Available(m, minReady, now) {
								t.Fatalf("of kinds %d, %d, %d the set deletes an available machine as number %d, and %d are said to be spare",
									a, b, c, i+1, counted.Spare)
							}
						}
					}
				}
			}
		}
	}
}
