package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Budget is the status of a MachineDisruptionBudget.
type Budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Selected is the number of machines that the budget selects. Disrupted is the number of disrupted machines.
	Selected  int32 `json:"selected"`
	Disrupted int32 `json:"disrupted"`
	// Allowed is the number of machines that may still be disrupted. It is nil while the budget is not in force.
	Allowed *int32 `json:"allowed,omitempty"`
	// Reasons are the kinds of disruptions that the budget limits. Empty means all.
	Reasons []v1beta1.DisruptionReason `json:"reasons,omitempty"`
	// NextChange is when the next window opens or closes.
	NextChange *time.Time `json:"nextChange,omitempty"`
	// Paused is set if the budget was created by "machinist pause --fleet".
	Paused *Pause `json:"paused,omitempty"`
	// Reason and Explanation are set if the budget is invalid or not processed yet. Message is set if the budget is
	// invalid.
	Reason      string `json:"reason,omitempty"`
	Explanation string `json:"explanation,omitempty"`
	Message     string `json:"message,omitempty"`
}

func budgetsOf(f Facts) []Budget {
	budgets := make([]Budget, 0, len(f.Budgets))
	for i := range f.Budgets {
		budgets = append(budgets, budgetOf(&f.Budgets[i]))
	}
	slices.SortFunc(budgets, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return budgets
}

func budgetOf(b *v1beta1.MachineDisruptionBudget) Budget {
	view := Budget{
		Namespace: b.Namespace, Name: b.Name, Selected: b.Status.Selected, Disrupted: b.Status.Disrupted,
		Allowed: b.Status.Allowed, Reasons: b.Spec.Reasons,
	}
	if b.Status.NextChange != nil {
		view.NextChange = timeOf(*b.Status.NextChange)
	}
	if b.Name == disruption.PauseBudget {
		paused := PauseOf(b, "paused")
		view.Paused = &paused
	}
	switch valid := meta.FindStatusCondition(b.Status.Conditions, v1beta1.ConditionValid); {
	case valid == nil:
		view.Reason, view.Explanation = why.ReasonUnobserved, "The manager has not processed the budget yet."
	case valid.Status == metav1.ConditionFalse:
		view.Reason, view.Message = valid.Reason, valid.Message
		view.Explanation = why.MeaningOf(valid.Type, valid.Reason).Explanation
	}
	return view
}

// PauseOf describes the pause of a fleet. The given budget causes the pause by forbidding all disruptions. The result
// of the command, such as "resumed", becomes the field Outcome.
func PauseOf(b *v1beta1.MachineDisruptionBudget, done string) Pause {
	return Pause{Namespace: b.Namespace, Outcome: done, By: b.Annotations[v1beta1.AnnotationPausedBy],
		Reason: b.Annotations[v1beta1.AnnotationPauseReason], Since: b.CreationTimestamp.UTC().Format(time.RFC3339)}
}

func (s Status) writeBudgets(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, b := range s.Budgets {
		rows = append(rows, []string{b.Name, fmt.Sprint(b.Selected), fmt.Sprint(b.Disrupted), b.AllowedText(),
			b.note(style)})
		namespaces = append(namespaces, b.Namespace)
	}
	s.writeTable(w, []string{"DISRUPTION BUDGET", "SELECTED", "DISRUPTED", "ALLOWED", "NOTE"}, rows, namespaces)
}

// AllowedText returns how many machines may still be disrupted, or a dash while the budget is not in force.
func (b Budget) AllowedText() string {
	if b.Allowed == nil {
		return "-"
	}
	return fmt.Sprint(*b.Allowed)
}

// Note returns the text for the column NOTE without colors.
func (b Budget) Note() string { return b.note(printer.Style{}) }

func (b Budget) note(style printer.Style) string {
	var notes []string
	if b.Reason != "" {
		notes = append(notes, style.Red(b.Reason)+": "+cmp.Or(printer.Sanitize(b.Message), b.Explanation))
	}
	if b.Paused != nil {
		notes = append(notes, style.Warn("paused")+" at "+b.Paused.Since+prefixed(" by ", b.Paused.By)+
			prefixed(": ", b.Paused.Reason))
	}
	if len(b.Reasons) > 0 {
		notes = append(notes, "for "+joined(b.Reasons))
	}
	switch {
	case b.NextChange != nil && b.Allowed != nil:
		notes = append(notes, "in force until "+b.NextChange.UTC().Format(time.RFC3339))
	case b.NextChange != nil:
		notes = append(notes, "in force from "+b.NextChange.UTC().Format(time.RFC3339))
	}
	for i := range len(notes) - 1 {
		notes[i] = strings.TrimSuffix(notes[i], ".")
	}
	return strings.Join(notes, "; ")
}

func joined(reasons []v1beta1.DisruptionReason) string {
	names := make([]string, len(reasons))
	for i, reason := range reasons {
		names[i] = string(reason)
	}
	return strings.Join(names, ", ")
}
