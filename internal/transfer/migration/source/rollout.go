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

// CodeBounded: a number outside of Machinist's range is replaced by the nearest allowed number.
const CodeBounded = "Bounded"

// boundedInt reads a number that must not be negative or exceed a maximum. If the field is missing, the result is the
// given default. A number outside of the range causes a Blocker.
func (f *fields) boundedInt(name string, fallback, maximum int32) *int32 {
	n := f.number(name)
	if n == nil {
		return &fallback
	}
	if *n < 0 || *n > maximum {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The number must be from 0 to %d.", maximum)
		return &fallback
	}
	return n
}

func (f *fields) historyLimit(name string, fallback int32) *int32 {
	const most = 100
	n := valueOr(f.number(name), fallback)
	if n < 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The number must not be negative.")
		return &fallback
	}
	if n > most {
		f.report(provider.FindingNote, CodeBounded, name, "Machinist keeps at most %d old sets.", most)
		n = most
	}
	return &n
}

// progressDeadline returns the maximum time for which a rollout may make no progress. The old field is in seconds. If
// the deadline is not longer than minReadySeconds, progressDeadline increases it, because Machinist rejects such a
// deadline.
func (f *fields) progressDeadline(name string, fallback, minReadySeconds int32) *metav1.Duration {
	seconds := *f.boundedInt(name, fallback, math.MaxInt32)
	if seconds <= minReadySeconds {
		f.report(provider.FindingNote, CodeBounded, name, "The deadline must be longer than minReadySeconds. The new "+
			"value is %ds.", minReadySeconds+1)
		seconds = minReadySeconds + 1
	}
	return asDuration(time.Duration(seconds) * time.Second)
}

// rollingUpdate reads maxSurge and maxUnavailable. The arguments are the old system's defaults.
func (f *fields) rollingUpdate(surge, unavailable int32) *v1beta1.RollingUpdate {
	r := &v1beta1.RollingUpdate{
		MaxSurge:       f.numberOrPercentage("maxSurge", surge),
		MaxUnavailable: f.numberOrPercentage("maxUnavailable", unavailable),
	}
	if isZero(r.MaxSurge) && isZero(r.MaxUnavailable) {
		f.report(provider.FindingBlocker, CodeInvalidValue, "maxUnavailable", "maxUnavailable and maxSurge must not both "+
			"be 0: with these values, no machine can be replaced.")
	}
	return r
}

var percentage = regexp.MustCompile(`^[0-9]{1,9}%$`)

// numberOrPercentage returns a number of machines or a percentage. A missing field has the value fallback.
func (f *fields) numberOrPercentage(name string, fallback int32) *intstr.IntOrString {
	value := intstr.FromInt32(fallback)
	raw, found := f.get(name)
	if !found {
		return &value
	}
	if text, ok := raw.(string); ok {
		if !percentage.MatchString(text) {
			f.report(provider.FindingBlocker, CodeInvalidValue, name, "The value must be a number or a percentage such as "+
				"30%%.")
			return &value
		}
		value = intstr.FromString(text)
		return &value
	}
	value = intstr.FromInt32(*f.boundedInt(name, fallback, math.MaxInt32))
	return &value
}

func isZero(n *intstr.IntOrString) bool {
	// Compute the number for one machine and round it up. The result is 0 only for 0 and 0%.
	value, err := intstr.GetScaledValueFromIntOrPercent(n, 1, true)
	return err == nil && value == 0
}

// noRemediation returns a health check for machines that the old system never replaced. The health check prevents
// Machinist's built-in policy from replacing these machines.
func noRemediation(name string, selector metav1.LabelSelector) *v1beta1.MachineHealthCheck {
	check := &v1beta1.MachineHealthCheck{}
	check.Name = name
	check.Spec.Selector = *selector.DeepCopy()
	check.Spec.Remediation.Type = v1beta1.RemediationNone
	return check
}
