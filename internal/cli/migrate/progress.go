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

var phases = map[v1beta1.MigrationPhase]string{
	v1beta1.MigrationPlanning:   "the migrator reads the old system and changes nothing",
	v1beta1.MigrationFencing:    "the migrator stops the old controllers, and protects their objects from other clients",
	v1beta1.MigrationSettling:   "the migrator waits until operations that the old controllers started in the cloud are visible",
	v1beta1.MigrationCopying:    "the migrator creates Machinist's objects, with paused Machines",
	v1beta1.MigrationAdopting:   "the migrator unpauses the Machines, and the provider adopts their instances",
	v1beta1.MigrationAdopted:    "Machinist manages all instances, and the old objects still exist",
	v1beta1.MigrationCommitting: "the migrator removes the tags of the old system from instances, and its traces from Nodes",
	v1beta1.MigrationRemoving:   "the migrator removes the old objects, but not their instances",
	v1beta1.MigrationCleaning:   "the migrator applies the postponed changes, and removes the fence",
	v1beta1.MigrationCompleted:  "Machinist alone manages the fleet",
	v1beta1.MigrationAborting:   "the migrator removes Machinist's tags and objects",
	v1beta1.MigrationAborted:    "the old system manages the fleet again",
}

// effectOf describes the phase. At the end, it also says how many objects stay with the old system.
func effectOf(m *v1beta1.Migration) string {
	text, excluded := phases[phaseOf(m)], len(m.Spec.Exclude)
	if m.Spec.Source == v1beta1.MigrationSourceInstances {
		return withoutOldSystem.Replace(text)
	}
	if phaseOf(m) != v1beta1.MigrationCompleted || excluded == 0 {
		return text
	}
	for _, f := range m.Status.Findings { // The plan also counts the sets and machines of these objects.
		if f.Code == "Excluded" {
			excluded = max(excluded, int(f.Count))
		}
	}
	stay := " stay"
	if excluded == 1 {
		stay += "s"
	}
	return text + ", except that " + wording.Count(excluded, "excluded object") + stay + " with the old system"
}

// phaseOf returns the phase of a migration. Until a migrator has processed the Migration, the phase is Planning.
func phaseOf(m *v1beta1.Migration) v1beta1.MigrationPhase {
	if m.Status.Phase == "" {
		return v1beta1.MigrationPlanning
	}
	return m.Status.Phase
}

// IsObserved reports whether a migrator has processed the current specification.
func IsObserved(m *v1beta1.Migration) bool { return m.Status.ObservedGeneration >= m.Generation }

// Line describes the progress of a migration in one line of text.
func Line(m *v1beta1.Migration) string {
	if !IsObserved(m) {
		return fmt.Sprintf("Waiting for the migrator of provider %s to process migration %q", m.Spec.Provider, m.Name)
	}
	phase := phaseOf(m)
	line := string(phase) + ": " + effectOf(m)
	if n := numbers(m); n != "" {
		line += " (" + n + ")"
	}
	return line + waitMessage(m)
}

// numbers describes how many machines the phase has processed, or "" if the phase does not process single machines.
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

func waitMessage(m *v1beta1.Migration) string {
	kind := v1beta1.ConditionAdopted
	// Until the old controllers are stopped, the migrator does nothing else.
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
		return ". Waiting for the fence: " + printer.Sanitize(c.Message)
	}
	return ". Now: " + printer.Sanitize(c.Message)
}

// Picture draws the progress of a migration on a terminal with the given number of columns. It returns the lines.
func Picture(m *v1beta1.Migration, s printer.Style, columns int) []string {
	const bar = 20
	lines := []string{printer.Shorten(fmt.Sprintf("migration/%s  %s", m.Name, phaseOf(m)), columns)}
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
		lines = append(lines, printer.Bar(s, done, total, bar)+printer.Shorten(" "+numbers(m), columns-bar))
	}
	return append(lines, printer.Shorten(Line(m), columns))
}

// Problems returns the problems of a started migration. The result is nil if the status does not describe the current
// specification yet.
func Problems(m *v1beta1.Migration) []string {
	if !IsObserved(m) || m.Status.Phase.HasEnded() {
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
	add := func(text string) {
		if text = printer.Sanitize(text); text != "" && !slices.Contains(troubles, text) {
			troubles = append(troubles, text)
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

// blocking returns the condition that explains why the migration cannot reach its stage, or nil.
func blocking(m *v1beta1.Migration) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason != v1beta1.ReasonBlocked || !IsObserved(m) ||
		m.Spec.Stage != v1beta1.MigrationAdopt && m.Spec.Stage != v1beta1.MigrationCommit {
		return nil
	}
	return c
}
