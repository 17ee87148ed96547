package healthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

const (
	// maxTargets is how many unhealthy machines the status of a check lists.
	maxTargets = 100
	maxNamed   = 5
)

// Subject is a machine to evaluate.
type Subject struct {
	Machine *v1beta1.Machine
	// Node is the object that status.nodeRef of the machine refers to. It is nil if the Node does not exist.
	Node *corev1.Node
	// Domain is the failure domain, or empty if unknown.
	Domain string
	// OwnerFrozen means that the set is frozen and replaces nothing.
	OwnerFrozen bool
	// Retries is the number of consecutive predecessors of this machine that were replaced soon after their creation.
	Retries int
	// RetriesResetIn is how much longer the machine must work until Retries returns to 0. It may be negative.
	RetriesResetIn time.Duration
	// FollowsTemplate means that Policy.External of the policy applies to this machine. If several policies have a
	// template, the first one applies.
	FollowsTemplate bool
	// Remediation is the remediation of the machine from this template, or nil. RemediationUnknown means that the
	// remediations could not be read.
	Remediation        *Remediation
	RemediationUnknown bool
}

// ConditionReason contains the reason and the message of a condition.
type ConditionReason struct{ Reason, Message string }

// DesiredCondition is the condition RemediationRequested that a policy requires of a machine.
type DesiredCondition struct {
	Subject Subject
	// RequestsReplacement is true if the condition requests the replacement of the machine. PreventsReplacement is
	// true if the condition prevents the replacement. Exactly one of the two fields is true.
	RequestsReplacement, PreventsReplacement bool
	// IsForced is true if a user requested the replacement.
	IsForced bool
	Reason   ConditionReason
}

// Situation contains the inputs of Decide that are the same for all machines.
type Situation struct {
	Now      time.Time
	Clocks   Clocks
	Meltdown Meltdown
}

// Decision says which machines of a policy are remediated, and why others are not.
type Decision struct {
	// ExpectedCount and HealthyCount are numbers of machines. Remediation stops if more than AllowedUnhealthy
	// additional machines become unhealthy.
	ExpectedCount, HealthyCount, AllowedUnhealthy int
	// Targets are the sorted names of the unhealthy machines.
	Targets []string
	// Restriction explains why some unhealthy machines are not remediated. If all unhealthy machines are remediated,
	// its reason is empty.
	Restriction ConditionReason
	// DesiredConditions lists the conditions that machines must have, newest machine first. Other machines must not
	// have the condition.
	DesiredConditions []DesiredCondition
	// Exhausted contains the unhealthy machines that are not remediated because too many replacements in a row failed.
	Exhausted []string
	// Recovered contains the machines that have been healthy long enough after a reboot.
	Recovered []*v1beta1.Machine
	// RecheckAfter is the time after which Decide must be called again, even without an event. Zero means never.
	RecheckAfter time.Duration
}

// Decide selects the machines of one policy to remediate, in view of all machines of the policy.
func Decide(p Policy, subjects []Subject, s Situation) Decision {
	var j Decision
	evaluations, progress := make([]Evaluation, len(subjects)), make([]Progress, len(subjects))
	unwell, unlaunched, inMeltdown := 0, 0, false
	var frozen []string
	for i, subject := range subjects {
		clock := s.Clocks.ForDomains(subject.domains()...)
		v := Evaluate(p, subject.Machine, subject.Node, s.Now, clock)
		evaluations[i], progress[i] = v, p.progress(subject, s.Now, clock)
		j.forgetReboots(p, subject, v, s.Now, clock)
		j.ExpectedCount++
		if v.Health == HealthHealthy {
			j.HealthyCount++
		}
		j.recheckIn(v.RecheckAfter)
		j.recheckIn(progress[i].RecheckAfter)
		if !v.InTrouble {
			continue
		}
		if neverLaunched(subject.Machine) {
			unlaunched++
		} else {
			// A machine with a problem counts for maxUnhealthy even before its timeout ends. Otherwise, if many nodes
			// fail together, the first machines would be replaced before the timeouts of the others end.
			unwell++
			inMeltdown = inMeltdown || s.Meltdown.Affects(subject.domains()...)
		}
		if v.Health == HealthUnhealthy {
			j.Targets = append(j.Targets, subject.Machine.Name)
			if subject.OwnerFrozen {
				frozen = append(frozen, subject.Machine.Name)
			}
		}
	}
	counted := j.ExpectedCount - unlaunched
	least, most, limits := p.limits(counted)
	tooMany, tooFew := unwell > most, unwell < least
	_, meltdownEverywhere := s.Meltdown[everywhere]
	for i, subject := range subjects {
		switch v := evaluations[i]; {
		case has(subject.Machine.Annotations, v1beta1.AnnotationRemediate):
			j.DesiredConditions = append(j.DesiredConditions, DesiredCondition{Subject: subject,
				RequestsReplacement: true, IsForced: true,
				Reason: ConditionReason{v1beta1.ReasonRemediateAnnotation, fmt.Sprintf("Annotation %s requests the replacement of the machine.%s",
					v1beta1.AnnotationRemediate, nodeNote(subject))}})
		case p.Type != v1beta1.RemediationNone && p.exhausted(subject):
			j.hold(subject, v)
		case v.Health == HealthUnhealthy && p.Type != v1beta1.RemediationNone &&
			!tooMany && !tooFew && !s.Meltdown.Affects(subject.domains()...) && !subject.OwnerFrozen &&
			p.needsMark(subject.Machine):
			why, ok := p.remediation(subject.Machine)
			if !ok {
				j.recheckIn(time.Second)
				continue
			}
			j.DesiredConditions = append(j.DesiredConditions, DesiredCondition{Subject: subject, RequestsReplacement: true,
				Reason: ConditionReason{p.markReason(subject, progress[i], why.Reason),
					p.Name + ": " + strings.TrimSpace(v.Explanation+" "+progress[i].Explanation) + why.Message + nodeNote(subject)}})
		}
	}
	slices.Sort(j.Targets)
	slices.Sort(j.Exhausted)
	slices.SortFunc(j.DesiredConditions, func(a, b DesiredCondition) int {
		x, y := a.Subject.Machine, b.Subject.Machine
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	switch {
	case meltdownEverywhere, inMeltdown && !tooMany:
		j.Restriction = ConditionReason{v1beta1.ReasonMeltdown, s.Meltdown.Describe(func(domain string) bool {
			return slices.ContainsFunc(subjects, func(s Subject) bool { return slices.Contains(s.domains(), domain) })
		})}
	case tooMany:
		j.Restriction = ConditionReason{v1beta1.ReasonTooManyUnhealthy, fmt.Sprintf(
			"%d of %d machines are not well, and remediation stops at more than %d (%s).", unwell, counted, most, limits)}
	case tooFew && len(j.Targets) > 0:
		j.Restriction = ConditionReason{v1beta1.ReasonTooFewUnhealthy, fmt.Sprintf(
			"%d of %d machines are not well, and remediation starts at %d (%s).", unwell, counted, least, limits)}
	case len(frozen) > 0:
		j.Restriction = ConditionReason{v1beta1.ReasonFrozen, fmt.Sprintf("The owners of %s are frozen.", named(frozen))}
	case len(j.Exhausted) > 0:
		j.Restriction = ConditionReason{v1beta1.ReasonRetriesExhausted, fmt.Sprintf(
			"%s will not be replaced, because at least %d replacements in a row failed before (maxRetries).",
			named(j.Exhausted), *p.MaxRetries+1)}
	}
	if !meltdownEverywhere && !tooMany && !tooFew {
		j.AllowedUnhealthy = most - unwell
	}
	return j
}

// hold forbids the replacement of a machine, because all its predecessors were replaced soon after their creation.
func (j *Decision) hold(subject Subject, v Evaluation) {
	j.DesiredConditions = append(j.DesiredConditions, DesiredCondition{Subject: subject,
		PreventsReplacement: true, Reason: ConditionReason{
			v1beta1.ReasonRetriesExhausted, fmt.Sprintf("This machine is not replaced, because maxRetries is reached. "+
				"Replacements in a row before this machine: %d.", subject.Retries)}})
	if v.Health == HealthUnhealthy {
		j.Exhausted = append(j.Exhausted, subject.Machine.Name)
	} else {
		j.recheckIn(subject.RetriesResetIn)
	}
}

// exhausted reports whether too many machines in a row were replaced before this machine. The result may be true for
// a healthy machine. If the condition were set only after the failure, the owner could replace the machine before
// the condition is set.
func (p Policy) exhausted(s Subject) bool {
	return p.MaxRetries != nil && s.Retries > int(*p.MaxRetries) && s.RetriesResetIn > 0
}

// needsMark reports whether the owner replaces the machine only if a health check marks it. Owners replace failed
// machines without a mark.
func (p Policy) needsMark(m *v1beta1.Machine) bool {
	return !machinestate.HasFailed(m) || p.Type == v1beta1.RemediationExternal
}

func (j *Decision) recheckIn(d time.Duration) {
	if d > 0 && (j.RecheckAfter == 0 || d < j.RecheckAfter) {
		j.RecheckAfter = d
	}
}

func nodeNote(s Subject) string {
	if ref := s.Machine.Status.NodeRef; ref != nil {
		return fmt.Sprintf(" Node UID: %s.", ref.UID)
	}
	return ""
}

func named(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

func evaluable(m *v1beta1.Machine) bool {
	return !readOnly(m) && !has(m.Annotations, v1beta1.AnnotationSkipRemediation)
}

// readOnly reports whether a machine must not be changed. Existing marks stay.
func readOnly(m *v1beta1.Machine) bool {
	return !machinestate.IsLive(m) || machinestate.IsUnchangeable(m) || preservation.IsPreserved(m)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
