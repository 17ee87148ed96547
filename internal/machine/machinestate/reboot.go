package machinestate

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

const remediationReboot = "remediation-"

// RemediationReboot is a value of AnnotationReboot that the manager sets because a health check requests a reboot.
type RemediationReboot struct {
	// Attempt is the number of the reboot since the machine became unhealthy, starting with 1.
	Attempt int32
	// MarkTime is the transition time of the condition RemediationRequested, in seconds. Each mark causes one reboot.
	MarkTime int64
}

func (r RemediationReboot) String() string {
	return fmt.Sprintf("%s%d-%d", remediationReboot, r.Attempt, r.MarkTime)
}

// ParseRemediationReboot parses a value of AnnotationReboot. If the manager did not set the value, ok is false.
func ParseRemediationReboot(value string) (r RemediationReboot, ok bool) {
	rest, ok := strings.CutPrefix(value, remediationReboot)
	attempt, at, separated := strings.Cut(rest, "-")
	number, err := strconv.ParseInt(attempt, 10, 32)
	if err != nil || !ok || !separated || number < 1 {
		return RemediationReboot{}, false
	}
	r = RemediationReboot{Attempt: int32(number)}
	r.MarkTime, err = strconv.ParseInt(at, 10, 64)
	return r, err == nil && r.String() == value
}

// LastRemediationReboot returns the last reboot that the manager has requested. If there is none, the attempt is 0.
func LastRemediationReboot(m *v1beta1.Machine) RemediationReboot {
	r, _ := ParseRemediationReboot(m.Annotations[v1beta1.AnnotationReboot])
	return r
}

// NextRemediationReboot returns the reboot that the condition RemediationRequested requests. If the condition does not
// request a reboot, or if the reboot was already requested from the provider, ok is false.
func NextRemediationReboot(m *v1beta1.Machine) (next RemediationReboot, ok bool) {
	mark := rebootMark(m)
	last := LastRemediationReboot(m)
	if mark == nil || last.Attempt > 0 && last.MarkTime == mark.LastTransitionTime.Unix() {
		return RemediationReboot{}, false
	}
	return RemediationReboot{Attempt: last.Attempt + 1, MarkTime: mark.LastTransitionTime.Unix()}, true
}

// NeedsReboot reports whether the owner of the machine must request a reboot.
func NeedsReboot(m *v1beta1.Machine) bool {
	_, ok := NextRemediationReboot(m)
	return ok && !IsStopped(m) && !HasFailed(m)
}

func rebootMark(m *v1beta1.Machine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1beta1.ReasonRebootRequested {
		return nil
	}
	return c
}

// RebootRequest returns the value of AnnotationReboot that the provider must carry out or has carried out. A request of
// the manager is valid only while the condition RemediationRequested still requests the same reboot.
func RebootRequest(m *v1beta1.Machine) (request string, ok bool) {
	value, ok := m.Annotations[v1beta1.AnnotationReboot]
	if !ok {
		return "", false
	}
	if strings.HasPrefix(value, remediationReboot) {
		r, valid := ParseRemediationReboot(value)
		mark := rebootMark(m)
		return value, valid && mark != nil && mark.LastTransitionTime.Unix() == r.MarkTime
	}
	if text := []rune(value); len(text) > v1beta1.MaxRebootRequestLength {
		value = string(text[:v1beta1.MaxRebootRequestLength])
	}
	return value, true
}

// IsRebooting reports whether the instance of the machine is being rebooted, including the drain before and the boot
// after the reboot.
func IsRebooting(m *v1beta1.Machine) bool {
	r := m.Status.Reboot
	return r != nil && (r.State == v1beta1.RebootDraining || r.State == v1beta1.RebootRebooting)
}

// IsRebootOpen reports whether a reboot was requested and has not ended yet.
func IsRebootOpen(m *v1beta1.Machine) bool {
	request, ok := RebootRequest(m)
	return IsRebooting(m) || ok && (m.Status.Reboot == nil || m.Status.Reboot.Request != request)
}

// RemediationRebootOf returns the last reboot that the manager has requested, if the provider has begun to stop the
// instance, or if the reboot has ended. Otherwise, the result is nil.
func RemediationRebootOf(m *v1beta1.Machine) *v1beta1.RebootStatus {
	r := m.Status.Reboot
	if last := LastRemediationReboot(m); r == nil || r.State == v1beta1.RebootDraining || last.Attempt == 0 ||
		r.Request != last.String() {
		return nil
	}
	return r
}
