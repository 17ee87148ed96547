package machineset

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// The API server stores no reason with a deletion. A set therefore states the reasons in the events about its
// deletions, which exist in any case. Package why reads these events.

// ScaleDownReason is the reason of a deletion because the set or its deployment has more machines than replicas. Other
// surplus machines are deleted for a v1beta1.DisruptionReason.
const ScaleDownReason = "ScaleDown"

// explainDeletions records why each surplus machine is deleted. scaledDown contains the machines that the budgets
// deny, and that are deleted nevertheless because the deployment was scaled down.
//
// If a set deletes machines both for a rollout and because its deployment was scaled down, then the first machines in
// the order of deletion are those of the scale-down.
func (p *Plan) explainDeletions(s State, scaledDown []disruption.Denial) {
	if len(p.Delete) == 0 {
		return
	}
	p.reasonsToDelete = make(map[types.UID]string, len(p.Delete))
	for _, d := range scaledDown {
		p.reasonsToDelete[d.Machine.UID] = ScaleDownReason
	}
	left := s.ScaleDown - len(scaledDown)
	for _, m := range p.Delete {
		switch reason := s.reasonOfSurplus(m); {
		case p.reasonsToDelete[m.UID] != "":
		case s.Standalone || left > 0:
			p.reasonsToDelete[m.UID] = ScaleDownReason
			left--
		default:
			p.reasonsToDelete[m.UID] = reason
		}
	}
}

// reasonOfSurplus returns why a surplus machine is deleted if its deployment was not scaled down.
func (s *State) reasonOfSurplus(m *v1beta1.Machine) string {
	switch {
	case machinestate.HasReplaceAnnotation(m):
		return string(disruption.ReasonOfReplacement(m))
	case s.IsOutdated:
		return string(v1beta1.DisruptionRollout)
	}
	return ScaleDownReason
}

func remediationReason(m *v1beta1.Machine) string {
	if machinestate.HasFailed(m) {
		return string(m.Status.FailureReason)
	}
	if notice := meta.FindStatusCondition(m.Status.Conditions,
		v1beta1.ConditionInterruptionNotice); machinestate.IsInterrupted(m) {
		return notice.Reason
	}
	return machinestate.RemediationReason(m)
}

// deletions counts deleted machines by the reason of their deletion.
type deletions map[string]*machineTally

func (d *deletions) add(reason string, m *v1beta1.Machine) {
	if *d == nil {
		*d = deletions{}
	}
	if (*d)[reason] == nil {
		(*d)[reason] = &machineTally{}
	}
	(*d)[reason].add(m)
}

// messages returns a message for each reason, sorted by reason. StatedReason reads these messages.
func (d deletions) messages(verb string) (messages []string) {
	for _, reason := range slices.Sorted(maps.Keys(d)) {
		if tally := d[reason]; tally.n == 1 {
			messages = append(messages, fmt.Sprintf("%s machine %s (reason %s).", verb, tally, reason))
		} else {
			messages = append(messages, fmt.Sprintf("%s %s (reason %s): %s.", verb, wording.Count(tally.n, "machine"), reason, tally))
		}
	}
	return messages
}

var statement = regexp.MustCompile(`^\w+ (?:machine (\S+) \(reason (\S+)\)|` +
	`\d+ machines \(reason (\S+)\): (.+?)(?: and \d+ more)?)\.$`)

// StatedReason returns the reason that an event of a set states for the deletion of a machine. If the event is not
// about the deletion of the machine, or does not name it, found is false.
func StatedReason(event, message, machine string) (reason string, found bool) {
	if event != reasonMachinesDeleted && event != reasonMachinesRemediated {
		return "", false
	}
	parts := statement.FindStringSubmatch(message)
	switch {
	case parts == nil:
		return "", false
	case parts[1] != "":
		return parts[2], parts[1] == machine
	}
	return parts[3], slices.Contains(strings.Split(parts[4], ", "), machine)
}
