package healthcheck

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// RemediationVerb is what to do with a remediation.
type RemediationVerb string

// Verbs of PlanRemediation.
const (
	RemediationCreate     RemediationVerb = "create"
	RemediationDelete     RemediationVerb = "delete"
	RemediationSetTimeout RemediationVerb = "set the timeout of"
)

// RemediationAction is a write of one remediation.
type RemediationAction struct {
	Verb RemediationVerb
	// Remediation is the existing object. It is empty for RemediationCreate.
	Remediation Remediation
	// Reason explains for users why a remediation is deleted.
	Reason string
}

// RemediationFacts are the inputs of PlanRemediation.
type RemediationFacts struct {
	// Subject is the machine with its Node. Subject.Machine is nil if the Machine no longer exists.
	Subject Subject
	// Policy is the policy with a template that applies to the machine. Policy.External is nil if there is none.
	Policy Policy
	// CheckVersion is the resource version of the check of the Policy at the API server. It is empty in facts from the
	// cache.
	CheckVersion string
	// Remediations are all remediations of the machine.
	Remediations []Remediation
	// IsWanted is true if the policy leaves the machine to the operator now, in view of the other machines.
	IsWanted bool
	Now      time.Time
	Clock    Clock
}

// PlanRemediation decides which remediations of a machine to create, to change and to delete. A remediation is
// created only if the machine has none.
func PlanRemediation(f RemediationFacts) []RemediationAction {
	var actions []RemediationAction
	for _, r := range f.Remediations {
		if r.IsDeleting {
			continue
		}
		if reason := f.obsolete(r); reason != "" {
			actions = append(actions, RemediationAction{Verb: RemediationDelete, Remediation: r, Reason: reason})
			continue
		}
		if f.Policy.External == nil || readOnly(f.Subject.Machine) {
			continue
		}
		s := f.Subject
		s.Remediation = &r
		if f.Policy.External.Progress(s, f.Now, f.Clock).TimeIsUp {
			actions = append(actions, RemediationAction{Verb: RemediationSetTimeout, Remediation: r})
		}
	}
	if len(f.Remediations) == 0 && f.mayCreate() {
		actions = append(actions, RemediationAction{Verb: RemediationCreate})
	}
	return actions
}

// obsolete returns why a remediation must be deleted, or "".
func (f RemediationFacts) obsolete(r Remediation) string {
	m, external := f.Subject.Machine, f.Policy.External
	switch {
	case m == nil:
		return "the Machine no longer exists"
	case !machinestate.IsLive(m):
		return "the Machine is being deleted"
	case readOnly(m):
		return ""
	case external == nil:
		return "no health check leaves the machine to this operator"
	case !r.comesFrom(external.Template):
		return "the health check names another template"
	case m.Status.NodeRef == nil || m.Status.NodeRef.UID != "" && m.Status.NodeRef.UID != r.Mark.NodeUID:
		return "the Machine has another Node"
	case f.health() == HealthHealthy:
		return "the machine is healthy"
	}
	return ""
}

// mayCreate reports whether the machine needs a remediation. The mark is on the machine first, so that a user sees
// why a remediation exists. Failed machines are replaced without a remediation.
func (f RemediationFacts) mayCreate() bool {
	m := f.Subject.Machine
	return f.IsWanted && m != nil && evaluable(m) && f.Policy.External != nil && hasNode(f.Subject) &&
		!machinestate.HasFailed(m) && isMarked(m, v1beta1.ReasonExternalRemediation) && f.health() == HealthUnhealthy
}

func (f RemediationFacts) health() Health {
	return Evaluate(f.Policy, f.Subject.Machine, f.Subject.Node, f.Now, f.Clock).Health
}
