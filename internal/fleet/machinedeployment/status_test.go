package machinedeployment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
)

func viewed(t *testing.T, d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet,
	machines map[types.UID][]*v1beta1.Machine) *view {
	t.Helper()
	limits, err := bounds.Resolve(d.Spec.Strategy, d.ReplicasOrDefault())
	if err != nil {
		t.Fatal(err)
	}
	p := &pass{Reconciler: New(Options{}), deployment: d, known: newSharedState().get(types.NamespacedName{}, d.UID),
		now: noon.Add(time.Hour)}
	v := p.observe(t.Context(), sets, machines, limits)
	v.plan = MakePlan(v.state)
	v.applied = true
	return v
}

func TestStatusCounts(t *testing.T) {
	d := deployment("b")
	old, current := setOf("a", 1, noon), setOf("b", 2, noon)
	three, one := int32(3), int32(1)
	old.Spec.Replicas, current.Spec.Replicas = &three, &one
	labelled := func(set *v1beta1.MachineSet, change func(*v1beta1.Machine)) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) {
			change(m)
			m.Status.Version = "v1.36.3"
			m.Labels = set.Spec.Template.ObjectMeta.Labels
			condition(v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)(m)
		}
	}
	v := viewed(t, d, []*v1beta1.MachineSet{old, current}, map[types.UID][]*v1beta1.Machine{
		old.UID: {machine("a1", 1, labelled(old, isReady)), machine("a2", 1, isReady), machine("a3", 1,
			beingDeleted(isReady))},
		current.UID: {machine("b1", 1, labelled(old, failedFor(v1beta1.FailureCreateError)))},
	})
	status, _ := statusOf(d, v, "app=web", noon)
	at := metav1.NewTime(noon.Add(time.Minute))
	want := &v1beta1.MachineDeploymentStatus{
		ObservedGeneration: 1, Replicas: 3, FullyLabeledReplicas: 1, UpdatedReplicas: 1, UpToDateReplicas: 2,
		ReadyReplicas: 2, AvailableReplicas: 2, Versions: []v1beta1.VersionCount{{Version: "v1.36.3", Count: 2}},
		UnavailableReplicas: 1, CurrentRevision: 2, Selector: "app=web",
		FailedMachines: []v1beta1.FailedMachine{{Name: "b1", Reason: "CreateError", Time: &at}},
		RecentFailures: []v1beta1.FailedMachine{{Name: "b1", Reason: "CreateError", Time: &at}},
	}
	if diff := cmp.Diff(want, status, cmpopts.IgnoreFields(v1beta1.MachineDeploymentStatus{}, "Conditions")); diff != "" {
		t.Errorf("the status differs (- expected, + got):\n%s", diff)
	}
	for kind, want := range map[string]string{
		v1beta1.ConditionAvailable:     "False MinimumReplicasUnavailable 2 of 3 machines are available, at least 3 must be.",
		v1beta1.ConditionRollingOut:    "True RolloutBlocked 0 of 1 machines of the new revision are available; while machines of an old revision are deleted (3 left), at least 3 must stay available (replicas 3 − maxUnavailable 0).",
		v1beta1.ConditionProgressing:   "True MachineSetUpdated Set " + current.Name + " is progressing.",
		v1beta1.ConditionScalingUp:     "False AtDesiredReplicas The deployment has 3 machines, wants 3, and is deleting 1 more.",
		v1beta1.ConditionScalingDown:   "True ScalingDown The deployment has 3 machines, wants 3, and is deleting 1 more.",
		v1beta1.ConditionMachinesReady: "False MachinesNotReady 2 of 3 machines are Ready. Machine b1 is not Ready.",
	} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil {
			t.Errorf("there is no condition %s", kind)
			continue
		}
		got := string(c.Status) + " " + c.Reason + " " + c.Message
		if kind == v1beta1.ConditionProgressing {
			got = strings.SplitN(got, ":", 2)[0] + "." // without the explanation
		}
		if got != want {
			t.Errorf("%s is %q, expected %q", kind, got, want)
		}
	}
	for _, kind := range []string{v1beta1.ConditionPaused, v1beta1.ConditionFrozen, v1beta1.ConditionReplicaFailure} {
		if meta.FindStatusCondition(status.Conditions, kind) != nil {
			t.Errorf("the condition %s exists although it never was True", kind)
		}
	}
}

// Rule: settled-deployment-no-write.
func TestStatusOfCompleteDeploymentDoesNotChange(t *testing.T) {
	d := deployment("b")
	set := setOf("b", 1, noon)
	three := int32(3)
	set.Spec.Replicas = &three
	machines := map[types.UID][]*v1beta1.Machine{set.UID: {machine("a", 1, isReady), machine("b", 1, isReady),
		machine("c", 1, isReady)}}
	first, _ := statusOf(d, viewed(t, d, []*v1beta1.MachineSet{set}, machines), "app=web", noon)
	d.Status = *first
	second, requeueAfter := statusOf(d, viewed(t, d, []*v1beta1.MachineSet{set}, machines), "app=web", noon.Add(time.Hour))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the status changes with time alone:\n%s", diff)
	}
	if requeueAfter != 0 {
		t.Errorf("a complete deployment is reconciled again in %s", requeueAfter)
	}
}

func TestConditionsBecomeTrueAndFalse(t *testing.T) {
	d := deployment("b")
	set := setOf("b", 1, noon)
	report := func() *v1beta1.MachineDeploymentStatus {
		status, _ := statusOf(d, viewed(t, d, []*v1beta1.MachineSet{set}, nil), "app=web", noon)
		d.Status = *status
		return status
	}
	expect := func(kind string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		c := meta.FindStatusCondition(report().Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			t.Errorf("%s is %+v, expected %s %s", kind, c, status, reason)
		}
	}
	d.Spec.Paused = true
	expect(v1beta1.ConditionPaused, "True", v1beta1.ReasonDeploymentPaused)
	expect(v1beta1.ConditionProgressing, "Unknown", v1beta1.ReasonDeploymentPaused)
	d.Spec.Paused = false
	expect(v1beta1.ConditionPaused, "False", v1beta1.ReasonDeploymentResumed)

	d.Labels = map[string]string{v1beta1.LabelFreeze: "true"}
	expect(v1beta1.ConditionFrozen, "True", v1beta1.ReasonFrozenByLabel)
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionFrozen, Status: "True",
		Reason: v1beta1.ReasonOvershoot})
	expect(v1beta1.ConditionFrozen, "True", v1beta1.ReasonOvershoot)
	d.Labels = nil
	expect(v1beta1.ConditionFrozen, "False", v1beta1.ReasonThawed)

	if c := meta.FindStatusCondition(report().Conditions, v1beta1.ConditionHibernated); c != nil {
		t.Errorf("%+v", c)
	}
	d.Spec.Hibernated = true
	expect(v1beta1.ConditionHibernated, "True", v1beta1.ReasonHibernated)
	expect(v1beta1.ConditionFrozen, "True", v1beta1.ReasonHibernated)
	expect(v1beta1.ConditionProgressing, "Unknown", v1beta1.ReasonFrozen)
	d.Spec.Hibernated = false
	expect(v1beta1.ConditionFrozen, "False", v1beta1.ReasonThawed)

	set.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReplicaFailure, Status: "True",
		Reason: v1beta1.ReasonTooManyMachines, Message: "Many."}}
	expect(v1beta1.ConditionReplicaFailure, "True", v1beta1.ReasonTooManyMachines)
	set.Status.Conditions = nil
	expect(v1beta1.ConditionReplicaFailure, "False", v1beta1.ReasonNoFailure)
}

func TestUrgent(t *testing.T) {
	base := v1beta1.MachineDeploymentStatus{ObservedGeneration: 1, CurrentRevision: 1, Conditions: []metav1.Condition{
		{Type: v1beta1.ConditionAvailable, Status: "True"}, {Type: v1beta1.ConditionScalingUp, Status: "True"},
		{Type: v1beta1.ConditionProgressing, Status: "True", Reason: "X"}, {Type: v1beta1.ConditionReady, Status: "True"},
		{Type: v1beta1.ConditionStalled, Status: "False"}}}
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineDeploymentStatus)
		want   bool
	}{
		"replicas": {func(s *v1beta1.MachineDeploymentStatus) {
			s.Replicas, s.ReadyReplicas = 7, 7
		}, false},
		"a message": {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[2].Message = "else" },
			false},
		"a reason": {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[2].Reason = "Y" }, false},
		"scaling, which changes often": {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[1].Status = "False" },
			false},
		"availability": {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[0].Status = "False" }, true},
		"progress":     {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[2].Status = "False" }, true},
		"readiness":    {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[3].Status = "False" }, true},
		"a stall":      {func(s *v1beta1.MachineDeploymentStatus) { s.Conditions[4].Status = "True" }, true},
		"generation":   {func(s *v1beta1.MachineDeploymentStatus) { s.ObservedGeneration = 2 }, true},
		"revision":     {func(s *v1beta1.MachineDeploymentStatus) { s.CurrentRevision = 2 }, true},
	} {
		after := base.DeepCopy()
		test.change(after)
		if got := urgent(&base, after); got != test.want {
			t.Errorf("%s: urgent is %v, expected %v", name, got, test.want)
		}
	}
}

func TestTransitions(t *testing.T) {
	status := func(reason string, is metav1.ConditionStatus) *v1beta1.MachineDeploymentStatus {
		return &v1beta1.MachineDeploymentStatus{Conditions: []metav1.Condition{{Type: v1beta1.ConditionProgressing,
			Status: is, Reason: reason, Message: "So."}}}
	}
	for _, test := range []struct {
		name          string
		before, after *v1beta1.MachineDeploymentStatus
		want          []transition
	}{
		{"first status", &v1beta1.MachineDeploymentStatus{}, status(v1beta1.ReasonNewMachineSetCreated, "True"), nil},
		{"complete", status(v1beta1.ReasonMachineSetUpdated, "True"), status(v1beta1.ReasonNewMachineSetAvailable, "True"),
			[]transition{{"Normal", "RolloutComplete", "So."}}},
		{"still complete", status(v1beta1.ReasonNewMachineSetAvailable, "True"),
			status(v1beta1.ReasonNewMachineSetAvailable, "True"), nil},
		{"failing", status(v1beta1.ReasonMachineSetUpdated, "True"), status(v1beta1.ReasonRevisionFailing, "False"),
			[]transition{{"Warning", "RevisionFailing", "So."}}},
	} {
		if got := transitions(test.before, test.after); !cmp.Equal(got, test.want, cmp.AllowUnexported(transition{})) {
			t.Errorf("%s: events are %v, expected %v", test.name, got, test.want)
		}
	}
}

// Rules: hibernation-reported, hibernation-waits.
func TestHibernatedReportsTheMachines(t *testing.T) {
	stopped := func(m *v1beta1.Machine) {
		m.Spec.PowerState = v1beta1.PowerStopped
		condition(v1beta1.ConditionPowerStateReached, metav1.ConditionTrue, v1beta1.ReasonStopped)(m)
	}
	starting := func(m *v1beta1.Machine) {
		m.Spec.PowerState = v1beta1.PowerRunning
		m.Status.Power = &v1beta1.PowerStatus{Step: v1beta1.PowerStepStarting}
	}
	marked := func(m *v1beta1.Machine) {
		stopped(m)
		m.Annotations = map[string]string{v1beta1.AnnotationHibernated: ""}
	}
	vanished := func(m *v1beta1.Machine) {
		m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureInstanceVanished
	}
	s := newStage()
	for _, step := range []struct {
		hibernated     bool
		machines       []func(*v1beta1.Machine)
		status, reason string
	}{
		{false, []func(*v1beta1.Machine){upToDate, stopped, starting}, "", ""},
		{true, []func(*v1beta1.Machine){upToDate, upToDate, stopped}, "False", v1beta1.ReasonHibernating},
		{true, []func(*v1beta1.Machine){stopped, stopped, stopped}, "True", v1beta1.ReasonHibernated},
		{true, []func(*v1beta1.Machine){stopped, stopped, vanished}, "True", v1beta1.ReasonHibernated},
		{true, []func(*v1beta1.Machine){stopped, stopped, starting}, "False", v1beta1.ReasonHibernating},
		{false, []func(*v1beta1.Machine){marked, marked, stopped}, "False", v1beta1.ReasonWakingUp},
		{false, []func(*v1beta1.Machine){upToDate, starting, stopped}, "False", v1beta1.ReasonWakingUp},
		{false, []func(*v1beta1.Machine){upToDate, upToDate, stopped}, "", ""},
	} {
		s.d.Spec.Hibernated = step.hibernated
		s.setMachines(s.current, step.machines...)
		status, _ := statusOf(s.d, viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines), "app=web", noon)
		s.d.Status = *status
		c := meta.FindStatusCondition(s.d.Status.Conditions, v1beta1.ConditionHibernated)
		if c == nil && step.status != "" || c != nil && (string(c.Status) != step.status || c.Reason != step.reason) {
			t.Errorf("%+v: the condition is %+v", step, c)
		}
	}
}
