package migrate

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

// Text writes the status as text.
func (s Status) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s   %s in namespace %s, to provider %s\n\n", style.Bold("migration/"+s.Name)+" -n "+s.Namespace,
		printer.Sanitize(s.Source), printer.Sanitize(s.SourceNamespace), printer.Sanitize(s.Provider))
	_ = printer.Table(out, head, [][]string{s.row(style)})
	phase := cmp.Or(s.Phase, v1beta1.MigrationPlanning)
	fmt.Fprintf(out, "\n%s: %s.\n", phase, s.effect)
	if !s.Observed {
		fmt.Fprintf(out, "The migrator has not processed the last change of the specification yet.\n")
	}
	if s.Deleted != nil {
		fmt.Fprintf(out, "The Migration is being deleted. Before the point of no return, this aborts the migration. After it, the deletion waits until the migration has ended.\n")
	}
	s.writeConditions(out, style)
	if len(s.Troubles) > 0 {
		fmt.Fprintf(out, "\n%s\n", style.Bold("TROUBLES"))
		for _, t := range s.Troubles {
			fmt.Fprintf(out, "  %s\n", style.Red(t))
		}
	}
	if len(s.StoppedWorkloads) > 0 && !s.Phase.HasEnded() {
		fmt.Fprintf(out, "\n%s\n", style.Bold("STOPPED"))
		for _, o := range s.StoppedWorkloads {
			fmt.Fprintf(out, "  %s %s/%s, which had %s\n", strings.ToLower(o.Kind), printer.Sanitize(o.Namespace),
				printer.Sanitize(o.Name), wording.Count(o.Replicas, "replica"))
		}
	}
	fmt.Fprintf(out, "\n%s %s\n", style.Bold("Next:"), s.NextStep)
	s.writeCommands(out)
	for _, text := range append([]string{s.absenceWarning()}, s.ReadErrors...) {
		if text = printer.Sanitize(text); text != "" {
			fmt.Fprintf(out, "\n%s\n", style.Warn(text))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

var head = []string{"STAGE", "PHASE", "MACHINES", "COPIED", "ADOPTED", "OLD", "AGE"}

func (s Status) row(style printer.Style) []string {
	phase := orDash(string(s.Phase))
	switch {
	case len(s.Troubles) > 0:
		phase = style.Red(phase)
	case s.Phase == v1beta1.MigrationCompleted:
		phase = style.Green(phase)
	}
	count := func(n int32) string {
		if s.Phase == "" {
			return "-" // No migrator has counted the machines.
		}
		return fmt.Sprint(n)
	}
	return []string{string(s.Stage), phase, count(s.Machines.Total), count(s.Machines.Copied), count(s.Machines.Adopted),
		count(s.Machines.Old), orDash(printer.Age(s.Now, s.Created))}
}

// orDash removes control characters. An empty text becomes a dash.
func orDash(text string) string { return cmp.Or(printer.Sanitize(text), "-") }

// writeConditions writes the table of conditions in the order in which they normally become True.
func (s Status) writeConditions(out *strings.Builder, style printer.Style) {
	var rows [][]string
	for _, kind := range []string{v1beta1.ConditionPlanned, v1beta1.ConditionFenced, v1beta1.ConditionAdopted,
		v1beta1.ConditionCompleted, v1beta1.ConditionStuck} {
		c := s.condition(kind)
		if c == nil {
			continue
		}
		status := string(c.Status)
		if kind == v1beta1.ConditionStuck && c.Status == metav1.ConditionTrue {
			status = style.Red(status)
		}
		rows = append(rows, []string{kind, status, printer.Sanitize(c.Reason), printer.Age(s.Now, c.LastTransitionTime.Time),
			printer.Sanitize(c.Message)})
	}
	if len(rows) > 0 {
		out.WriteString("\n")
		_ = printer.Table(out, []string{"CONDITION", "STATUS", "REASON", "AGE", "MESSAGE"}, rows)
	}
}

func (s Status) writeCommands(out *strings.Builder) {
	width := 0
	for _, c := range s.Commands {
		width = max(width, printer.Width(c.Command))
	}
	for _, c := range s.Commands {
		fmt.Fprintf(out, "  %-*s   # %s\n", width, c.Command, c.Effect)
	}
}

// Text writes one line for each migration.
func (l List) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(l.Items) == 0 {
		where := "in any namespace"
		if l.Namespace != "" {
			where = "in namespace " + l.Namespace + " (-A looks in all)"
		}
		fmt.Fprintf(out, "There are no Migrations %s.\n", where)
	} else {
		columns := append([]string{"NAME", "SOURCE"}, head...)
		if l.Namespace == "" {
			columns = append([]string{"NAMESPACE"}, columns...)
		}
		var rows [][]string
		for _, s := range l.Items {
			row := append([]string{s.Name, printer.Sanitize(s.Source)}, s.row(style)...)
			if l.Namespace == "" {
				row = append([]string{s.Namespace}, row...)
			}
			rows = append(rows, row)
		}
		_ = printer.Table(out, columns, rows)
	}
	for _, s := range l.Items {
		for _, t := range s.Troubles {
			fmt.Fprintf(out, "\n%s: %s\n", s.Name, style.Red(t))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
