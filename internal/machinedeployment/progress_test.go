package machinedeployment

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// D-9
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
		{"set created", nil, rollout{set: "x", began: v1beta1.ReasonNewMachineSetCreated, doing: "x 0→1 (new revision)"},
			"True", v1beta1.ReasonNewMachineSetCreated, "Set x is the new revision: x 0→1 (new revision).", true, 10 * minute},
		{"set found", before(v1beta1.ReasonNewMachineSetAvailable), rollout{set: "x", began: v1beta1.ReasonFoundNewMachineSet},
			"True", v1beta1.ReasonFoundNewMachineSet, "Set x is the new revision.", true, 10 * minute},
		{"created, and nothing since", before(v1beta1.ReasonNewMachineSetCreated), rollout{set: "x", waiting: "0 of 3 available", still: minute},
			"True", v1beta1.ReasonNewMachineSetCreated, "Set x is the new revision: 0 of 3 available.", false, 9 * minute},
		{"advanced", before(v1beta1.ReasonNewMachineSetCreated), rollout{set: "x", advanced: true, still: minute},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing.", true, 9 * minute},
		{"nothing advances", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", waiting: "1 of 3 available", still: 2 * minute},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing: 1 of 3 available.", false, 8 * minute},
		{"deadline", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", waiting: "1 of 3 available", still: 10 * minute},
			"False", v1beta1.ReasonProgressDeadlineExceeded, "Set x has made no progress for 10m0s: 1 of 3 available.", false, 0},
		{"stays exceeded after a restart", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{set: "x"},
			"False", v1beta1.ReasonProgressDeadlineExceeded, "Set x has made no progress for 10m0s.", false, 0},
		{"late progress", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{set: "x", advanced: true, still: time.Hour},
			"True", v1beta1.ReasonMachineSetUpdated, "Set x is progressing.", true, time.Millisecond},
		{"complete", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{set: "x", complete: true, onlyWanted: true},
			"True", v1beta1.ReasonNewMachineSetAvailable, "Set x has all machines, and they are available.", true, 0},
		{"scaled afterwards", before(v1beta1.ReasonNewMachineSetAvailable), rollout{set: "x", onlyWanted: true, still: time.Hour, doing: "x 3→5 (new revision)"},
			"True", v1beta1.ReasonNewMachineSetAvailable, "Set x was rolled out: x 3→5 (new revision).", true, 0},
		{"paused", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", paused: true, waiting: "rollouts are paused", still: time.Hour},
			"Unknown", v1beta1.ReasonDeploymentPaused, "The deployment is paused: rollouts are paused.", false, 0},
		{"paused when it was too late", before(v1beta1.ReasonProgressDeadlineExceeded), rollout{set: "x", paused: true},
			"False", v1beta1.ReasonProgressDeadlineExceeded, "No progress before it was stopped.", false, 0},
		{"resumed", before(v1beta1.ReasonDeploymentPaused), rollout{set: "x", still: time.Hour},
			"Unknown", v1beta1.ReasonDeploymentResumed, "The rollout goes on.", true, time.Millisecond},
		{"resumed, and nothing since", before(v1beta1.ReasonDeploymentResumed), rollout{set: "x", still: minute},
			"Unknown", v1beta1.ReasonDeploymentResumed, "The rollout goes on.", false, 9 * minute},
		{"frozen", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", frozen: true, still: time.Hour},
			"Unknown", v1beta1.ReasonFrozen, "The deployment is frozen.", false, 0},
		{"failing", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", failing: true, waiting: "nothing is done", still: time.Hour},
			"False", v1beta1.ReasonRevisionFailing, "3 machines of set x in a row failed to launch: nothing is done.", false, 0},
		{"strategy not carried out", nil, rollout{set: "x", unsupported: true, waiting: "InPlace is not"},
			"False", ReasonStrategyUnsupported, "The rollout stops: InPlace is not.", false, 0},
		{"waiting for people", before(v1beta1.ReasonMachineSetUpdated), rollout{set: "x", waitsForPeople: true, waiting: "someone", still: time.Hour},
			"True", v1beta1.ReasonWaitingForDeletion, "Set x is the new revision: someone.", true, 0},
		{"set refused", nil, rollout{set: "x", refused: errors.New("create set x: too long"), refusal: v1beta1.ReasonMachineSetCreateError},
			"False", v1beta1.ReasonMachineSetCreateError, "Cannot create set x: too long.", false, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.now.deadline = 10 * minute
			got, restart := progressing(test.before, test.now)
			if got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("Progressing is %s %s %q, expected %s %s %q", got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
			if restart != test.restart {
				t.Errorf("the clock starts again: %v, expected %v", restart, test.restart)
			}
			if due := deadlineIn(got, test.now); due != test.due {
				t.Errorf("due in %s, expected %s", due, test.due)
			}
		})
	}
}
