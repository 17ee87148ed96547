package migrate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

// Text writes the plan as text: the findings, the new objects, and what the user must decide.
func (p Plan) Text(w io.Writer, s printer.Style) error {
	out := &strings.Builder{}
	writeHeading(out, p.Migration, s)
	counts := p.Migration.Status.Machines
	found := wording.Count(counts.Total, "machine") + " with an instance"
	if without := counts.Old - counts.Total; without > 0 && !p.Migration.Status.Phase.Irrevocable() {
		found += fmt.Sprintf(", %d without", without)
	}
	fmt.Fprintf(out, "  %-13s %s\n", "Found:", found)
	writeNames(out, "Classes:", p.Classes)
	writeNames(out, "Deployments:", p.Deployments)
	writeNames(out, "Sets:", p.Sets)
	if hash := p.Migration.Status.PlanHash; hash != "" {
		age := ""
		if changed := p.Migration.Status.PlanTime; changed != nil && !p.Now.IsZero() {
			age = ", changed " + printer.Age(p.Now, changed.Time) + " ago"
		}
		fmt.Fprintf(out, "  %-13s %s%s\n", "Plan:", printer.Sanitize(hash), age)
	}
	p.writeFindings(out, blocker, "BLOCKERS: fix all of them before the migration can start", s)
	p.writeFindings(out, loss, "LOSSES: what is not migrated; accept all of them before the migration can start", s)
	p.writeFindings(out, note, "NOTES", s)
	if p.hidden() {
		fmt.Fprintf(out, "\n%s\n", s.Dim("To see every object and field, use --all."))
	}
	if p.Unread != "" {
		fmt.Fprintf(out, "\n%s\n", s.Dim(printer.Sanitize(p.Unread)))
	}
	p.writeNext(out)
	_, err := io.WriteString(w, out.String())
	return err
}

func writeHeading(out *strings.Builder, m *v1beta1.Migration, s printer.Style) {
	from := printer.Sanitize(m.Spec.Source) + " in namespace " + printer.Sanitize(m.SourceNamespaceOrDefault())
	if m.Spec.Instances != nil {
		from = "instances without a machine, class " + printer.Sanitize(m.Spec.Instances.ClassRef.Name)
	}
	fmt.Fprintf(out, "%s   %s, to provider %s\n", s.Bold("migration/"+m.Name)+" -n "+m.Namespace, from,
		printer.Sanitize(m.Spec.Provider))
}

func writeNames(out *strings.Builder, label string, all []string) {
	const limit = 8
	if len(all) == 0 {
		return
	}
	text := strings.Join(all[:min(len(all), limit)], ", ")
	if more := len(all) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	fmt.Fprintf(out, "  %-13s %s\n", label, printer.Sanitize(text))
}

func (p Plan) writeFindings(out *strings.Builder, level, title string, s printer.Style) {
	titled := false
	for _, f := range p.Findings {
		if f.Level != level {
			continue
		}
		if !titled {
			fmt.Fprintf(out, "\n%s\n", s.Bold(title))
			titled = true
		}
		code := printer.Sanitize(f.Code)
		switch {
		case level == blocker:
			code = s.Red(code)
		case level == loss && !f.Accepted:
			code = s.Warn(code)
		}
		state := ""
		if f.Accepted {
			state = "   accepted"
		}
		fmt.Fprintf(out, "  %s   in %s%s\n", code, wording.Count(f.Count, "place"), state)
		if p.ListsAll && len(f.Details) > 0 {
			for _, d := range f.Details {
				fmt.Fprintf(out, "    %s\n", printer.Sanitize(d))
			}
			continue
		}
		fmt.Fprintf(out, "    %s\n", printer.Sanitize(f.Message))
	}
}

func (p Plan) hidden() bool {
	return !p.ListsAll && slices.ContainsFunc(p.Findings, func(f Finding) bool { return len(f.Details) > 1 })
}

// writeNext writes the command that the user can run next. If the migration is blocked, writeNext writes no command,
// because the error message of "machinist migrate" already says what to do.
func (p Plan) writeNext(out *strings.Builder) {
	m := p.Migration
	switch err := p.Err(); {
	case m.Spec.Stage != v1beta1.MigrationPlan:
		fmt.Fprintf(out, "\nThe migration is in the phase %s. To see its progress:\n  machinist migrate status %s\n", phaseOf(m),
			Reference(m))
	case err != nil:
		out.WriteString("\nNothing was changed.\n")
	case !p.Beginning && m.Spec.Instances != nil:
		fmt.Fprintf(out, "\nNothing was changed. To adopt the instances:\n  machinist migrate run %s\n", Reference(m))
	case !p.Beginning:
		fmt.Fprintf(out, "\nNothing was changed. To stop the old system and adopt the fleet:\n  machinist migrate run %s\n",
			Reference(m))
	}
}
