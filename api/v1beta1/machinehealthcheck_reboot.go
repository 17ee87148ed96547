package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemediationReboot reboots the instance of the machine first, and replaces the machine if this does not help.
const RemediationReboot RemediationType = "Reboot"

// Defaults of RebootRemediation.
const (
	DefaultRebootAttempts = int32(1)
	DefaultRebootTimeout  = 10 * time.Minute
)

// RebootRemediation limits the reboots of an unhealthy machine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) > duration('0s')",message="timeout must be longer than 0s",fieldPath=".timeout"
type RebootRemediation struct {
	// maxAttempts is how often the instance is rebooted before the machine is replaced. The count starts again when the
	// machine has been healthy for the timeout. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// timeout is how long a machine may take to become healthy after its reboot began. The drain of the Node does not
	// count. Then the instance is rebooted again, or the machine is replaced. Defaults to 10m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// MaxAttemptsOrDefault returns how often the instance is rebooted, 1 if unset.
func (r *RebootRemediation) MaxAttemptsOrDefault() int32 {
	if r == nil || r.MaxAttempts == nil || *r.MaxAttempts < 1 {
		return DefaultRebootAttempts
	}
	return *r.MaxAttempts
}

// TimeoutOrDefault returns how long a reboot may take, 10 minutes if unset.
func (r *RebootRemediation) TimeoutOrDefault() time.Duration {
	if r == nil || r.Timeout == nil || r.Timeout.Duration <= 0 {
		return DefaultRebootTimeout
	}
	return r.Timeout.Duration
}
