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

// Text writes it for people: a line for each thing, and nothing about what is as it should be but the fleet itself.
func (s Status) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(s.Deployments)+len(s.Sets)+len(s.Loose) == 0 {
		where := "in any namespace"
		if s.Namespace != "" {
			where = "in namespace " + s.Namespace + " (-A looks in all)"
		}
		fmt.Fprintf(out, "There are no machines, sets or deployments %s.\n", where)
	}
	s.scaled(out, "DEPLOYMENT", s.Deployments, style)
	s.scaled(out, "SET WITHOUT DEPLOYMENT", s.Sets, style)
	s.loose(out)
	s.checks(out, style)
	s.budgets(out, style)
	s.freezes(out, style)
	s.sources(out, style)
	s.orphans(out)
	s.edited(out)
	s.waiting(out, style)
	s.recentFailures(out, style)
	s.processes(out, style)
	s.sum(out, style)
	for _, u := range s.Unread {
		fmt.Fprintf(out, "%s\n", style.Faint(printer.Clean(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// rows writes a table, with the namespace in front where there may be several.
func (s Status) rows(w *strings.Builder, head []string, rows [][]string, namespaces []string) {
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

func (s Status) scaled(w *strings.Builder, what string, all []Scaled, style printer.Style) {
	head := []string{what, "DESIRED", "UPDATED", "READY", "AVAILABLE", "UPDATING", "FAILED", "DELETING"}
	if what == "DEPLOYMENT" {
		head = append(head, "STRATEGY")
	}
	head = append(head, "STATE")
	var rows [][]string
	var namespaces []string
	for _, x := range all {
		failed := fmt.Sprint(x.Failed)
		if x.Failed > 0 {
			failed = style.Bad(failed)
		}
		row := []string{x.Name, fmt.Sprint(x.Desired), fmt.Sprint(x.Updated), fmt.Sprint(x.Ready), fmt.Sprint(x.Available),
			fmt.Sprint(x.Updating), failed, fmt.Sprint(x.Deleting)}
		if x.Strategy != "" {
			row = append(row, x.Strategy)
		}
		state := paint(x.Rollout, style)
		if more := printer.Clean(x.Because()); more != "" {
			state += ": " + more
		}
		rows, namespaces = append(rows, append(row, state)), append(namespaces, x.Namespace)
	}
	s.rows(w, head, rows, namespaces)
}

// because is the reason, where it says more than the state.
func because(x Scaled) string {
	if x.Rollout == string(rollout.Failed) || x.Rollout == "ReplicaFailure" {
		return x.Reason
	}
	return ""
}

// paint colours a state.
func paint(state string, style printer.Style) string {
	switch ToneOf(state) {
	case Good:
		return style.Good(state)
	case Bad:
		return style.Bad(state)
	case Warn, Moving:
		return style.Warn(state)
	}
	return state
}

func (s Status) loose(w *strings.Builder) {
	var rows [][]string
	var namespaces []string
	for _, m := range s.Loose {
		note := ""
		if m.PreservedUntil != "" {
			note = "preserved until " + printer.Clean(m.PreservedUntil)
		}
		rows, namespaces = append(rows, []string{m.Name, string(m.Phase), note}), append(namespaces, m.Namespace)
	}
	s.rows(w, []string{"MACHINE WITHOUT SET", "PHASE", "NOTE"}, rows, namespaces)
}

func (s Status) checks(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, c := range s.HealthChecks {
		note := ""
		if c.Reason != "" {
			note = style.Bad(c.Reason) + ": " + c.Explanation
			if c.Since != nil {
				note = style.Bad(c.Reason) + " for " + printer.Age(s.Now, *c.Since) + ": " + c.Explanation
			}
		} else if len(c.Unhealthy) > 0 {
			note = style.Warn("unhealthy") + ": " + why.Few(c.Unhealthy, 3)
		}
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Machines), fmt.Sprint(c.Healthy),
			fmt.Sprint(c.RemediationsAllowed), note})
		namespaces = append(namespaces, c.Namespace)
	}
	s.rows(w, []string{"HEALTH CHECK", "MACHINES", "HEALTHY", "MAY FAIL", "NOTE"}, rows, namespaces)
}

func (s Status) freezes(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, f := range s.Freezes {
		age := ""
		if f.Since != nil {
			age = printer.Age(s.Now, *f.Since)
		}
		message := cmp.Or(printer.Clean(f.Message), f.Explanation)
		rows, namespaces = append(rows, []string{f.Object, style.Bad(f.Reason), age, message}), append(namespaces,
			f.Namespace)
	}
	s.rows(w, []string{"FROZEN", "REASON", "FOR", "WHY"}, rows, namespaces)
}

func (s Status) sources(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	for _, x := range s.Sources {
		age := ""
		if x.Since != nil {
			age = printer.Age(s.Now, *x.Since)
		}
		reason := style.Bad(x.Reason)
		if x.Reason == deleting {
			reason = style.Warn(x.Reason)
		}
		rows, namespaces = append(rows, []string{x.Object, reason, age, printer.Clean(x.Explanation)}), append(namespaces,
			x.Namespace)
	}
	s.rows(w, []string{"CLASS OR SECRET", "REASON", "AGE", "MESSAGE"}, rows, namespaces)
}

func (s Status) edited(w *strings.Builder) {
	var rows [][]string
	var namespaces []string
	for _, x := range s.Edited {
		rows = append(rows, []string{x.Name, x.Field, printer.Fit(printer.Clean(x.Is), 40),
			printer.Fit(printer.Clean(x.Set), 40)})
		namespaces = append(namespaces, x.Namespace)
	}
	s.rows(w, []string{"MACHINE EDITED BY HAND", "FIELD", "VALUE", "IN ITS SET"}, rows, namespaces)
}

// waiting has names of machines that carry their namespace where there may be several.
func (s Status) waiting(w *strings.Builder, style printer.Style) {
	if len(s.Waiting) == 0 {
		return
	}
	rows := make([][]string, 0, len(s.Waiting))
	for _, g := range s.Waiting {
		age := ""
		if g.Oldest != nil {
			age = printer.Age(s.Now, *g.Oldest)
		}
		reason := printer.Clean(g.Reason)
		rows = append(rows, []string{style.Warn(reason), fmt.Sprint(g.Count), age, why.Few(g.Machines, 1), g.Explanation})
	}
	if w.Len() > 0 {
		w.WriteString("\n")
	}
	_ = printer.Table(w, []string{"WAITING FOR", "MACHINES", "OLDEST", "WHICH", "MEANS"}, rows)
}

// mostFailures is how many recent failures fit on the screen.
const mostFailures = 5

func (s Status) recentFailures(w *strings.Builder, style printer.Style) {
	shown := s.RecentFailures
	if !style.Wide {
		shown = why.Lately(shown, s.Now)
		shown = shown[:min(len(shown), mostFailures)]
	}
	var rows [][]string
	var namespaces []string
	for _, f := range shown {
		age := ""
		if f.Since != nil {
			age = printer.Age(s.Now, *f.Since)
		}
		rows = append(rows, []string{printer.Clean(f.Machine), f.Deployment, style.Warn(printer.Clean(f.Reason)), age,
			printer.Clean(f.Message)})
		namespaces = append(namespaces, f.Namespace)
	}
	s.rows(w, []string{"RECENT FAILURE", "DEPLOYMENT", "REASON", "AGE", "MESSAGE"}, rows, namespaces)
}

func (s Status) processes(w *strings.Builder, style printer.Style) {
	lines := []string{}
	for _, p := range s.Processes {
		what, more := p.Trouble(s.Now)
		switch {
		case what == "":
		case p.Known:
			lines = append(lines, style.Bad(what)+more)
		default:
			lines = append(lines, style.Warn(what)+more)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func (s Status) sum(w *strings.Builder, style printer.Style) {
	switch waiting := s.Machines - s.Settled; {
	case s.Machines == 0:
	case waiting == 0 && len(s.Sources)+len(s.Edited)+len(s.Orphans) > 0:
		fmt.Fprintf(w, "\n%s, all settled; see above what is wrong anyway.\n", wording.Count(s.Machines, "machine"))
	case waiting == 0 && s.ToReplace > 0:
		fmt.Fprintf(w, "\n%s, all settled, %d still to be replaced.\n", wording.Count(s.Machines, "machine"), s.ToReplace)
	case waiting == 0 && s.changing():
		fmt.Fprintf(w, "\n%s, all settled; see above what is still to be changed.\n", wording.Count(s.Machines, "machine"))
	case waiting == 0:
		fmt.Fprintf(w, "\n%s\n", style.Good(wording.Count(s.Machines, "machine")+", all settled."))
	default:
		g := s.Waiting[0]
		name, namespace := g.Machines[0], ""
		if before, after, qualified := strings.Cut(name, "/"); qualified {
			name, namespace = after, " -n "+before
		} else if s.Namespace != "" {
			namespace = " -n " + s.Namespace
		}
		fmt.Fprintf(w, "\n%s, %d not settled. machinist why machine/%s%s says more.\n", wording.Count(s.Machines, "machine"),
			waiting, name, namespace)
	}
}

// changing reports whether a deployment or set is not as it is declared, although its machines wait for nothing
// themselves: a budget may hold their replacement back, or a pause.
func (s Status) changing() bool {
	return slices.ContainsFunc(s.Deployments, func(d Scaled) bool { return d.Rollout != string(rollout.Complete) }) ||
		slices.ContainsFunc(s.Sets, func(set Scaled) bool { return set.Rollout != asDeclared })
}
