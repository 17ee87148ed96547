package migrate

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Explain describes what a migration waits for, and what an administrator can do.
func Explain(m *v1beta1.Migration, s Status) []why.Finding {
	about := "migration/" + m.Name
	var findings []why.Finding
	if text := s.absenceWarning(); text != "" {
		findings = append(findings, why.Finding{Object: about, Reason: why.NoProcess, Description: text})
	}
	if !s.Observed {
		findings = append(findings, why.Finding{Object: about, Reason: why.ReasonUnobserved,
			Description: "The migrator has not processed the last change of the Migration yet.",
			NextStep:    "If the migrator of the provider runs, it processes the change within seconds."})
	}
	report := func(kind string, when func(*metav1.Condition) bool, message string) {
		c := s.condition(kind)
		if c == nil || !when(c) {
			return
		}
		meaning := why.MeaningOf(kind, c.Reason)
		if message == "" {
			message = c.Message
		}
		findings = append(findings, why.Finding{Object: about, Condition: kind, Reason: c.Reason,
			Description: meaning.Explanation,
			Message:     message, StartTime: since(c), NextStep: meaning.NextStep,
			Instructions: strings.ReplaceAll(meaning.Instructions, "plan NAME", "plan "+Reference(m))})
	}
	notTrue := func(c *metav1.Condition) bool { return c.Status != metav1.ConditionTrue }
	phase := phaseOf(m)
	if !phase.HasEnded() {
		report(v1beta1.ConditionStuck, func(c *metav1.Condition) bool { return c.Status == metav1.ConditionTrue },
			strings.Join(m.Status.Troubles, "; "))
		if phase == v1beta1.MigrationPlanning || phase == v1beta1.MigrationSettling {
			report(v1beta1.ConditionPlanned, notTrue, "")
		}
		if phase != v1beta1.MigrationPlanning && m.Spec.Stage != v1beta1.MigrationAbort {
			report(v1beta1.ConditionFenced, notTrue, "")
		}
	}
	last := why.Finding{Object: about, Reason: string(phase), NextStep: s.NextStep,
		Description: string(phase) + ": " + effectOf(m) + "."}
	if n := numbers(m); n != "" {
		last.Message = n + "."
	}
	if len(s.Commands) > 0 {
		last.Instructions = s.Commands[0].Command
	}
	return append(findings, last)
}

func since(c *metav1.Condition) *time.Time {
	if c.LastTransitionTime.IsZero() {
		return nil
	}
	at := c.LastTransitionTime.UTC()
	return &at
}
