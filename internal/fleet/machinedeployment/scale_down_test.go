package machinedeployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
	"machinist.dev/machinist/internal/machine/machinestate"
)

func pausedMachine(m *v1beta1.Machine) { annotated(v1beta1.AnnotationPaused, "", notReady)(m) }

func unlaunchable(m *v1beta1.Machine) {
	unlaunched(m)
	condition(v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonClassNotFound)(m)
}

// Rule: one-deletion-order. The deployment predicts which machines a set deletes, and the prediction must be right for
// every delete policy.
func TestForecastAgreesWithSet(t *testing.T) {
	kinds := []func(*v1beta1.Machine){isReady, notReady, phaseUnhealthy, unlaunched, toRemediate,
		failedFor(v1beta1.FailureCreateError),
		annotated(v1beta1.AnnotationDeleteMachine, "", isReady), annotated(v1beta1.AnnotationDeleteMachine, "", notReady),
		annotated(v1beta1.AnnotationDeletePriority, "1", isReady), annotated(v1beta1.AnnotationDeletePriority, "9", notReady),
		externallyRemediated, interrupted, pausedMachine}
	now := noon.Add(time.Hour)
	set := setOf("a", 1, noon)
	check := func(t *testing.T, machines []*v1beta1.Machine, policy v1beta1.DeletePolicy, minReady int32) {
		t.Helper()
		available := func(m *v1beta1.Machine) bool { return machinestate.IsAvailable(m, minReady, now) }
		counted, _ := count(set, machines, false, minReady, now)
		order := machinestate.DeletionOrder(machines, policy, 1)
		first, _ := victims.Choose(order, int(counted.UnavailableFirst), len(machines), available)
		if slices.ContainsFunc(first, available) {
			t.Errorf("the set deletes an available machine among the first %d", counted.UnavailableFirst)
		}
		for surplus := range int(counted.Expendable) + 1 {
			free, blocked := victims.Choose(order, surplus, 0, available)
			if len(free) != surplus || len(blocked) > 0 || slices.ContainsFunc(free, available) {
				t.Errorf("the set deletes %d of %d surplus machines without an available one, although %d are expendable",
					len(free), surplus, counted.Expendable)
			}
		}
	}
	for a := range kinds {
		for b := range kinds {
			for c := range kinds {
				machines := []*v1beta1.Machine{machine("a", 1, kinds[a]), machine("b", 2, kinds[b]), machine("c", 3, kinds[c])}
				for _, policy := range []v1beta1.DeletePolicy{v1beta1.DeleteRandom, v1beta1.DeleteNewest, v1beta1.DeleteOldest} {
					for _, minReady := range []int32{0, 58 * 60} { // With 58 minutes, machine c is not available yet.
						check(t, machines, policy, minReady)
						if t.Failed() {
							t.Fatalf("kinds %d, %d, %d", a, b, c)
						}
					}
				}
			}
		}
	}
}

// Rule: scale-down-never-waits-for-a-preferred-machine. Of four machines, the broken one is deleted, whichever machine
// is preferred for deletion.
func TestScaleDownDeletesBrokenMachine(t *testing.T) {
	preferred := map[string]func(*v1beta1.Machine){
		"marked":      annotated(v1beta1.AnnotationDeleteMachine, "", isReady),
		"by priority": annotated(v1beta1.AnnotationDeletePriority, "-1", isReady),
		"oldest":      isReady,
	}
	broken := map[string]func(*v1beta1.Machine){
		"failed":       failedFor(v1beta1.FailureCreateError),
		"unlaunchable": unlaunchable,
		"pending":      unlaunched,
		"not Ready":    notReady,
		"deleting":     beingDeleted(isReady),
	}
	for name, prefer := range preferred {
		for state, breakIt := range broken {
			for at := range 4 { // The order in which the machines are listed, and their ages.
				t.Run(fmt.Sprintf("%s, %s as number %d", name, state, at), func(t *testing.T) {
					machines := []*v1beta1.Machine{machine("a", 1, prefer), machine("b", 2, isReady), machine("c", 3, isReady)}
					if name != "oldest" {
						slices.Reverse(machines)
					}
					machines = slices.Insert(machines, at, machine("x", 2*at, breakIt))
					scaleDownTo(t, 3, machines)
				})
			}
		}
	}
}

// scaleDownTo lowers replicas by one, then lets the deployment and its set make one decision each.
func scaleDownTo(t *testing.T, replicas int32, machines []*v1beta1.Machine) {
	t.Helper()
	now := noon.Add(time.Hour)
	set := setOf("a", 1, noon)
	set.Spec.Replicas = ptr.To(replicas + 1)
	set.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
	set.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": "a"}
	for _, m := range machines {
		m.Labels = map[string]string{"pool": "a"}
	}
	counted, _ := count(set, machines, false, 0, now)
	plan := MakePlan(State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: replicas, Bounds: Bounds{MaxSurge: 1},
		SizedFor: replicas + 1, Sets: []Set{counted}})
	if len(plan.Scales) != 1 || plan.Scales[0].To != replicas || plan.SizedFor != replicas {
		t.Fatalf("the deployment plans %v, sized for %d", plan.Scales, plan.SizedFor)
	}
	set.Spec.Replicas = ptr.To(replicas)
	set.Spec.DeletePolicy = v1beta1.DeleteOldest
	decided := machineset.Decide(machineset.State{Set: set, Machines: machines, MaxInFlight: 1, Now: now,
		Availability: machineset.Availability{MinAvailable: int(replicas)}})
	left := slices.DeleteFunc(slices.Clone(machines), func(m *v1beta1.Machine) bool {
		return !machinestate.IsLive(m) || slices.Contains(decided.Delete, m)
	})
	if len(left) != int(replicas) || slices.ContainsFunc(left, func(m *v1beta1.Machine) bool {
		return !machinestate.IsReady(m)
	}) ||
		len(decided.BlockedDeletions) > 0 || decided.Create > 0 {
		t.Errorf("the set plans %+v", decided)
	}
}
