package machine

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// setCondition sets a condition of the Machine. It reports whether the status or the reason of the condition changed,
// because the caller may record an event for this.
func (p *pass) setCondition(kind string, status bool, reason, message string) (transition bool) {
	message = wording.Truncate(message, maxMessage)
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	old := meta.FindStatusCondition(p.machine.Status.Conditions, kind)
	transition = old == nil || old.Status != value || old.Reason != reason
	p.measurePhase(kind, status, reason)
	meta.SetStatusCondition(&p.machine.Status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: p.machine.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
	return transition
}

// reportProblem sets a condition. If its status or its reason changes, reportProblem also records a warning.
func (p *pass) reportProblem(kind string, status bool, reason, action, message string) {
	if p.setCondition(kind, status, reason, message) {
		p.warn(reason, action, message)
	}
}

func (p *pass) isTrue(kind string) bool {
	return meta.IsStatusConditionTrue(p.machine.Status.Conditions, kind)
}

func (p *pass) endPause() {
	if p.isTrue(v1beta1.ConditionPaused) {
		p.setCondition(v1beta1.ConditionPaused, false, v1beta1.ReasonNotPaused, "")
	}
}

// operation writes the last operation to the status, unless the status already contains the same operation.
func (p *pass) operation(kind v1beta1.OperationType, state v1beta1.OperationState, description string,
	code provider.Code) {
	if kind == v1beta1.OperationDelete && p.machine.Retrying() && p.machine.DeletionTimestamp.IsZero() {
		return // The last operation is still the failed creation.
	}
	if code == provider.OK {
		code = ""
	}
	description = wording.Truncate(description, maxMessage)
	last := p.machine.Status.LastOperation
	if last != nil && last.Type == kind && last.State == state && last.Description == description &&
		last.Code == string(code) {
		return
	}
	now := metav1.NewTime(p.now)
	p.machine.Status.LastOperation = &v1beta1.LastOperation{Type: kind, State: state, Description: description,
		Code: string(code), LastUpdateTime: &now}
}

// operationBegan returns the time at which the last operation was recorded. If another client has removed this time, or
// has moved it far into the future, it is set to the current time.
func (p *pass) operationBegan() time.Time {
	last := p.machine.Status.LastOperation
	if last == nil {
		return p.now
	}
	if at := last.LastUpdateTime; at == nil || at.Sub(p.now) > furthestAhead {
		last.LastUpdateTime = &metav1.Time{Time: p.now}
	}
	return last.LastUpdateTime.Time
}

// furthestAhead is the maximum difference between the clocks of two processes. A recorded time may be that far in the
// future.
const furthestAhead = time.Hour

func failuresOf(m *v1beta1.Machine, kind v1beta1.OperationType) int32 {
	if last := m.Status.LastOperation; last != nil && last.Type == kind {
		return last.Attempts
	}
	return 0
}

// increment returns count+1 without an overflow, because any client may have written the number in the status.
func increment(count int32) int32 {
	if count == math.MaxInt32 {
		return count
	}
	return max(count, 0) + 1
}

func (p *pass) markRunning() {
	phase, note, operation := v1beta1.MachineRunning, "The machine is a Ready node.", p.trace.operation
	if p.Target == nil {
		phase, note = v1beta1.MachineAvailable, "The instance runs."
	}
	m := p.machine
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if m.Status.Phase == phase {
		return
	}
	foundCapacity(p.machine)
	if !p.hasRun() {
		p.trace.finished = operation
		if m.LaunchAttempt() == 1 && p.original.Status.FailureReason != v1beta1.FailureInstanceVanished {
			p.phaseEnded(spanJoin, m.CreationTimestamp.Time) // A Machine whose instance was replaced has joined before.
		}
		if p.hadTrouble() {
			p.note(string(phase), "Launch", note)
		}
		p.operation(v1beta1.OperationCreate, v1beta1.OperationSucceeded, note, "")
	}
	m.Status.Phase = phase
}

// hadTrouble reports whether errors occurred during the launch. Without errors, no event is recorded, because a fleet
// that starts causes many events anyway.
func (p *pass) hadTrouble() bool {
	return p.original.Status.FailureReason != "" || p.machine.LaunchAttempt() > 1 ||
		failuresOf(p.machine, v1beta1.OperationCreate) > 0
}

func (p *pass) fail(reason v1beta1.MachineFailureReason, message string) {
	m := p.machine
	message = wording.Truncate(message, maxMessage)
	if m.Status.FailureReason != reason {
		p.warn(string(reason), "Launch", message)
	}
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineFailed, reason, message
	// The last error code of the provider and the number of failures are kept, because the backoff depends on them.
	attempts, code, retry := failuresOf(p.machine, v1beta1.OperationCreate), provider.OK, (*metav1.Time)(nil)
	if attempts > 0 {
		code, retry = provider.Code(m.Status.LastOperation.Code), m.Status.LastOperation.NextTryTime
	}
	p.operation(v1beta1.OperationCreate, v1beta1.OperationFailed, message, code)
	m.Status.LastOperation.Attempts, m.Status.LastOperation.NextTryTime = attempts, retry
}

// hasRun reports whether the Machine was a usable Node before and has not failed since then. The time limit of such a
// Machine for becoming a Node then no longer applies.
func (p *pass) hasRun() bool {
	switch p.machine.Status.Phase {
	case v1beta1.MachineRunning, v1beta1.MachineAvailable, v1beta1.MachineUnhealthy, v1beta1.MachineStopped:
		return true
	case v1beta1.MachineUpdating:
		// With an update in place, the Node stays. After a replacement, the new instance has yet to become a Node.
		return p.original.Status.NodeRef != nil
	}
	return false
}

// failAfterTimeout sets the phase of the Machine to Failed if the Machine has not become Running within its creation
// timeout. Before that, it requeues the Machine for the end of the timeout. The argument cause is the error of the
// launch, or nil.
func (p *pass) failAfterTimeout(cause error) {
	m := p.machine
	if p.hasRun() || m.Status.Phase == v1beta1.MachineFailed {
		return // The first failure stays in the status.
	}
	timeout := m.Spec.Timeouts.CreationOrDefault()
	if left := p.joinTimeLeft(); left > 0 {
		p.requeueIn(left)
		return
	}
	code := provider.CodeOf(cause)
	if last := m.Status.LastOperation; cause == nil && last != nil {
		code = provider.Code(last.Code)
	}
	switch {
	case m.Retrying(), m.IsAwaitingCapacity():
		p.fail(v1beta1.FailureInsufficientResources, fmt.Sprintf("The provider had no capacity within %s.", timeout))
	case p.Target == nil && m.Spec.ProviderID != "":
		p.fail(v1beta1.FailureJoinClusterTimeout, fmt.Sprintf("The instance did not run within %s.", timeout))
	case m.Spec.ProviderID != "":
		message := fmt.Sprintf("The instance did not become a Ready node within %s.", timeout)
		if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionNodeHealthy); c != nil &&
			c.Reason == v1beta1.ReasonWaitingForReadinessGates {
			message = fmt.Sprintf("The readiness gates were not True within %s. %s", timeout, c.Message)
		}
		p.fail(v1beta1.FailureJoinClusterTimeout, message)
	case code == provider.ResourceExhausted:
		p.fail(v1beta1.FailureInsufficientResources, fmt.Sprintf("The provider had no capacity within %s.", timeout))
	default:
		p.fail(v1beta1.FailureCreateError, fmt.Sprintf("No instance was created within %s.", timeout))
	}
}

func (p *pass) recordVanished() {
	const message = "The provider reports that the instance is gone."
	p.setCondition(v1beta1.ConditionLaunched, false, v1beta1.ReasonInstanceVanished, message)
	p.fail(v1beta1.FailureInstanceVanished, message)
}

// These constants are reasons of events on a Machine. The reasons of conditions and failures are also used for events.
// If a launch succeeds after errors, the event has the new phase (Running or Available) as its reason.
const (
	// reasonUpdated is the reason if the instance was updated in place, by the provider or by the agent on the node.
	reasonUpdated = "Updated"

	// reasonDeleted is the reason if the instance is gone and the Machine is deleted. The message names what may remain.
	reasonDeleted      = "Deleted"
	reasonInstanceLeft = "InstanceLeft"
)

func (p *pass) note(reason, action, message string) {
	p.Recorder.Eventf(p.machine, nil, corev1.EventTypeNormal, reason, action, "%s", wording.Truncate(message, 512))
}

func (p *pass) warn(reason, action, message string) {
	p.Recorder.Eventf(p.machine, nil, corev1.EventTypeWarning, reason, action, "%s", wording.Truncate(message, 512))
}

// maxMessage is the maximum length of a message in the status. The API server would reject a status with a longer
// message.
const maxMessage = 4096

// dropCondition removes a condition. If there is no such condition, the list stays the same, whereas
// meta.RemoveStatusCondition would create a new list.
func dropCondition(conditions *[]metav1.Condition, kind string) {
	if meta.FindStatusCondition(*conditions, kind) != nil {
		meta.RemoveStatusCondition(conditions, kind)
	}
}

// A merge patch is computed from the JSON of both objects. A request changes either only the status of a Machine or
// everything except the status, so each patch compares only one of these parts.
type (
	// statusOnly is a patch of the status. statusOnly fails with a conflict if the Machine has changed since it was
	// read.
	statusOnly struct{ before *v1beta1.Machine }
	// withoutStatus is a patch of everything except the status. withoutStatus fails with a conflict if the Machine
	// has changed since it was read.
	withoutStatus struct{ before *v1beta1.Machine }
)

func (statusOnly) Type() types.PatchType    { return types.MergePatchType }
func (withoutStatus) Type() types.PatchType { return types.MergePatchType }

func (s statusOnly) Data(after client.Object) ([]byte, error) {
	half := func(m *v1beta1.Machine) *v1beta1.Machine {
		return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.ResourceVersion}, Status: m.Status}
	}
	return mergePatch(half(s.before), half(after.(*v1beta1.Machine)))
}

func (s withoutStatus) Data(after client.Object) ([]byte, error) {
	half := func(m *v1beta1.Machine) *v1beta1.Machine {
		return &v1beta1.Machine{TypeMeta: m.TypeMeta, ObjectMeta: m.ObjectMeta, Spec: m.Spec}
	}
	return mergePatch(half(s.before), half(after.(*v1beta1.Machine)))
}

func mergePatch(before, after *v1beta1.Machine) ([]byte, error) {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
}
