package machinedeployment

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func listed(failures []v1beta1.FailedMachine) string {
	parts := make([]string, len(failures))
	for i, f := range failures {
		parts[i] = fmt.Sprintf("%s %s %.0f", f.Name, f.Reason, f.Time.Sub(noon).Minutes())
	}
	return strings.Join(parts, ", ")
}

type recents struct {
	state  *deploymentState
	shared *sharedState
	status []v1beta1.FailedMachine
}

func newRecents() *recents {
	shared := newSharedState()
	return &recents{shared: shared, state: shared.get(types.NamespacedName{Name: "web"}, "u")}
}

func (r *recents) pass(machines ...*v1beta1.Machine) string {
	r.status = r.shared.recentFailures(r.state, r.status, map[types.UID][]*v1beta1.Machine{"s": machines})
	return listed(r.status)
}

// Rule: recent-failures-stay.
func TestRecentFailuresStayAfterReplacementAndRecovery(t *testing.T) {
	r := newRecents()
	create := failedFor(v1beta1.FailureCreateError)
	for _, step := range []struct {
		name     string
		machines []*v1beta1.Machine
		want     string
	}{
		{"no failures", []*v1beta1.Machine{machine("a", 1, isReady), machine("b", 2, notReady)}, ""},
		{"a machine failed", []*v1beta1.Machine{machine("a", 1, isReady), machine("b", 3, create)}, "b CreateError 3"},
		{"the machine was replaced", []*v1beta1.Machine{machine("a", 1, isReady), machine("c", 4, isReady)},
			"b CreateError 3"},
		{"a machine was found unhealthy, another cannot be launched", []*v1beta1.Machine{
			machine("a", 6, condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, "web-health")),
			machine("d", 5, unlaunchableFor(v1beta1.ReasonClassNotFound))},
			"a web-health 6, d ClassNotFound 5, b CreateError 3"},
		{"both recovered", []*v1beta1.Machine{machine("a", 7, isReady), machine("d", 7, isReady)},
			"a web-health 6, d ClassNotFound 5, b CreateError 3"},
		{"a machine fails again for another reason",
			[]*v1beta1.Machine{machine("d", 8, failedFor(v1beta1.FailureInstanceVanished))},
			"d InstanceVanished 8, a web-health 6, b CreateError 3"},
	} {
		if got := r.pass(step.machines...); got != step.want {
			t.Errorf("%s: the status lists %q, want %q", step.name, got, step.want)
		}
	}
}

// Rule: recent-failures-stay.
func TestRecentFailuresAreLimitedAndStableAcrossAttempts(t *testing.T) {
	r := newRecents()
	fleet := func(minute int) (machines []*v1beta1.Machine) {
		for i := range 9 {
			machines = append(machines, machine(fmt.Sprintf("m%d", i), minute+i,
				failedFor(v1beta1.FailureInsufficientResources)))
		}
		return machines
	}
	first := r.pass(fleet(1)...)
	if want := "m8 InsufficientResources 9, m7 InsufficientResources 8, m6 InsufficientResources 7, " +
		"m5 InsufficientResources 6, m4 InsufficientResources 5"; first != want {
		t.Errorf("the status lists %q, want the newest five", first)
	}
	// Further attempts fail in the same way at a later time, also on machines that the status does not list.
	for minute := 20; minute < 60; minute += 20 {
		if again := r.pass(fleet(minute)...); again != first {
			t.Errorf("after another attempt of each machine, the status lists %q, before %q", again, first)
		}
	}
}

// The machine may be gone before the next pass, and the status may be written several passes later.
//
// Rule: recent-failures-stay.
func TestFailureReportedOnlyByEventIsListed(t *testing.T) {
	reconciler := New(Options{})
	key := types.NamespacedName{Namespace: "ns", Name: "web"}
	state := reconciler.shared.get(key, "u")
	m := machine("b", 3, failedFor(v1beta1.FailureCreateError))
	m.Namespace, m.Labels = key.Namespace, map[string]string{v1beta1.LabelMachineDeployment: key.Name}
	m.Status.FailureMessage = strings.Repeat("no such size ", 1000)
	reconciler.deploymentOfMachine(context.Background(), m)
	for range 2 {
		recent := reconciler.shared.recentFailures(state, nil, nil)
		if got := listed(recent); got != "b CreateError 3" {
			t.Fatalf("the status lists %q, want the machine that is gone", got)
		}
		if n := len(recent[0].Message); n > 1024 || !strings.HasPrefix(recent[0].Message, "no such size") {
			t.Errorf("the message has %d bytes, want the beginning of the cloud's message, at most 1024 bytes", n)
		}
	}
}

// Rule: recent-failures-stay.
// Rule: settled-deployment-no-write.
func TestRecentFailuresOfCompleteDeploymentCauseNoWrite(t *testing.T) {
	d := deployment("b")
	set := setOf("b", 1, noon)
	three := int32(3)
	set.Spec.Replicas = &three
	sets := []*v1beta1.MachineSet{set}
	status := func(at time.Time, machines ...*v1beta1.Machine) *v1beta1.MachineDeploymentStatus {
		of := map[types.UID][]*v1beta1.Machine{set.UID: machines}
		s, _ := statusOf(d, viewed(t, d, sets, of), "app=web", at)
		return s
	}
	a, b := machine("a", 1, isReady), machine("b", 1, isReady)
	d.Status = *status(noon, a, b, machine("c", 2, failedFor(v1beta1.FailureInstanceVanished)))
	replaced := machine("d", 3, isReady)
	d.Status = *status(noon.Add(time.Minute), a, b, replaced)
	if got := listed(d.Status.RecentFailures); got != "c InstanceVanished 2" || len(d.Status.FailedMachines) > 0 {
		t.Fatalf("the status lists %q as recent failures and %d failed machines", got, len(d.Status.FailedMachines))
	}
	again := status(noon.Add(time.Hour), a, b, replaced)
	if got := listed(again.RecentFailures); got != "c InstanceVanished 2" {
		t.Errorf("an hour later the status lists %q", got)
	}
}
