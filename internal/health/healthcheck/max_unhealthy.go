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
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// maxTargets is how many unhealthy machines the status of a check names.
	maxTargets = 100
	// maxNamed is how many machines a message names.
	maxNamed = 5
)

// Subject is a machine with what is known of it.
type Subject struct {
	Machine *v1beta1.Machine
	// Node is the one that the machine refers to, nil where that is gone or there never was one.
	Node *corev1.Node
	// Domain is the failure domain, "" where it is not known.
	Domain string
	// OwnerFrozen says that its set replaces nothing now.
	OwnerFrozen bool
	// Row is how many machines in a row were replaced before it, each soon after it was made.
	Row int
	// RowEndsIn is when, if it stays well, it has proven that the row is over; zero or less if it has.
	RowEndsIn time.Duration
}

// Reason is why something is so, for a condition.
type Reason struct{ Reason, Message string }

// Wish is what a policy wants RemediationRequested to be on a machine.
type Wish struct {
	Subject Subject
	// Hold is a wish that the machine is not replaced, Mark one that it is. Never both.
	Mark, Restrict bool
	// Forced says that a person asked, so that health does not matter.
	Forced bool
	Reason Reason
}

// Situation is what is the same for all machines.
type Situation struct {
	Now      time.Time
	Clocks   Clocks
	Meltdown Meltdown
}

// Judgement is what follows from a policy for the machines that it is for.
type Judgement struct {
	// Expected machines, of which Healthy ones. Up to Allowed more may become unhealthy until remediation stops.
	Expected, Healthy, Allowed int
	// Targets are the names of the unhealthy machines, in order.
	Targets []string
	// Restriction says why not all of them are remediated; its reason is empty if all are.
	Restriction Reason
	// Wishes are for machines that must have the condition, the newest machine first. All others must not have it.
	Wishes []Wish
	// Exhausted are those of the unhealthy machines that are not remediated since too many in a row were.
	Exhausted []string
	// RecheckAfter is when to judge again although nothing changed; zero is never.
	RecheckAfter time.Duration
}

// Judge judges the machines of one policy together.
func Judge(p Policy, subjects []Subject, s Situation) Judgement {
	var j Judgement
	evaluations := make([]Evaluation, len(subjects))
	unwell, unlaunched, melting := 0, 0, false
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
			// One that may yet recover counts: nodes that went silent together do not run out of time at the same moment.
			unwell++
			melting = melting || s.Meltdown.In(subject.domains()...)
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
	_, meltsAll := s.Meltdown[everywhere]
	for i, subject := range subjects {
		switch v := evaluations[i]; {
		case has(subject.Machine.Annotations, v1beta1.AnnotationRemediate):
			j.Wishes = append(j.Wishes, Wish{Subject: subject, Mark: true, Forced: true,
				Reason: Reason{v1beta1.ReasonRemediateAnnotation, fmt.Sprintf("Annotation %s asks for it.%s",
					v1beta1.AnnotationRemediate, nodeNote(subject))}})
		case p.Type != v1beta1.RemediationNone && p.exhausted(subject):
			j.restrict(subject, v)
		case v.Health == Unhealthy && p.Type != v1beta1.RemediationNone &&
			!tooMany && !s.Meltdown.In(subject.domains()...) && !subject.OwnerFrozen && p.needsMark(subject.Machine):
			j.Wishes = append(j.Wishes, Wish{Subject: subject, Mark: true, Reason: Reason{p.Reason, p.Name + ": " +
				v.Why + nodeNote(subject)}})
		}
	}
	slices.Sort(j.Targets)
	slices.Sort(j.Exhausted)
	slices.SortFunc(j.Wishes, func(a, b Wish) int {
		x, y := a.Subject.Machine, b.Subject.Machine
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	switch {
	case meltsAll, melting && !tooMany:
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
			"%s came after %d or more replacements in a row that failed too, and will not be replaced (maxRetries).",
			named(j.Exhausted), *p.MaxRetries+1)}
	}
	if !meltsAll && !tooMany {
		j.Allowed = limit - unwell
	}
	return j
}

// restrict wishes that a machine is not replaced: so many before it were, each soon after it was made, that it would
// not help.
func (j *Judgement) restrict(subject Subject, v Evaluation) {
	j.Wishes = append(j.Wishes, Wish{Subject: subject, Restrict: true, Reason: Reason{v1beta1.ReasonRetriesExhausted,
		fmt.Sprintf("%s in a row replaced before it, each soon after it was made. It is not replaced.",
			wording.Count(subject.Row, "machine"))}})
	if v.Health == Unhealthy {
		j.Exhausted = append(j.Exhausted, subject.Machine.Name)
	} else {
		j.recheckIn(subject.RowEndsIn)
	}
}

// exhausted reports whether the row that ends with the machine is too long to go on. That is said before the machine
// fails: once it has, its owner may be quicker.
func (p Policy) exhausted(s Subject) bool {
	return p.MaxRetries != nil && s.Row > int(*p.MaxRetries) && s.RowEndsIn > 0
}

// needsMark reports whether a mark tells the owner anything: a failed machine it replaces without.
func (p Policy) needsMark(m *v1beta1.Machine) bool {
	return !machinestate.Failed(m) || p.Type == v1beta1.RemediationExternal
}

func (j *Judgement) recheckIn(d time.Duration) {
	if d > 0 && (j.RecheckAfter == 0 || d < j.RecheckAfter) {
		j.RecheckAfter = d
	}
}

// nodeNote names the Node that was judged.
func nodeNote(s Subject) string {
	if ref := s.Machine.Status.NodeRef; ref != nil {
		return fmt.Sprintf(" Node UID: %s.", ref.UID)
	}
	return ""
}

// named lists the first few names.
func named(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// judged reports whether health checks check a machine at all.
func judged(m *v1beta1.Machine) bool {
	return !leftAlone(m) && !has(m.Annotations, v1beta1.AnnotationSkipRemediation)
}

// leftAlone reports whether nothing about the machine is changed, not even a mark that it has.
func leftAlone(m *v1beta1.Machine) bool {
	return !machinestate.Live(m) || machinestate.Unchangeable(m) || preservation.Preserved(m)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
