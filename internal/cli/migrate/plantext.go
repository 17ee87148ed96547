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

// Text writes the plan for people: what was found, what would be made, and what they have to decide.
func (p Plan) Text(w io.Writer, s printer.Style) error {
	out := &strings.Builder{}
	heading(out, p.Migration, s)
	counts := p.Migration.Status.Machines
	found := wording.Count(counts.Total, "machine") + " with an instance"
	if without := counts.Old - counts.Total; without > 0 && !p.Migration.Status.Phase.Irrevocable() {
		found += fmt.Sprintf(", %d without", without)
	}
	fmt.Fprintf(out, "  %-13s %s\n", "Found:", found)
	names(out, "Classes:", p.Classes)
	names(out, "Deployments:", p.Deployments)
	names(out, "Sets:", p.Sets)
	if hash := p.Migration.Status.PlanHash; hash != "" {
		fmt.Fprintf(out, "  %-13s %s\n", "Plan:", printer.Clean(hash))
	}
	p.level(out, blocker, "BLOCKERS: the migration cannot begin until each is settled", s)
	p.level(out, loss, "LOSSES: what does not come over; each must be accepted", s)
	p.level(out, note, "NOTES", s)
	if p.hidden() {
		fmt.Fprintf(out, "\n%s\n", s.Faint("With --all each object and field is shown."))
	}
	if p.Unread != "" {
		fmt.Fprintf(out, "\n%s\n", s.Faint(printer.Clean(p.Unread)))
	}
	p.next(out)
	_, err := io.WriteString(w, out.String())
	return err
}

// heading writes which fleet goes where.
func heading(out *strings.Builder, m *v1beta1.Migration, s printer.Style) {
	fmt.Fprintf(out, "%s   %s in namespace %s, to provider %s\n", s.Strong("migration/"+m.Name)+" -n "+m.Namespace,
		printer.Clean(m.Spec.Source), printer.Clean(m.SourceNamespaceOrDefault()), printer.Clean(m.Spec.Provider))
}

// names writes the names of objects in a line.
func names(out *strings.Builder, label string, all []string) {
	const most = 8
	if len(all) == 0 {
		return
	}
	words := strings.Join(all[:min(len(all), most)], ", ")
	if more := len(all) - most; more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	fmt.Fprintf(out, "  %-13s %s\n", label, printer.Clean(words))
}

func (p Plan) level(out *strings.Builder, level, title string, s printer.Style) {
	titled := false
	for _, f := range p.Findings {
		if f.Level != level {
			continue
		}
		if !titled {
			fmt.Fprintf(out, "\n%s\n", s.Strong(title))
			titled = true
		}
		code := printer.Clean(f.Code)
		switch {
		case level == blocker:
			code = s.Bad(code)
		case level == loss && !f.Accepted:
			code = s.Warn(code)
		}
		state := ""
		if f.Accepted {
			state = "   accepted"
		}
		fmt.Fprintf(out, "  %s   in %s%s\n", code, wording.Count(f.Count, "place"), state)
		if p.All && len(f.Details) > 0 {
			for _, d := range f.Details {
				fmt.Fprintf(out, "    %s\n", printer.Clean(d))
			}
			continue
		}
		fmt.Fprintf(out, "    %s\n", printer.Clean(f.Message))
	}
}

// hidden reports whether there is more to show than was asked for.
func (p Plan) hidden() bool {
	return !p.All && slices.ContainsFunc(p.Findings, func(f Finding) bool { return len(f.Details) > 1 })
}

// next writes what leads further. Where something is in the way, the error of the command says that.
func (p Plan) next(out *strings.Builder) {
	m := p.Migration
	switch err := p.Err(); {
	case m.Spec.Stage != v1beta1.MigrationPlan:
		fmt.Fprintf(out, "\nIt is %s. How it goes on: machinist migrate status %s\n", phaseOf(m), Reference(m))
	case err != nil:
		out.WriteString("\nNothing was changed.\n")
	case !p.Beginning:
		fmt.Fprintf(out, "\nNothing was changed. To stop the old system and adopt the fleet:\n  machinist migrate run %s\n",
			Reference(m))
	}
}
