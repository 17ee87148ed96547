package machinedeployment

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// kstatus computes the status of a deployment like the library kstatus, which Flux and Helm use for kinds that they do
// not know. The test does not import the library, because a dependency also imports it.
func kstatus(d *v1beta1.MachineDeployment) string {
	if d.Generation != d.Status.ObservedGeneration {
		return "InProgress"
	}
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == "Reconciling" && c.Status == metav1.ConditionTrue:
			return "InProgress"
		case c.Type == "Stalled" && c.Status == metav1.ConditionTrue:
			return "Failed"
		}
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, "Ready"); c != nil && c.Status != metav1.ConditionTrue {
		return "InProgress"
	}
	return "Current"
}

type stage struct {
	d            *v1beta1.MachineDeployment
	old, current *v1beta1.MachineSet
	machines     map[types.UID][]*v1beta1.Machine
	// rejection is the error with which the API server rejected a set. undone means that part of the plan was not
	// carried out.
	rejection error
	undone    bool
}

func newStage() *stage {
	s := &stage{d: deployment("b"), old: setOf("a", 1, noon), current: setOf("b", 2, noon),
		machines: map[types.UID][]*v1beta1.Machine{}}
	s.old.Spec.Replicas, s.current.Spec.Replicas = new(int32), s.d.Spec.Replicas
	s.setMachines(s.current, upToDate, upToDate, upToDate)
	return s
}

func (s *stage) setMachines(set *v1beta1.MachineSet, machines ...func(*v1beta1.Machine)) {
	s.machines[set.UID] = nil
	for i, change := range machines {
		s.machines[set.UID] = append(s.machines[set.UID], machine(fmt.Sprintf("%s-%d", set.Name, i), 1, change))
	}
}

func (s *stage) progressWas(status metav1.ConditionStatus, reason string) {
	s.d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionProgressing, Status: status, Reason: reason,
		LastTransitionTime: metav1.NewTime(noon.Add(59 * time.Minute))}}
}

func upToDate(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)(m)
}

func updating(m *v1beta1.Machine) {
	isReady(m)
	condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdatePending)(m)
}

// Rule: ready-when-rolled-out.
func TestReadyIsTrueWhenTheRolloutIsDone(t *testing.T) {
	const ready, reconciling, stalled = v1beta1.ConditionReady, v1beta1.ConditionReconciling, v1beta1.ConditionStalled
	rollOut := func(s *stage) { // Two machines are still of the old revision.
		two, one := int32(2), int32(1)
		s.old.Spec.Replicas, s.current.Spec.Replicas = &two, &one
		s.setMachines(s.old, upToDate, upToDate)
		s.setMachines(s.current, upToDate)
	}
	freeze := func(s *stage) { s.d.Labels = map[string]string{v1beta1.LabelFreeze: ""} }
	fails := func(s *stage) {
		rollOut(s)
		failed := failedFor(v1beta1.FailureCreateError)
		s.setMachines(s.current, failed, failed, failed)
	}
	for _, test := range []struct {
		name    string
		change  func(*stage)
		is      string // the only condition that is True
		reason  string
		kstatus string
	}{
		{"done", func(*stage) {}, ready, v1beta1.ReasonRolloutComplete, "Current"},
		{"done while old machines are being deleted", func(s *stage) { s.setMachines(s.old, beingDeleted(upToDate)) }, ready,
			v1beta1.ReasonRolloutComplete, "Current"},
		{"replicas are 0", func(s *stage) {
			s.d.Spec.Replicas, s.current.Spec.Replicas = new(int32), new(int32)
			s.setMachines(s.current)
		}, ready, v1beta1.ReasonRolloutComplete, "Current"},
		{"rolls out", rollOut, reconciling, v1beta1.ReasonRollingOut, "InProgress"},
		{"a machine of the old revision exists in addition to all wanted ones", func(s *stage) { s.setMachines(s.old, upToDate) },
			reconciling, v1beta1.ReasonRolloutBlocked, "InProgress"},
		{"waits for deletion by hand", func(s *stage) {
			rollOut(s)
			s.d.Spec.Strategy.Type = v1beta1.StrategyOnDelete
		}, reconciling, v1beta1.ReasonWaitingForDeletion, "InProgress"},
		{"a machine is not Ready", func(s *stage) { s.setMachines(s.current, upToDate, upToDate, notReady) }, reconciling,
			v1beta1.ReasonMachinesNotAvailable, "InProgress"},
		{"a machine is Ready, but not for minReadySeconds", func(s *stage) { s.d.Spec.MinReadySeconds = 7200 },
			reconciling, v1beta1.ReasonMachinesNotAvailable, "InProgress"},
		{"a machine is missing", func(s *stage) { s.setMachines(s.current, upToDate, upToDate) }, reconciling,
			v1beta1.ReasonScalingUp, "InProgress"},
		{"there is a surplus machine", func(s *stage) { s.setMachines(s.current, upToDate, upToDate, upToDate, upToDate) },
			reconciling, v1beta1.ReasonScalingDown, "InProgress"},
		{"a machine is being updated in place", func(s *stage) {
			s.d.Spec.Strategy.Type = v1beta1.StrategyInPlace
			s.setMachines(s.current, upToDate, upToDate, updating)
		}, reconciling, v1beta1.ReasonRolloutBlocked, "InProgress"},
		{"all machines were updated in place", func(s *stage) { s.d.Spec.Strategy.Type = v1beta1.StrategyInPlace }, ready,
			v1beta1.ReasonRolloutComplete, "Current"},
		{"paused midway", func(s *stage) { rollOut(s); s.d.Spec.Paused = true }, reconciling,
			v1beta1.ReasonDeploymentPaused, "InProgress"},
		{"paused when done", func(s *stage) { s.d.Spec.Paused = true }, ready, v1beta1.ReasonRolloutComplete, "Current"},
		{"scaled while paused", func(s *stage) { s.setMachines(s.current, upToDate, upToDate); s.d.Spec.Paused = true },
			reconciling, v1beta1.ReasonScalingUp, "InProgress"},
		{"frozen midway", func(s *stage) { rollOut(s); freeze(s) }, reconciling, v1beta1.ReasonFrozen, "InProgress"},
		{"frozen when done", freeze, ready, v1beta1.ReasonRolloutComplete, "Current"},
		{"the revision fails", fails, stalled, v1beta1.ReasonRevisionFailing, "Failed"},
		{"the deadline has passed", func(s *stage) {
			rollOut(s)
			s.progressWas(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded)
			s.d.Status.UpdatedReplicas, s.d.Status.ReadyReplicas, s.d.Status.AvailableReplicas = 1, 3, 3
			s.d.Status.Replicas = 3
		}, stalled, v1beta1.ReasonProgressDeadlineExceeded, "Failed"},
		{"done after the deadline", func(s *stage) {
			s.progressWas(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded)
		}, ready, v1beta1.ReasonRolloutComplete, "Current"},
		{"done after the deadline, while paused", func(s *stage) {
			s.progressWas(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded)
			s.d.Spec.Paused = true
		}, ready, v1beta1.ReasonRolloutComplete, "Current"},
		// If the API server rejects the write of a set, status.observedGeneration does not change, as in apps/v1.
		{"a set is rejected", func(s *stage) { s.rejection = errors.New("patch set b: too long"); s.undone = true }, stalled,
			v1beta1.ReasonInvalidConfiguration, "InProgress"},
		{"the change was not carried out", func(s *stage) { s.undone = true }, reconciling, v1beta1.ReasonRolloutBlocked,
			"InProgress"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage()
			test.change(s)
			v := viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines)
			v.applied, v.rejection, v.rejectedReason = !s.undone, s.rejection, v1beta1.ReasonInvalidConfiguration
			status, _ := statusOf(s.d, v, "app=web", noon.Add(time.Hour))
			s.d.Status = *status
			for _, kind := range []string{ready, reconciling, stalled} {
				c := meta.FindStatusCondition(status.Conditions, kind)
				switch {
				case c == nil && (kind == test.is || kind == ready):
					t.Errorf("there is no condition %s", kind)
				case c == nil:
				case (c.Status == metav1.ConditionTrue) != (kind == test.is) || c.Reason != test.reason ||
					(kind == ready || kind == test.is) && c.Message == "":
					t.Errorf("%s is %s %s %q", kind, c.Status, c.Reason, c.Message)
				}
			}
			if got := kstatus(s.d); got != test.kstatus {
				t.Errorf("kstatus is %s, expected %s", got, test.kstatus)
			}
		})
	}
}

// Conditions whose normal status is False stay missing until they are True. These conditions are never removed.
func TestStalledIsMissingUntilItIsTrue(t *testing.T) {
	s := newStage()
	report := func() *metav1.Condition {
		status, _ := statusOf(s.d, viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines), "app=web", noon)
		s.d.Status = *status
		return meta.FindStatusCondition(status.Conditions, v1beta1.ConditionStalled)
	}
	if c := report(); c != nil {
		t.Errorf("Stalled is %s although it never was True", c.Status)
	}
	failed := failedFor(v1beta1.FailureCreateError)
	s.setMachines(s.current, failed, failed, failed)
	if c := report(); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("Stalled is %+v, expected True", c)
	}
	s.setMachines(s.current, upToDate, upToDate, upToDate)
	if c := report(); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("Stalled is %+v, expected False", c)
	}
}

func TestMachinesCountAsUpToDateAndReadyOnlyWithoutAnUpdate(t *testing.T) {
	behind := func(m *v1beta1.Machine) { upToDate(m); m.Generation = 2 }
	for name, test := range map[string]struct {
		strategy v1beta1.DeploymentStrategyType
		machine  func(*v1beta1.Machine)
		want     int32
	}{
		"up to date":                      {v1beta1.StrategyRollingUpdate, upToDate, 1},
		"not Ready":                       {v1beta1.StrategyRollingUpdate, notReady, 0},
		"not up to date":                  {v1beta1.StrategyRollingUpdate, updating, 0},
		"changed in a propagated field":   {v1beta1.StrategyRollingUpdate, behind, 1},
		"handed over and not checked yet": {v1beta1.StrategyInPlace, behind, 0},
	} {
		s := newStage()
		s.d.Spec.Strategy.Type = test.strategy
		s.setMachines(s.old, upToDate) // Machines of an old revision do not count.
		s.setMachines(s.current, test.machine)
		status, _ := statusOf(s.d, viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines), "app=web", noon)
		if got := status.UpToDateReadyReplicas; got != test.want {
			t.Errorf("%s: %d machines are up to date and Ready, expected %d", name, got, test.want)
		}
	}
}

func TestStatusListsMostFrequentVersions(t *testing.T) {
	s := newStage()
	var machines []func(*v1beta1.Machine)
	version := func(version string) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) { upToDate(m); m.Status.Version = version }
	}
	for i := range 40 {
		machines = append(machines, version(fmt.Sprintf("v1.%d.0", 10+i)))
	}
	machines = append(machines, version("v1.49.0"), version("v1.49.0"), version(""), beingDeleted(version("v1.50.0")))
	s.setMachines(s.old, machines...)
	s.setMachines(s.current, version("v1.49.0"))
	var want []v1beta1.VersionCount
	for i := range 31 {
		want = append(want, v1beta1.VersionCount{Version: fmt.Sprintf("v1.%d.0", 10+i), Count: 1})
	}
	want = append(want, v1beta1.VersionCount{Version: "v1.49.0", Count: 4})
	status, _ := statusOf(s.d, viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines), "app=web", noon)
	if diff := cmp.Diff(want, status.Versions); diff != "" {
		t.Errorf("the versions differ (- expected, + got):\n%s", diff)
	}
}
