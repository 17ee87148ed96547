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
	// maxTargets is the maximum number of unhealthy machines in the status of a check.
	maxTargets = 100
	// maxNamed is the maximum number of machines that a message names.
	maxNamed = 5
)

// Subject is a machine to evaluate.
type Subject struct {
	Machine *v1beta1.Machine
	// Node is the Node that the machine refers to. It is nil if the machine refers to no Node, or the Node does not exist.
	Node *corev1.Node
	// Domain is the failure domain, or empty if the failure domain is unknown.
	Domain string
	// OwnerFrozen means that the set of the machine is frozen and replaces nothing.
	OwnerFrozen bool
	// Retries is how many machines in a row were replaced before this one, each of them soon after its creation.
	Retries int
	// RetriesResetIn is how much longer the machine must work before Retries starts again at 0. It is zero or less if that
	// time has passed.
	RetriesResetIn time.Duration
}

// Reason contains the reason and the message of a condition.
type Reason struct{ Reason, Message string }

// DesiredCondition is the condition RemediationRequested that a machine must have according to a policy.
type DesiredCondition struct {
	Subject Subject
	// Mark means that the machine must be replaced. Hold means that the machine must not be replaced. Exactly one of them
	// is true.
	Mark, Hold bool
	// Forced means that a user requested the replacement, regardless of the machine's health.
	Forced bool
	Reason Reason
}

// Situation is the input of Decide that is the same for all machines.
type Situation struct {
	Now      time.Time
	Clocks   Clocks
	Meltdown Meltdown
}

// Decision is the decision of one policy about its machines.
type Decision struct {
	// Expected is the number of machines, and Healthy is the number of healthy machines. Remediation stops if more than
	// Allowed additional machines become unhealthy.
	Expected, Healthy, Allowed int
	// Targets are the sorted names of the unhealthy machines.
	Targets []string
	// Restriction is the reason why some unhealthy machines are not remediated. Its reason is empty if all unhealthy
	// machines are remediated.
	Restriction Reason
	// Desired are the conditions that machines must have, the newest machine first. All other machines must not have the
	// condition.
	Desired []DesiredCondition
	// Exhausted contains the unhealthy machines that are not remediated because too many machines in a row were replaced
	// before them.
	Exhausted []string
	// RecheckAfter is the time until the decision must be made again even if nothing changes. Zero means never.
	RecheckAfter time.Duration
}

// Decide determines which machines of one policy to remediate. It considers all machines of the policy together.
func Decide(p Policy, subjects []Subject, s Situation) Decision {
	var j Decision
	evaluations := make([]Evaluation, len(subjects))
	unwell, unlaunched, inMeltdown := 0, 0, false
	var frozen []string
	for i, subject := range subjects {
		v := Evaluate(p, subject.Machine, subject.Node, s.Now, s.Clocks.In(subject.domains()...))
		evaluations[i] = v
		j.Expected++
		if v.Health == Healthy {
			j.Healthy++
		}
		j.recheckIn(v.RecheckAfter)
		if !v.InTrouble {
			continue
		}
		if neverLaunched(subject.Machine) {
			unlaunched++
		} else {
			// A machine that may still recover also counts, because the timeouts of nodes that go silent together do not end at
			// the same moment.
			unwell++
			inMeltdown = inMeltdown || s.Meltdown.In(subject.domains()...)
		}
		if v.Health == Unhealthy {
			j.Targets = append(j.Targets, subject.Machine.Name)
			if subject.OwnerFrozen {
				frozen = append(frozen, subject.Machine.Name)
			}
		}
	}
	counted := j.Expected - unlaunched
	limit := p.limit(counted)
	tooMany := unwell > limit
	_, meltdownEverywhere := s.Meltdown[everywhere]
	for i, subject := range subjects {
		switch v := evaluations[i]; {
		case has(subject.Machine.Annotations, v1beta1.AnnotationRemediate):
			j.Desired = append(j.Desired, DesiredCondition{Subject: subject, Mark: true, Forced: true,
				Reason: Reason{v1beta1.ReasonRemediateAnnotation, fmt.Sprintf("Annotation %s requests the replacement of the machine.%s",
					v1beta1.AnnotationRemediate, nodeNote(subject))}})
		case p.Type != v1beta1.RemediationNone && p.exhausted(subject):
			j.hold(subject, v)
		case v.Health == Unhealthy && p.Type != v1beta1.RemediationNone &&
			!tooMany && !s.Meltdown.In(subject.domains()...) && !subject.OwnerFrozen && p.needsMark(subject.Machine):
			j.Desired = append(j.Desired, DesiredCondition{Subject: subject, Mark: true,
				Reason: Reason{p.Reason, p.Name + ": " + v.Why + nodeNote(subject)}})
		}
	}
	slices.Sort(j.Targets)
	slices.Sort(j.Exhausted)
	slices.SortFunc(j.Desired, func(a, b DesiredCondition) int {
		x, y := a.Subject.Machine, b.Subject.Machine
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	switch {
	case meltdownEverywhere, inMeltdown && !tooMany:
		j.Restriction = Reason{v1beta1.ReasonMeltdown, s.Meltdown.Describe(func(domain string) bool {
			return slices.ContainsFunc(subjects, func(s Subject) bool { return slices.Contains(s.domains(), domain) })
		})}
	case tooMany:
		j.Restriction = Reason{v1beta1.ReasonTooManyUnhealthy, fmt.Sprintf(
			"%d of %d machines are not well, and remediation stops at more than %d (maxUnhealthy %s).", unwell, counted, limit,
			p.MaxUnhealthy.String())}
	case len(frozen) > 0:
		j.Restriction = Reason{v1beta1.ReasonFrozen, fmt.Sprintf("The owners of %s are frozen.", named(frozen))}
	case len(j.Exhausted) > 0:
		j.Restriction = Reason{v1beta1.ReasonRetriesExhausted, fmt.Sprintf(
			"%s will not be replaced: before it, %d or more replacements in a row failed too (maxRetries).",
			named(j.Exhausted), *p.MaxRetries+1)}
	}
	if !meltdownEverywhere && !tooMany {
		j.Allowed = limit - unwell
	}
	return j
}

// hold adds a condition that prevents the replacement of a machine. The machines before it were replaced soon after
// their creation, so another replacement would not help.
func (j *Decision) hold(subject Subject, v Evaluation) {
	j.Desired = append(j.Desired, DesiredCondition{Subject: subject, Hold: true, Reason: Reason{
		v1beta1.ReasonRetriesExhausted, fmt.Sprintf("Machines in a row that were replaced before this one, soon after their creation: %d. "+
			"This machine is not replaced (maxRetries).", subject.Retries)}})
	if v.Health == Unhealthy {
		j.Exhausted = append(j.Exhausted, subject.Machine.Name)
	} else {
		j.recheckIn(subject.RetriesResetIn)
	}
}

// exhausted reports whether too many machines in a row were replaced before the machine. The result does not depend on
// whether the machine has failed, because the owner of a failed machine might replace it before the condition is set.
func (p Policy) exhausted(s Subject) bool {
	return p.MaxRetries != nil && s.Retries > int(*p.MaxRetries) && s.RetriesResetIn > 0
}

// needsMark reports whether the machine must be marked so that its owner replaces it. The owner replaces a failed
// machine without a mark.
func (p Policy) needsMark(m *v1beta1.Machine) bool {
	return !machinestate.Failed(m) || p.Type == v1beta1.RemediationExternal
}

func (j *Decision) recheckIn(d time.Duration) {
	if d > 0 && (j.RecheckAfter == 0 || d < j.RecheckAfter) {
		j.RecheckAfter = d
	}
}

// nodeNote returns a sentence with the UID of the Node that was evaluated.
func nodeNote(s Subject) string {
	if ref := s.Machine.Status.NodeRef; ref != nil {
		return fmt.Sprintf(" Node UID: %s.", ref.UID)
	}
	return ""
}

// named lists the first names.
func named(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// evaluable reports whether health checks evaluate a machine at all.
func evaluable(m *v1beta1.Machine) bool {
	return !readOnly(m) && !has(m.Annotations, v1beta1.AnnotationSkipRemediation)
}

// readOnly reports whether a machine must not be changed. In this case, even an existing mark stays.
func readOnly(m *v1beta1.Machine) bool {
	return !machinestate.Live(m) || machinestate.Unchangeable(m) || preservation.Preserved(m)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
