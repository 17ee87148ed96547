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

// Orphans is a list of instances without a Machine, as the provider processes report them.
type Orphans struct {
	// Now is the time when the reports were read.
	Now time.Time `json:"now"`
	// Namespace is the namespace of the instances' former machines. Empty means all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Reports has one report for each provider process, sorted by provider.
	Reports []OrphanReport `json:"reports"`
	// InOtherNamespaces holds the number of instances that are hidden because their former machines were in other
	// namespaces.
	InOtherNamespaces int `json:"elsewhere"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// OrphanReport is the report of one provider process.
type OrphanReport struct {
	ledger.Page
	// OmittedCount is the number of instances that are missing in Entries because the length of a report is limited.
	// The number includes the instances of all namespaces.
	OmittedCount int `json:"undescribed,omitempty"`
	// Process describes the state of the provider process that writes the report.
	Process why.Process `json:"process"`
}

// OrphansOf computes the view from the reports. For each report, the map contains the state of the provider process
// under the report's ledger.Key.
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
		o.InOtherNamespaces += before - len(page.Entries)
		o.Reports = append(o.Reports, OrphanReport{page, undescribed, processes[ledger.Key(page.Provider, page.Namespace)]})
	}
	slices.SortFunc(o.Reports, func(a, b OrphanReport) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Page.Namespace, b.Page.Namespace))
	})
	return o
}

// withForceDeleted adds the instances of force-deleted Machines, because the instances may still exist. Instances that
// a check has already found are skipped.
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

// Outcome explains the result of the latest check for one instance. The period is the time between two checks.
func Outcome(outcome string, period time.Duration) string {
	switch orphans.Outcome(outcome) {
	case orphans.OutcomeDelete:
		return "being removed"
	case orphans.OutcomeReport:
		return "kept, because of --orphan-action=report"
	case orphans.OutcomeDuplicate:
		return "kept, because its machine exists and has another instance"
	case orphans.OutcomeUnconfirmed:
		return "found once; the next check, within " + duration.HumanDuration(period) + ", decides"
	case orphans.OutcomeTooYoung:
		return "kept for now, because it is younger than --orphan-min-age"
	case orphans.OutcomeAfterOutage:
		return "kept for now, because a cluster was unreachable recently"
	case orphans.OutcomeMostOrphaned:
		return "kept until an administrator confirms the removal, because most instances lost their machines at once (see the condition OrphanRemovalBlocked of the class)"
	case orphans.OutcomeNodeReady:
		return "kept until an administrator confirms the removal, because its Node is Ready (see the condition OrphanRemovalBlocked of the class)"
	case orphans.OutcomeForceDeleted:
		return "may still exist, because its machine was force-deleted; the provider removes the instance when a check finds it"
	case orphans.OutcomeOverLimit:
		return "removed by a later check, because one check removes at most --orphan-max-deletes instances"
	}
	return outcome
}

// EntryName returns the provider ID of an entry. For an entry with only parts such as disks, it returns the short
// names of the parts.
func EntryName(e ledger.Entry) string {
	switch {
	case e.ProviderID == "" && e.Outcome == string(orphans.OutcomeForceDeleted):
		return "unknown"
	case e.ProviderID != "" || len(e.Parts) == 0:
		return e.ProviderID
	}
	short := make([]string, len(e.Parts))
	for i, part := range e.Parts {
		short[i] = part[strings.LastIndex(part, "/")+1:]
	}
	return "no instance, only " + strings.Join(short, " ")
}

// Text writes the view as text.
func (o Orphans) Text(w io.Writer, style printer.Style) error {
	out := &strings.Builder{}
	if len(o.Reports) == 0 {
		fmt.Fprintln(out, "No provider process has reported orphans yet.")
	}
	for i, r := range o.Reports {
		if i > 0 {
			out.WriteString("\n")
		}
		o.report(out, r, style)
	}
	if o.InOtherNamespaces > 0 {
		fmt.Fprintf(out, "\n%d more in other namespaces. To see them, use -A.\n", o.InOtherNamespaces)
	}
	for _, u := range o.ReadErrors {
		fmt.Fprintf(out, "%s\n", style.Dim(printer.Sanitize(u)))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Interval returns the time between two checks of the provider.
func (r OrphanReport) Interval() time.Duration { return time.Duration(r.Period) * time.Second }

// Checks says how often the provider process checks its cloud, or that it is not running.
func (r OrphanReport) Checks(now time.Time) string {
	every := "the process checks every " + duration.HumanDuration(r.Interval())
	switch {
	case r.Process.IsRunning:
		return every
	case r.Process.IsKnown && r.Process.LastRenewal != nil:
		return "the process has not been running for " + printer.Age(now, *r.Process.LastRenewal)
	case r.Process.IsKnown:
		return "the process is not running"
	}
	return every + " if it runs, but no Lease of it was found"
}

func (o Orphans) report(w *strings.Builder, r OrphanReport, style printer.Style) {
	period := r.Interval()
	name := "Provider " + printer.Sanitize(r.Provider)
	if r.Page.Namespace != "" {
		name += " of namespace " + printer.Sanitize(r.Page.Namespace)
	}
	listing := r.Checks(o.Now)
	if r.Process.IsKnown && !r.Process.IsRunning {
		listing = style.Red(listing)
	}
	found := style.Green("no orphans")
	if r.Total > 0 {
		found = style.Warn(fmt.Sprintf("%d found", r.Total))
	}
	if r.Stopped != "" {
		found = style.Red("checks are stopped: ") + printer.Sanitize(r.Stopped)
	}
	fmt.Fprintf(w, "%s: %s (%s; the last report is %s old).\n", style.Bold(name), found, listing,
		printer.Age(o.Now, r.WriteTime))
	for _, u := range r.Unlisted {
		fmt.Fprintf(w, "%s: the instances of %s could not be listed (%s).\n", style.Warn("Not checked"),
			printer.Sanitize(u.Source), printer.Sanitize(u.Why))
	}
	if len(r.Entries) > 0 {
		head := []string{"INSTANCE", "FORMER MACHINE", "FOUND BY", "FIRST SEEN", "CREATED", "STATUS"}
		rows := make([][]string, len(r.Entries))
		for i, e := range r.Entries {
			created := "unknown"
			if e.Launched != nil {
				created = printer.Age(o.Now, *e.Launched) + " ago"
			}
			rows[i] = []string{printer.Sanitize(EntryName(e)), printer.Sanitize(e.Machine), printer.Sanitize(e.Source),
				printer.Age(o.Now, e.FirstSeen) + " ago", created, Outcome(e.Outcome, period)}
		}
		_ = printer.Table(w, head, rows)
	}
	if r.OmittedCount > 0 {
		fmt.Fprintf(w, "Only the first %d instances are listed.\n", ledger.MostEntries)
	}
}
