package migrate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

// phases says what a migration does in each phase.
var phases = map[v1beta1.MigrationPhase]string{
	v1beta1.MigrationPlanning:   "the old system is read, and nothing is changed",
	v1beta1.MigrationFencing:    "the old controllers are stopped, and their objects closed to others",
	v1beta1.MigrationSettling:   "what the old controllers began at the cloud comes to its end",
	v1beta1.MigrationCopying:    "Machinist's objects are made, its Machines paused",
	v1beta1.MigrationAdopting:   "the Machines are unpaused, and their instances adopted",
	v1beta1.MigrationAdopted:    "all instances are Machinist's, and the old objects are still there",
	v1beta1.MigrationCommitting: "the old system's tags are removed from instances, and its traces from Nodes",
	v1beta1.MigrationRemoving:   "the old objects are removed, without their instances",
	v1beta1.MigrationCleaning:   "Machinist's objects get what the migration held back, and the fence is taken down",
	v1beta1.MigrationCompleted:  "the fleet is Machinist's alone",
	v1beta1.MigrationAborting:   "Machinist's tags and objects are removed",
	v1beta1.MigrationAborted:    "the fleet is the old system's again",
}

// phaseOf returns the phase, Planning for a migration that no migrator has acted upon.
func phaseOf(m *v1beta1.Migration) v1beta1.MigrationPhase {
	if m.Status.Phase == "" {
		return v1beta1.MigrationPlanning
	}
	return m.Status.Phase
}

// Observed reports whether a migrator has acted upon the present specification.
func Observed(m *v1beta1.Migration) bool { return m.Status.ObservedGeneration >= m.Generation }

// Line says in one line how far a migration is.
func Line(m *v1beta1.Migration) string {
	if !Observed(m) {
		return fmt.Sprintf("Waiting for the migrator of provider %s to act upon migration %q", m.Spec.Provider, m.Name)
	}
	phase := phaseOf(m)
	line := string(phase) + ": " + phases[phase]
	if n := numbers(m); n != "" {
		line += " (" + n + ")"
	}
	return line + because(m)
}

// numbers says how many machines a phase has come to, empty where it does not count them.
func numbers(m *v1beta1.Migration) string {
	c := m.Status.Machines
	switch phaseOf(m) {
	case v1beta1.MigrationCopying:
		return fmt.Sprintf("%d of %d copied", c.Copied, c.Total)
	case v1beta1.MigrationAdopting, v1beta1.MigrationAdopted:
		return fmt.Sprintf("%d of %d adopted", c.Adopted, c.Total)
	case v1beta1.MigrationCommitting, v1beta1.MigrationRemoving:
		return wording.Count(c.Old, "old machine") + " left"
	case v1beta1.MigrationAborting:
		return fmt.Sprintf("%d still adopted", c.Adopted)
	}
	return ""
}

// because says what the present phase waits for, empty where its condition says nothing.
func because(m *v1beta1.Migration) string {
	kind := v1beta1.ConditionAdopted
	// Without the fence nothing else is done.
	fenced := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionFenced)
	switch phase := phaseOf(m); {
	case phase == v1beta1.MigrationPlanning:
		kind = v1beta1.ConditionPlanned
	case fenced != nil && fenced.Status != metav1.ConditionTrue && fenced.Reason == v1beta1.ReasonStoppingOldControllers:
		kind = v1beta1.ConditionFenced
	case phase.Irrevocable():
		kind = v1beta1.ConditionCompleted
	}
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason == v1beta1.ReasonBlocked || c.Message == "" {
		return ""
	}
	if kind == v1beta1.ConditionFenced {
		return ". The fence waits: " + printer.Clean(c.Message)
	}
	return ". Now: " + printer.Clean(c.Message)
}

// Picture says on a terminal of that many columns how far a migration is.
func Picture(m *v1beta1.Migration, s printer.Style, columns int) []string {
	const bar = 20
	lines := []string{printer.Fit(fmt.Sprintf("migration/%s  %s", m.Name, phaseOf(m)), columns)}
	done, total := int32(0), m.Status.Machines.Total
	switch phaseOf(m) {
	case v1beta1.MigrationCopying:
		done = m.Status.Machines.Copied
	case v1beta1.MigrationAdopting, v1beta1.MigrationAdopted, v1beta1.MigrationAborting:
		done = m.Status.Machines.Adopted
	case v1beta1.MigrationCommitting, v1beta1.MigrationRemoving:
		total = max(total, m.Status.Machines.Old)
		done = total - m.Status.Machines.Old
	default:
		total = 0
	}
	if total > 0 && columns > bar+10 {
		lines = append(lines, printer.Bar(s, done, total, bar)+printer.Fit(" "+numbers(m), columns-bar))
	}
	return append(lines, printer.Fit(Line(m), columns))
}

// Troubles are what is in the way of a migration that has begun, as far as a migrator has acted upon its specification.
func Troubles(m *v1beta1.Migration) []string {
	if !Observed(m) || m.Status.Phase.Ended() {
		return nil
	}
	is := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		c := meta.FindStatusCondition(m.Status.Conditions, kind)
		if c == nil || c.Status != status {
			return nil
		}
		return c
	}
	var troubles []string
	add := func(words string) {
		if words = printer.Clean(words); words != "" && !slices.Contains(troubles, words) {
			troubles = append(troubles, words)
		}
	}
	if c := blocking(m); c != nil {
		add("Blocked: " + c.Message)
	}
	for _, t := range m.Status.Troubles {
		add(t)
	}
	if c := is(v1beta1.ConditionStuck, metav1.ConditionTrue); c != nil && len(m.Status.Troubles) == 0 {
		add(strings.TrimSuffix("Stuck: "+c.Message, ": "))
	}
	return troubles
}

// blocking returns the condition that keeps a migration from what its stage allows, nil if none does.
func blocking(m *v1beta1.Migration) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason != v1beta1.ReasonBlocked || !Observed(m) ||
		m.Spec.Stage != v1beta1.MigrationAdopt && m.Spec.Stage != v1beta1.MigrationCommit {
		return nil
	}
	return c
}
