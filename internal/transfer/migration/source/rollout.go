package source

import (
	"math"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodeBounded: a number is beyond what Machinist allows, and is replaced by the nearest that it does.
const CodeBounded = "Bounded"

// bounded returns a number from 0 to most, or its default where there is none. Another number is a Blocker and counts
// as the default.
func (f *fields) bounded(name string, fallback, most int32) *int32 {
	n := f.number(name)
	if n == nil {
		return &fallback
	}
	if *n < 0 || *n > most {
		f.find(provider.FindingBlocker, CodeInvalidValue, name, "It must be from 0 to %d.", most)
		return &fallback
	}
	return n
}

// historyLimit returns the number of old sets to keep, at most as many as Machinist allows.
func (f *fields) historyLimit(name string, fallback int32) *int32 {
	const most = 100
	n := or(f.number(name), fallback)
	if n < 0 {
		f.find(provider.FindingBlocker, CodeInvalidValue, name, "It must not be negative.")
		return &fallback
	}
	if n > most {
		f.find(provider.FindingNote, CodeBounded, name, "Machinist keeps at most %d old sets.", most)
		n = most
	}
	return &n
}

// progressDeadline returns the time that a rollout may take without progress, given in seconds. Machinist wants it to be
// longer than a machine takes to become available.
func (f *fields) progressDeadline(name string, fallback, minReadySeconds int32) *metav1.Duration {
	seconds := *f.bounded(name, fallback, math.MaxInt32)
	if seconds <= minReadySeconds {
		f.find(provider.FindingNote, CodeBounded, name, "It must be longer than minReadySeconds; it becomes %ds.",
			minReadySeconds+1)
		seconds = minReadySeconds + 1
	}
	return asDuration(time.Duration(seconds) * time.Second)
}

// rollingUpdate reads maxSurge and maxUnavailable, and writes out the old system's defaults.
func (f *fields) rollingUpdate(surge, unavailable int32) *v1beta1.RollingUpdate {
	r := &v1beta1.RollingUpdate{
		MaxSurge:       f.numberOrPercentage("maxSurge", surge),
		MaxUnavailable: f.numberOrPercentage("maxUnavailable", unavailable),
	}
	if isZero(r.MaxSurge) && isZero(r.MaxUnavailable) {
		f.find(provider.FindingBlocker, CodeInvalidValue, "maxUnavailable", "It and maxSurge must not both be 0: nothing "+
			"could be replaced.")
	}
	return r
}

var percentage = regexp.MustCompile(`^[0-9]{1,9}%$`)

// numberOrPercentage returns a number of machines or a percentage, or the default where there is none.
func (f *fields) numberOrPercentage(name string, fallback int32) *intstr.IntOrString {
	value := intstr.FromInt32(fallback)
	raw, found := f.get(name)
	if !found {
		return &value
	}
	if text, ok := raw.(string); ok {
		if !percentage.MatchString(text) {
			f.find(provider.FindingBlocker, CodeInvalidValue, name, "It must be a number or a percentage such as 30%%.")
			return &value
		}
		value = intstr.FromString(text)
		return &value
	}
	value = intstr.FromInt32(*f.bounded(name, fallback, math.MaxInt32))
	return &value
}

func isZero(n *intstr.IntOrString) bool {
	// Rounded up, any percentage of 1 but 0% is 1.
	value, err := intstr.GetScaledValueFromIntOrPercent(n, 1, true)
	return err == nil && value == 0
}

// noRemediation returns the check for machines that the old system never replaced. Without it Machinist's built-in
// policy holds, which does.
func noRemediation(name string, selector metav1.LabelSelector) *v1beta1.MachineHealthCheck {
	check := &v1beta1.MachineHealthCheck{}
	check.Name = name
	check.Spec.Selector = *selector.DeepCopy()
	check.Spec.Remediation.Type = v1beta1.RemediationNone
	return check
}
