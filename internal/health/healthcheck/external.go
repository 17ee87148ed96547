package healthcheck

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Remediators gives access to the remediations of other operators in the target cluster.
type Remediators struct {
	// Client reads from and writes to the API server of the target cluster.
	Client client.Client
	// Kinds are the kinds of remediations that the manager may create.
	Kinds []schema.GroupKind
	// ClusterID identifies this installation. Remediations of other installations are not touched.
	ClusterID string
	// Serves reports whether this process is responsible for the Machines of a namespace. If Serves is nil, the process
	// is responsible for all namespaces.
	Serves func(namespace string) bool
}

func (r *Remediators) permits(kind schema.GroupKind) bool {
	return r != nil && slices.Contains(r.Kinds, kind)
}

// owns reports whether this process is responsible for a remediation.
func (r *Remediators) owns(o Remediation) bool {
	return o.Mark.ClusterID == r.ClusterID && (r.Serves == nil || r.Serves(o.Mark.Namespace))
}

// External defines how another operator remediates the unhealthy machines of a policy.
type External struct {
	// Template is the template of the remediations.
	Template v1beta1.RemediationTemplateReference
	// Timeout is how long a remediation may take. Zero means that there is no limit.
	Timeout time.Duration
	// ReplacesAfterFailure is true if a machine is replaced after its remediation has failed.
	ReplacesAfterFailure bool
}

func externalOf(r v1beta1.HealthCheckRemediation) *External {
	if r.TypeOrDefault() != v1beta1.RemediationExternal || r.TemplateRef == nil {
		return nil
	}
	e := &External{Template: *r.TemplateRef, ReplacesAfterFailure: r.OnTimeout == v1beta1.OnTimeoutReplace}
	if r.Timeout != nil {
		e.Timeout = max(r.Timeout.Duration, 0)
	}
	return e
}

// Progress is the state of the external remediation of a machine.
type Progress struct {
	// HasFailed means that the remediation failed or exceeded its timeout, or that there is nothing to remediate.
	HasFailed bool
	// Explanation describes a failure for users.
	Explanation string
	// TimeIsUp means that the timeout is over. The remediation has failed as soon as the operator was told.
	TimeIsUp bool
	// RecheckAfter is the time until the timeout ends. Zero means never.
	RecheckAfter time.Duration
}

// markReason returns the reason of the condition RemediationRequested of an unhealthy machine. Without a template, this
// is the given reason. If the state of the remediation is unknown, an existing reason stays.
func (p Policy) markReason(s Subject, progress Progress, reason string) string {
	if p.External == nil || !s.FollowsTemplate {
		return reason
	}
	present := machinestate.RemediationReason(s.Machine)
	switch {
	case s.RemediationUnknown && (present == v1beta1.ReasonReplaceAfterRemediation ||
		present == v1beta1.ReasonExternalRemediationFailed):
		return present
	case progress.HasFailed && p.External.ReplacesAfterFailure:
		return v1beta1.ReasonReplaceAfterRemediation
	case progress.HasFailed:
		return v1beta1.ReasonExternalRemediationFailed
	}
	return p.Reason
}

// progress returns the state of the external remediation, or the zero value if there is none or its state is
// unknown.
func (p Policy) progress(s Subject, now time.Time, clock Clock) Progress {
	if p.External == nil || !s.FollowsTemplate || s.RemediationUnknown {
		return Progress{}
	}
	return p.External.Progress(s, now, clock)
}

// Progress returns the state of the external remediation of a machine. The timeout is measured like the other
// timeouts of health checks (Evaluate), from the first time at which this process has seen the remediation.
func (e External) Progress(s Subject, now time.Time, clock Clock) Progress {
	r, kind := s.Remediation, e.Template.RemediationKind().Kind
	switch {
	case isMarked(s.Machine, v1beta1.ReasonReplaceAfterRemediation):
		// The state of the remediation may be lost before the machine is replaced.
		return Progress{HasFailed: true, Explanation: kind + " failed."}
	case r == nil && !hasNode(s):
		return Progress{HasFailed: true, Explanation: fmt.Sprintf("The machine has no Node for %s.", kind)}
	case r == nil || r.IsDeleting:
		return Progress{}
	case r.IsTimedOut:
		return Progress{HasFailed: true, Explanation: fmt.Sprintf("%s has exceeded its timeout.", r)}
	case r.HasFailed:
		return Progress{HasFailed: true, Explanation: fmt.Sprintf("%s failed: %s.", r, r.FailureReason)}
	case r.HasDeletedNode && !hasNode(s):
		return Progress{HasFailed: true, Explanation: fmt.Sprintf("%s has deleted the Node permanently.", r)}
	case e.Timeout == 0:
		return Progress{}
	}
	left := clock.timeLeft(e.Timeout, r.signal(), now)
	if left <= 0 {
		return Progress{TimeIsUp: true}
	}
	return Progress{RecheckAfter: left}
}

// isMarked reports whether remediation of the machine is requested for the reason.
func isMarked(m *v1beta1.Machine, reason string) bool {
	return hasCondition(DesiredCondition{RequestsReplacement: true, Reason: ConditionReason{Reason: reason}}, m)
}

// hasNode reports whether the Node of a machine exists.
func hasNode(s Subject) bool {
	ref := s.Machine.Status.NodeRef
	return ref != nil && s.Node != nil && (ref.UID == "" || ref.UID == s.Node.UID)
}
