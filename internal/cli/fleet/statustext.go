package fleet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/rollout"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/platform/wording"
)

// Text writes the status as text. Text omits the tables for problems that do not exist, so the status of a healthy
// fleet is short.
func (s Status) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(s.Deployments)+len(s.Sets)+len(s.Loose) == 0 {
		where := "in any namespace"
		if s.Namespace != "" {
			where = "in namespace " + s.Namespace + " (-A looks in all)"
		}
		fmt.Fprintf(out, "There are no machines, sets or deployments %s.\n", where)
	}
	s.writeScaled(out, "DEPLOYMENT", s.Deployments, style)
	s.writeScaled(out, "STANDALONE SET", s.Sets, style)
	s.writePlacements(out, style)
	s.writeLoose(out)
	s.writeChecks(out, style)
	s.writeBudgets(out, style)
	s.writeFreezes(out, style)
	s.writeSources(out, style)
	s.writeOrphans(out)
	s.writeEdited(out)
	s.writeWaiting(out, style)
	s.writeRecentFailures(out, style)
	s.writeProcesses(out, style)
	s.writeSummary(out, style)
	for _, u := range s.ReadErrors {
		fmt.Fprintf(out, "%s\n", style.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// writeTable writes a table. If all namespaces were read, the first column is the namespace.
func (s Status) writeTable(w *strings.Builder, head []string, rows [][]string, namespaces []string) {
	if len(rows) == 0 {
		return
	}
	if s.Namespace == "" {
		head = append([]string{"NAMESPACE"}, head...)
		for i := range rows {
			rows[i] = append([]string{namespaces[i]}, rows[i]...)
		}
	}
	if w.Len() > 0 {
		w.WriteString("\n")
	}
	_ = printer.Table(w, head, rows)
}

func (s Status) writeScaled(w *strings.Builder, kind string, all []Scaled, style printer.Style) {
	head := []string{kind, "DESIRED", "UPDATED", "READY", "AVAILABLE", "UPDATING", "FAILED", "DELETING"}
	if kind == "DEPLOYMENT" {
		head = append(head, "STRATEGY")
	}
	head = append(head, "STATE")
	var rows [][]string
	var namespaces []string
	for _, x := range all {
		failed := fmt.Sprint(x.Failed)
		if x.Failed > 0 {
			failed = style.Red(failed)
		}
		row := []string{x.Name, fmt.Sprint(x.Desired), fmt.Sprint(x.Updated), fmt.Sprint(x.Ready), fmt.Sprint(x.Available),
			fmt.Sprint(x.Updating), failed, fmt.Sprint(x.Deleting)}
		if x.Strategy != "" {
			row = append(row, x.Strategy)
		}
		state := paint(x.Rollout, style)
		if more := printer.Sanitize(x.Explanation()); more != "" {
			state += ": " + more
		}
		rows, namespaces = append(rows, append(row, state)), append(namespaces, x.Namespace)
	}
	s.writeTable(w, head, rows, namespaces)
}

// specificReason returns the reason if it is more specific than the state, or "".
func specificReason(x Scaled) string {
	if x.Rollout == string(rollout.StateFailed) || x.Rollout == "ReplicaFailure" {
		return x.Reason
	}
	return ""
}

func paint(state string, style printer.Style) string {
	switch ToneOf(state) {
	case Good:
		return style.Green(state)
	case Bad:
		return style.Red(state)
	case Warn, Moving:
		return style.Warn(state)
	}
	return state
}

func (s Status) writeLoose(w *strings.Builder) {
	var rows [][]string
	var namespaces []string
	for _, m := range s.Loose {
		note := ""
		if m.PreservedUntil != "" {
			note = "preserved until " + printer.Sanitize(m.PreservedUntil)
		}
		rows, namespaces = append(rows, []string{m.Name, string(m.Phase), note}), append(namespaces, m.Namespace)
	}
	s.writeTable(w, []string{"MACHINE WITHOUT SET", "PHASE", "NOTE"}, rows, namespaces)
}

func (s Status) writeChecks(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, c := range s.HealthChecks {
		note := ""
		if c.Reason != "" {
			note = style.Red(c.Reason) + ": " + c.Explanation
			if c.Since != nil {
				note = style.Red(c.Reason) + " for " + printer.Age(s.Now, *c.Since) + ": " + c.Explanation
			}
		} else if len(c.Unhealthy) > 0 {
			note = style.Warn("unhealthy") + ": " + why.JoinFirst(c.Unhealthy, 3)
		}
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Machines), fmt.Sprint(c.Healthy),
			fmt.Sprint(c.RemediationsAllowed), note})
		namespaces = append(namespaces, c.Namespace)
	}
	s.writeTable(w, []string{"HEALTH CHECK", "MACHINES", "HEALTHY", "MAY FAIL", "NOTE"}, rows, namespaces)
}

func (s Status) writeFreezes(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, f := range s.Freezes {
		age := ""
		if f.Since != nil {
			age = printer.Age(s.Now, *f.Since)
		}
		message := cmp.Or(printer.Sanitize(f.Message), f.Explanation)
		rows, namespaces = append(rows, []string{f.Object, style.Red(f.Reason), age, message}), append(namespaces,
			f.Namespace)
	}
	s.writeTable(w, []string{"FROZEN", "REASON", "FOR", "MESSAGE"}, rows, namespaces)
}

func (s Status) writeSources(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, x := range s.Sources {
		age := ""
		if x.Since != nil {
			age = printer.Age(s.Now, *x.Since)
		}
		reason := style.Red(x.Reason)
		if x.Reason == reasonDeleting {
			reason = style.Warn(x.Reason)
		}
		rows, namespaces = append(rows, []string{x.Object, reason, age, printer.Sanitize(x.Explanation)}), append(namespaces,
			x.Namespace)
	}
	s.writeTable(w, []string{"CLASS OR SECRET", "REASON", "AGE", "MESSAGE"}, rows, namespaces)
}

func (s Status) writeEdited(w *strings.Builder) {
	var rows [][]string
	var namespaces []string
	for _, x := range s.Edited {
		rows = append(rows, []string{x.Name, x.Field, printer.Shorten(printer.Sanitize(x.Is), 40),
			printer.Shorten(printer.Sanitize(x.Set), 40)})
		namespaces = append(namespaces, x.Namespace)
	}
	s.writeTable(w, []string{"EDITED MACHINE", "FIELD", "VALUE", "VALUE IN TEMPLATE"}, rows, namespaces)
}

// writeWaiting writes the table of waiting machines. A row may span several namespaces, so the names include the
// namespace.
func (s Status) writeWaiting(w *strings.Builder, style printer.Style) {
	if len(s.Waiting) == 0 {
		return
	}
	rows := make([][]string, 0, len(s.Waiting))
	for _, g := range s.Waiting {
		age := ""
		if g.Oldest != nil {
			age = printer.Age(s.Now, *g.Oldest)
		}
		reason := printer.Sanitize(g.Reason)
		rows = append(rows, []string{style.Warn(reason), fmt.Sprint(g.Count), age, why.JoinFirst(g.Machines, 1),
			g.Explanation})
	}
	if w.Len() > 0 {
		w.WriteString("\n")
	}
	_ = printer.Table(w, []string{"WAITING FOR", "MACHINES", "OLDEST", "NAMES", "MEANING"}, rows)
}

const maxFailures = 5

func (s Status) writeRecentFailures(w *strings.Builder, style printer.Style) {
	shown := s.RecentFailures
	if !style.AllColumns {
		shown = why.RecentFailures(shown, s.Now)
		shown = shown[:min(len(shown), maxFailures)]
	}
	var rows [][]string
	var namespaces []string
	for _, f := range shown {
		age := ""
		if f.Since != nil {
			age = printer.Age(s.Now, *f.Since)
		}
		rows = append(rows, []string{printer.Sanitize(f.Machine), f.Deployment, style.Warn(printer.Sanitize(f.Reason)), age,
			printer.Sanitize(f.Message)})
		namespaces = append(namespaces, f.Namespace)
	}
	s.writeTable(w, []string{"RECENT FAILURE", "DEPLOYMENT", "REASON", "AGE", "MESSAGE"}, rows, namespaces)
}

func (s Status) writeProcesses(w *strings.Builder, style printer.Style) {
	lines := []string{}
	for _, p := range s.Processes {
		what, more := p.Trouble(s.Now)
		switch {
		case what == "":
		case p.IsKnown:
			lines = append(lines, style.Red(what)+more)
		default:
			lines = append(lines, style.Warn(what)+more)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func (s Status) writeSummary(w *strings.Builder, style printer.Style) {
	machines := wording.Count(s.Machines, "machine")
	switch waiting := s.Machines - s.Settled; {
	case s.Machines == 0:
	case waiting == 0 && len(s.Sources)+len(s.Edited)+len(s.Orphans) > 0:
		fmt.Fprintf(w, "\n%s, none waiting. The tables above list other problems.\n", machines)
	case waiting == 0 && s.ToReplace > 0:
		fmt.Fprintf(w, "\n%s, none waiting, %d still to be replaced.\n", machines, s.ToReplace)
	case waiting == 0 && s.changing():
		fmt.Fprintf(w, "\n%s, none waiting. The tables above show what still changes.\n", machines)
	case waiting == 0:
		fmt.Fprintf(w, "\n%s\n", style.Green(machines+", none waiting."))
	default:
		g := s.Waiting[0]
		name, namespace := g.Machines[0], ""
		if before, after, qualified := strings.Cut(name, "/"); qualified {
			name, namespace = after, " -n "+before
		} else if s.Namespace != "" {
			namespace = " -n " + s.Namespace
		}
		fmt.Fprintf(w, "\n%s, %d waiting. To see why, run machinist why machine/%s%s\n", machines, waiting, name, namespace)
	}
}

// changing reports whether any deployment or set does not match its specification. A budget or a pause can prevent the
// required changes, so the result can be true although no machine waits.
func (s Status) changing() bool {
	return slices.ContainsFunc(s.Deployments, func(d Scaled) bool { return d.Rollout != string(rollout.StateComplete) }) ||
		slices.ContainsFunc(s.Sets, func(set Scaled) bool { return set.Rollout != asDeclared })
}
