package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// A policy with reboots marks an unhealthy machine with the reason RebootRequested. The owner of the machine then sets
// the annotation machinist.dev/reboot, within the same limits as for a replacement. The annotation counts the attempts.
// If the last reboot did not help, the policy marks the machine with the reason ReplaceAfterReboot.

// Reboots limits the reboots of an unhealthy machine.
type Reboots struct {
	MaxAttempts int32
	// Timeout is how long a machine may take to become healthy after its reboot began.
	Timeout time.Duration
}

func rebootsOf(r v1beta1.HealthCheckRemediation) *Reboots {
	if r.TypeOrDefault() != v1beta1.RemediationReboot {
		return nil
	}
	return &Reboots{MaxAttempts: r.Reboot.MaxAttemptsOrDefault(), Timeout: r.Reboot.TimeoutOrDefault()}
}

// afterReboot corrects the evaluation of a machine that this policy has rebooted. While the timeout after the reboot
// runs, the machine is not unhealthy. Then a reboot that has not ended makes the machine unhealthy.
func (p Policy) afterReboot(v Evaluation, m *v1beta1.Machine, now time.Time, clock Clock) Evaluation {
	r := machinestate.RemediationRebootOf(m)
	if p.Reboots == nil || r == nil || r.StartTime == nil || r.State == v1beta1.RebootNotSupported ||
		m.Spec.PowerState == v1beta1.PowerStopped ||
		machinestate.HasFailed(m) || machinestate.IsInterrupted(m) {
		return v
	}
	left := clock.timeLeft(p.Reboots.Timeout, Signal{UID: m.UID, Type: v1beta1.ConditionRebooted, Status: r.Request,
		StartTime: r.StartTime.Time}, now)
	open := r.State == v1beta1.RebootRebooting
	switch {
	case left > 0 && (open || v.Health == HealthUnhealthy):
		return Evaluation{Health: HealthUnknown, InTrouble: true, Explanation: v.Explanation, RecheckAfter: left}
	case left <= 0 && open:
		return Evaluation{Health: HealthUnhealthy, InTrouble: true, Explanation: fmt.Sprintf("The machine is not healthy "+
			"%s after a reboot of its instance began.", p.Reboots.Timeout)}
	}
	return v
}

// remediation returns the reason of the mark for an unhealthy machine, and a text for its message. If the machine must
// lose an old mark first, ok is false.
func (p Policy) remediation(m *v1beta1.Machine) (why ConditionReason, ok bool) {
	registered := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRegistered)
	if p.Reboots == nil || machinestate.HasFailed(m) || m.Status.NodeRef == nil ||
		registered != nil && registered.Reason == v1beta1.ReasonNodeGone {
		return ConditionReason{Reason: p.Reason}, true
	}
	last, done := machinestate.LastRemediationReboot(m), machinestate.RemediationRebootOf(m)
	_, open := machinestate.RebootRequest(m)
	replace := func(format string, args ...any) (ConditionReason, bool) {
		return ConditionReason{v1beta1.ReasonReplaceAfterReboot, " " + fmt.Sprintf(format, args...)}, true
	}
	attempt := last.Attempt + 1
	switch power := m.Status.Power; {
	case done == nil:
		if open && last.Attempt > 0 {
			attempt = last.Attempt
		}
	case done.State == v1beta1.RebootNotSupported:
		return replace("The provider cannot reboot the instance, so the machine is replaced.")
	case done.State == v1beta1.RebootRebooting && power != nil && power.Step != v1beta1.PowerStepBooting:
		return replace("The instance was not started again in time, so the machine is replaced.")
	case last.Attempt >= p.Reboots.MaxAttempts:
		return replace("Reboots that did not help: %d. The machine is replaced.", last.Attempt)
	case open:
		return ConditionReason{}, false // This mark belongs to the last attempt.
	}
	return ConditionReason{v1beta1.ReasonRebootRequested, fmt.Sprintf(" The instance is rebooted first: attempt %d of %d.",
		min(attempt, p.Reboots.MaxAttempts), p.Reboots.MaxAttempts)}, true
}

// forgetReboots selects a machine whose attempts are forgotten, because it has been healthy long enough.
func (j *Decision) forgetReboots(p Policy, s Subject, v Evaluation, now time.Time, clock Clock) {
	m := s.Machine
	last, done := machinestate.LastRemediationReboot(m), machinestate.RemediationRebootOf(m)
	if p.Reboots == nil || last.Attempt == 0 || v.Health != HealthHealthy || machinestate.IsRebooting(m) {
		return
	}
	var since time.Time
	if done != nil && done.CompletionTime != nil {
		since = done.CompletionTime.Time
	}
	left := clock.timeLeft(p.Reboots.Timeout, Signal{UID: m.UID, Type: "HealthyAfterReboot", Status: last.String(),
		StartTime: since}, now)
	if left <= 0 {
		j.Recovered = append(j.Recovered, m)
		return
	}
	j.recheckIn(left)
}

// requestReboots requests the reboots of machines without an owner. A MachineSet requests those of its machines.
func (p *pass) requestReboots(ctx context.Context) error {
	var errs []error
	for _, s := range p.subjects {
		if metav1.GetControllerOfNoCopy(s.Machine) != nil {
			continue
		}
		if next, wanted := machinestate.NextRemediationReboot(s.Machine); wanted && evaluable(s.Machine) {
			errs = append(errs, p.annotateReboot(ctx, s.Machine, next.String()))
		}
	}
	return errors.Join(errs...)
}

// forgetAttempts removes the annotations that count the reboots of machines that are healthy again.
func (p *pass) forgetAttempts(ctx context.Context, recovered []*v1beta1.Machine) error {
	var errs []error
	for _, m := range recovered {
		errs = append(errs, p.annotateReboot(ctx, m, nil))
	}
	return errors.Join(errs...)
}

// annotateReboot sets or removes the annotation machinist.dev/reboot. If the machine has changed, the API server
// refuses the patch.
func (p *pass) annotateReboot(ctx context.Context, m *v1beta1.Machine, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID, "resourceVersion": m.ResourceVersion,
		"annotations": map[string]any{v1beta1.AnnotationReboot: value}}})
	if err != nil {
		return err
	}
	target := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err = p.LiveClient.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate machine %s: %w", client.ObjectKeyFromObject(m), err)
	}
	return nil
}
