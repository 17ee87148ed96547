package machinedeployment

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: progress-deadline-reported.
func TestProgressing(t *testing.T) {
	const minute = time.Minute
	before := func(reason string) *metav1.Condition {
		return &metav1.Condition{Type: v1beta1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: reason}
	}
	tests := []struct {
		name    string
		before  *metav1.Condition
		now     rollout
		status  metav1.ConditionStatus
		reason  string
		message string
		restart bool
		due     time.Duration
	}{
		{"set created", nil,
			rollout{setName: "x", revisionReason: v1beta1.ReasonNewMachineSetCreated, actions: "x 0→1 (new revision)"},
			"True", v1beta1.ReasonNewMachineSetCreated, "Set x is the new revision: x 0→1 (new revision).", true, 10 * minute},
		{"set found", before(v1beta1.ReasonNewMachineSetAvailable),
			rollout{setName: "x", revisionReason: v1beta1.ReasonFoundNewMachineSet},
			"True", v1beta1.ReasonFoundNewMachineSet, "Set x is the new revision.", true, 10 * minute},
		{"set created, no progress since", before(v1beta1.ReasonNewMachineSetCreated),
			rollout{setName: "x", waitMessage: "0 of 3 available", stalledFor: minute},
			"True", v1beta1.ReasonNewMachineSetCreated, "Set x is the new revision: 0 of 3 available.", false, 9 * minute},
		{"advanced", before(v1beta1.ReasonNewMachineSetCreated), rollout{setName: "x", advanced: true, stalledFor: minute},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing.", true, 9 * minute},
		{"no progress", before(v1beta1.ReasonMachineSetUpdated), rollout{setName: "x", waitMessage: "1 of 3 available",
			stalledFor: 2 * minute},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing: 1 of 3 available.", false, 8 * minute},
		{"deadline", before(v1beta1.ReasonMachineSetUpdated), rollout{setName: "x", waitMessage: "1 of 3 available",
			stalledFor: 10 * minute},
			"False", v1beta1.ReasonProgressDeadlineExceeded,
			"The rollout of set x has made no progress for 10m0s: 1 of 3 available.", false,
			0},
		{"the deadline stays exceeded after a restart", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{setName: "x"},
			"False", v1beta1.ReasonProgressDeadlineExceeded, "The rollout of set x has made no progress for 10m0s.", false, 0},
		{"progress after the deadline",
			before(v1beta1.ReasonProgressDeadlineExceeded), rollout{setName: "x", advanced: true, stalledFor: time.Hour},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing.", true, time.Millisecond},
		{"complete", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{setName: "x", complete: true, onlyCurrent: true},
			"True", v1beta1.ReasonNewMachineSetAvailable, "Set x has all machines, and they are available.", true, 0},
		{"scaled afterwards", before(v1beta1.ReasonNewMachineSetAvailable),
			rollout{setName: "x", onlyCurrent: true, stalledFor: time.Hour, actions: "x 3→5 (new revision)"},
			"True", v1beta1.ReasonNewMachineSetAvailable, "Set x was rolled out: x 3→5 (new revision).", true, 0},
		{"paused", before(v1beta1.ReasonMachineSetUpdated), rollout{setName: "x", paused: true, waitMessage: "rollouts are paused",
			stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonDeploymentPaused, "The deployment is paused: rollouts are paused.", false, 0},
		{"paused after the deadline", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{setName: "x", paused: true},
			"False", v1beta1.ReasonProgressDeadlineExceeded, "The rollout made no progress before it was stopped.", false, 0},
		{"resumed", before(v1beta1.ReasonDeploymentPaused), rollout{setName: "x", stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonDeploymentResumed, "The rollout continues.", true, time.Millisecond},
		{"resumed, no progress since", before(v1beta1.ReasonDeploymentResumed), rollout{setName: "x", stalledFor: minute},
			"Unknown", v1beta1.ReasonDeploymentResumed, "The rollout continues.", false, 9 * minute},
		{"frozen", before(v1beta1.ReasonMachineSetUpdated), rollout{setName: "x", frozen: true, stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonFrozen, "The deployment is frozen.", false, 0},
		{"failing", before(v1beta1.ReasonMachineSetUpdated), rollout{setName: "x", failing: true, waitMessage: "nothing is done",
			stalledFor: time.Hour},
			"False", v1beta1.ReasonRevisionFailing,
			"3 machines of set x in a row failed to launch, to become Ready or to be updated: nothing is done.", false, 0},
		{"strategy changed from OnDelete", before(v1beta1.ReasonWaitingForDeletion),
			rollout{setName: "x", stalledFor: time.Hour},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing.", true, time.Millisecond},
		{"waiting for deletion", before(v1beta1.ReasonMachineSetUpdated),
			rollout{setName: "x", waitReason: v1beta1.ReasonWaitingForDeletion, waitMessage: "delete machines", stalledFor: time.Hour},
			"True", v1beta1.ReasonWaitingForDeletion, "Set x is the new revision: delete machines.", true, 0},
		{"waiting for a selection", before(v1beta1.ReasonMachineSetUpdated),
			rollout{setName: "x", waitReason: v1beta1.ReasonWaitingForSelection, waitMessage: "select machines", stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonWaitingForSelection, "Set x is the new revision: select machines.", true, 0},
		{"partition reached", before(v1beta1.ReasonMachineSetUpdated),
			rollout{setName: "x", waitReason: v1beta1.ReasonPartitionReached, waitMessage: "lower partition", stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonPartitionReached, "Set x is the new revision: lower partition.", true, 0},
		{"partition lowered", before(v1beta1.ReasonPartitionReached),
			rollout{setName: "x", actions: "a 3→2", stalledFor: time.Hour},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing: a 3→2.", true, time.Millisecond},
		{"waiting for a promotion", before(v1beta1.ReasonMachineSetUpdated),
			rollout{setName: "x", waitReason: v1beta1.ReasonWaitingForPromotion, waitMessage: "promote", stalledFor: time.Hour},
			"Unknown", v1beta1.ReasonWaitingForPromotion, "Set x is the new revision: promote.", true, 0},
		{"machines were selected", before(v1beta1.ReasonWaitingForSelection),
			rollout{setName: "x", actions: "a 3→2", stalledFor: time.Hour},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing: a 3→2.", true, time.Millisecond},
		{"set rejected", nil, rollout{setName: "x", rejection: errors.New("create set x: too long"),
			rejectedReason: v1beta1.ReasonMachineSetCreateError},
			"False", v1beta1.ReasonMachineSetCreateError, "Cannot create set x: too long.", false, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.now.deadline = 10 * minute
			got, restart := progressing(test.before, test.now)
			if got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("Progressing is %s %s %q, expected %s %s %q", got.Status, got.Reason, got.Message, test.status,
					test.reason, test.message)
			}
			if restart != test.restart {
				t.Errorf("the deadline restarts: %v, expected %v", restart, test.restart)
			}
			if due := deadlineIn(got, test.now); due != test.due {
				t.Errorf("the deadline is in %s, expected %s", due, test.due)
			}
		})
	}
}

type scene struct {
	d            *v1beta1.MachineDeployment
	old, current *v1beta1.MachineSet
	machines     map[types.UID][]*v1beta1.Machine
}

func (s *scene) addCondition(kind string, status metav1.ConditionStatus, minute int) {
	s.d.Status.Conditions = append(s.d.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "So",
		LastTransitionTime: metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute))})
}

// Rules: progress-deadline-reported, progress-survives-restart.
func TestProgressedAt(t *testing.T) {
	minute := func(n int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(n) * time.Minute)) }
	tests := []struct {
		name   string
		change func(*scene)
		want   int // minutes after noon
	}{
		{"the deployment was created", func(*scene) {}, 1},
		{"the rollout began", func(s *scene) { s.addCondition(v1beta1.ConditionRollingOut, metav1.ConditionTrue, 7) }, 7},
		{"the last rollout ended", func(s *scene) { s.addCondition(v1beta1.ConditionRollingOut, metav1.ConditionFalse, 7) }, 1},
		{"the rollout was stuck until then",
			func(s *scene) { s.addCondition(v1beta1.ConditionProgressing, metav1.ConditionTrue, 7) }, 7},
		{"the rollout has been stuck since then",
			func(s *scene) { s.addCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, 7) }, 1},
		{"the rollout was resumed", func(s *scene) { s.addCondition(v1beta1.ConditionPaused, metav1.ConditionFalse, 7) }, 7},
		{"the freeze ended", func(s *scene) { s.addCondition(v1beta1.ConditionFrozen, metav1.ConditionFalse, 7) }, 7},
		{"the current set was created", func(s *scene) { s.current.CreationTimestamp = minute(7) }, 7},
		{"the old set was created", func(s *scene) { s.old.CreationTimestamp = minute(7) }, 1},
		{"a new machine was created", func(s *scene) {
			m := machine("b1", 3, notReady)
			m.CreationTimestamp = minute(7)
			s.machines[s.current.UID] = []*v1beta1.Machine{m}
		}, 7},
		{"a new machine is Ready", func(s *scene) {
			s.machines[s.current.UID] = []*v1beta1.Machine{machine("b1", 7, isReady)}
		}, 7},
		{"a new machine is Ready for long enough", func(s *scene) {
			s.d.Spec.MinReadySeconds = 120
			s.machines[s.current.UID] = []*v1beta1.Machine{machine("b1", 7, isReady)}
		}, 9},
		{"a new machine is not Ready for long enough yet", func(s *scene) {
			s.d.Spec.MinReadySeconds = 3600
			s.machines[s.current.UID] = []*v1beta1.Machine{machine("b1", 7, isReady)}
		}, 7},
		{"an old machine recovered", func(s *scene) { s.machines[s.old.UID] = []*v1beta1.Machine{machine("a1", 7, isReady)} },
			7},
		{"an old machine stopped being Ready",
			func(s *scene) { s.machines[s.old.UID] = []*v1beta1.Machine{machine("a1", 7, notReady)} },
			1},
		{"an old machine is being deleted", func(s *scene) {
			m, when := machine("a1", 1, notReady), minute(7)
			m.DeletionTimestamp = &when
			s.machines[s.old.UID] = []*v1beta1.Machine{m}
		}, 7},
		{"a new machine is being deleted", func(s *scene) {
			m, when := machine("b1", 1, notReady), minute(7)
			m.DeletionTimestamp = &when
			s.machines[s.current.UID] = []*v1beta1.Machine{m}
		}, 1},
		{"a machine was updated in place", func(s *scene) {
			s.machines[s.current.UID] = []*v1beta1.Machine{machine("b1", 7,
				condition(v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate))}
		}, 7},
		{"another clock is ahead", func(s *scene) {
			s.machines[s.current.UID] = []*v1beta1.Machine{machine("b1", 90, isReady)}
		}, 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &scene{d: deployment("b"), old: setOf("a", 1, noon), current: setOf("b", 2, noon),
				machines: map[types.UID][]*v1beta1.Machine{}}
			s.d.CreationTimestamp = minute(1)
			test.change(s)
			v := viewed(t, s.d, []*v1beta1.MachineSet{s.old, s.current}, s.machines)
			if got := v.progressedAt(s.d,
				noon.Add(20*time.Minute)); !got.Equal(noon.Add(time.Duration(test.want) * time.Minute)) {
				t.Errorf("the last progress was %s after noon, expected %d minutes", got.Sub(noon), test.want)
			}
		})
	}
}

// Rule: progress-deadline-reported.
func TestProgressedAtWithOnlyOneSet(t *testing.T) {
	created := metav1.NewTime(noon.Add(7 * time.Minute))
	now := noon.Add(20 * time.Minute)
	for name, test := range map[string]struct {
		class string
		want  time.Time
	}{
		"the first revision":                         {class: "a", want: created.Time},
		"no set of the current revision was created": {class: "b", want: noon},
	} {
		d, set := deployment(test.class), setOf("a", 1, created.Time)
		d.CreationTimestamp = metav1.NewTime(noon)
		v := viewed(t, d, []*v1beta1.MachineSet{set}, map[types.UID][]*v1beta1.Machine{})
		if got := v.progressedAt(d, now); !got.Equal(test.want) {
			t.Errorf("%s: the last progress was at %s, want %s", name, got, test.want)
		}
	}
}
