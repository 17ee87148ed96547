package fleet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

// Orphans is what the providers' processes found at their clouds that has no Machine.
type Orphans struct {
	// Now is the time at which it was so.
	Now time.Time `json:"now"`
	// Namespace is the one whose machines' instances are shown, empty for all.
	Namespace string `json:"namespace,omitempty"`
	// Reports are one for each provider, in the order of their names.
	Reports []OrphanReport `json:"reports"`
	// Elsewhere is how many there are of other namespaces.
	Elsewhere int `json:"elsewhere"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// OrphanReport is what one provider's process reported.
type OrphanReport struct {
	ledger.Page
	// Undescribed is how many instances of all namespaces are counted in Total and not described in Entries.
	Undescribed int `json:"undescribed,omitempty"`
	// Process is the one that informs it.
	Process why.Process `json:"process"`
}

// OrphansOf makes the view of what was read: pages, and the process of each by the provider's name.
func OrphansOf(now time.Time, namespace string, pages []ledger.Page, processes map[string]why.Process) Orphans {
	o := Orphans{Now: now, Namespace: namespace, Reports: []OrphanReport{}}
	for _, page := range pages {
		undescribed := max(page.Total-ledger.MostEntries, 0)
		page = withForceDeleted(page)
		before := len(page.Entries)
		page.Entries = slices.DeleteFunc(slices.Clone(page.Entries), func(e ledger.Entry) bool {
			of, _, _ := strings.Cut(e.Machine, "/")
			return namespace != "" && of != namespace
		})
		o.Elsewhere += before - len(page.Entries)
		o.Reports = append(o.Reports, OrphanReport{page, undescribed, processes[ledger.Key(page.Provider, page.Namespace)]})
	}
	slices.SortFunc(o.Reports, func(a, b OrphanReport) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Page.Namespace, b.Page.Namespace))
	})
	return o
}

// withForceDeleted adds to the entries of a page what Machines that were deleted by force may have left and no check
// has found.
func withForceDeleted(page ledger.Page) ledger.Page {
	found := map[string]bool{}
	for _, e := range page.Entries {
		found[e.UID] = true
	}
	page.Entries = slices.Clone(page.Entries)
	for _, e := range page.ForceDeleted {
		if !found[e.UID] {
			page.Entries = append(page.Entries, e)
			page.Total++
		}
	}
	page.ForceDeleted = nil
	return page
}

// Outcome says what becomes of an instance, by the word that the provider's check has for it. period is the time
// between two checks.
func Outcome(word string, period time.Duration) string {
	switch orphans.Outcome(word) {
	case orphans.Delete:
		return "is being removed"
	case orphans.Report:
		return "is left where it is: --orphan-action=report"
	case orphans.Duplicate:
		return "is left where it is: its machine exists and has another instance"
	case orphans.Unconfirmed:
		return "was seen once; the next check, within " + duration.HumanDuration(period) + ", decides"
	case orphans.TooYoung:
		return "is younger than --orphan-min-age; a later check decides"
	case orphans.AfterOutage:
		return "is left alone for now: a cluster was unreachable not long ago"
	case orphans.MostOrphaned:
		return "is not removed until a person confirms: so many lost their machines at once (see the class's condition OrphanRemovalBlocked)"
	case orphans.NodeReady:
		return "is not removed until a person confirms: its Node is Ready (see the class's condition OrphanRemovalBlocked)"
	case orphans.ForceDeleted:
		return "may remain: its machine was deleted by force. It is removed when a check finds it"
	case orphans.OverLimit:
		return "will be removed, and waits: one check removes only so many (--orphan-max-deletes)"
	}
	return word
}

// EntryName is the provider ID or, of parts without an instance, the last words of their names.
func EntryName(e ledger.Entry) string {
	switch {
	case e.ProviderID == "" && e.Outcome == string(orphans.ForceDeleted):
		return "unknown"
	case e.ProviderID != "" || len(e.Parts) == 0:
		return e.ProviderID
	}
	short := make([]string, len(e.Parts))
	for i, part := range e.Parts {
		short[i] = part[strings.LastIndex(part, "/")+1:]
	}
	return "no instance; parts " + strings.Join(short, " ")
}

// Text writes it for people.
func (o Orphans) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(o.Reports) == 0 {
		fmt.Fprintln(out, "No provider's process has reported yet what it found at its cloud.")
	}
	for i, r := range o.Reports {
		if i > 0 {
			out.WriteString("\n")
		}
		o.report(out, r, style)
	}
	if o.Elsewhere > 0 {
		fmt.Fprintf(out, "\n%d more in other namespaces: -A shows them.\n", o.Elsewhere)
	}
	for _, u := range o.Unread {
		fmt.Fprintf(out, "%s\n", style.Faint(printer.Clean(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Interval is the time between two checks of the provider.
func (r OrphanReport) Interval() time.Duration { return time.Duration(r.Period) * time.Second }

// Checks says how often the provider's process checks its cloud, or that it does not.
func (r OrphanReport) Checks(now time.Time) string {
	every := "checks every " + duration.HumanDuration(r.Interval())
	switch {
	case r.Process.Running:
		return every
	case r.Process.Known && r.Process.Seen != nil:
		return "is not running, for " + printer.Age(now, *r.Process.Seen) + " now"
	case r.Process.Known:
		return "is not running"
	}
	return every + "; whether its process is running is not known"
}

func (o Orphans) report(w *strings.Builder, r OrphanReport, style printer.Style) {
	period := r.Interval()
	name := "Provider " + printer.Clean(r.Provider)
	if r.Page.Namespace != "" {
		name += " of namespace " + printer.Clean(r.Page.Namespace)
	}
	listing := r.Checks(o.Now)
	if r.Process.Known && !r.Process.Running {
		listing = style.Bad(listing)
	}
	found := style.Good("no orphans")
	if r.Total > 0 {
		found = style.Warn(fmt.Sprintf("%d found", r.Total))
	}
	if r.Stopped != "" {
		found = style.Bad("nothing is looked for: ") + printer.Clean(r.Stopped)
	}
	fmt.Fprintf(w, "%s: %s. It %s; the last report is %s old.\n", style.Strong(name), found, listing,
		printer.Age(o.Now, r.Written))
	for _, u := range r.Unlisted {
		fmt.Fprintf(w, "%s: the instances of %s could not be listed (%s).\n", style.Warn("Not checked"),
			printer.Clean(u.Source), printer.Clean(u.Why))
	}
	if len(r.Entries) > 0 {
		head := []string{"INSTANCE", "WAS OF MACHINE", "FOUND BY", "SEEN FIRST", "MADE", "WHAT OF IT"}
		rows := make([][]string, len(r.Entries))
		for i, e := range r.Entries {
			made := "unknown"
			if e.Launched != nil {
				made = printer.Age(o.Now, *e.Launched) + " ago"
			}
			rows[i] = []string{printer.Clean(EntryName(e)), printer.Clean(e.Machine), printer.Clean(e.Source),
				printer.Age(o.Now, e.FirstSeen) + " ago", made, Outcome(e.Outcome, period)}
		}
		_ = printer.Table(w, head, rows)
	}
	if r.Undescribed > 0 {
		fmt.Fprintf(w, "Only the first %d are reported one by one.\n", ledger.MostEntries)
	}
}
