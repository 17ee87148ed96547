package fleet

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/health/orphans/ledger"
)

func inAllNamespaces(f Facts) Facts {
	f.Namespace = ""
	return f
}

func TestStatusFitsOneScreen(t *testing.T) {
	plain, colour := printer.Style{ASCII: true}, printer.Style{Colour: true}
	for name, test := range map[string]struct {
		facts Facts
		style printer.Style
	}{
		"healthy":        {healthy(), plain},
		"troubled":       {troubled(), plain},
		"broken-sources": {withBrokenSources(), plain},
		"colour":         {troubled(), colour},
		"wide":           {troubled(), printer.Style{ASCII: true, AllColumns: true}},
		"all-namespaces": {inAllNamespaces(troubled()), plain},
		"empty":          {Facts{Now: now, Namespace: "prod"}, plain},
		"only-one":       {ForDeployment(troubled(), "api"), plain},
		"placed":         {placed(), plain},
		"placed-wide":    {placed(), printer.Style{ASCII: true, AllColumns: true}},
		"placed-only":    {ForDeployment(placed(), "web"), plain},
	} {
		golden(t, "status-"+name, func(w *strings.Builder) error { return StatusOf(test.facts).Text(w, test.style) })
	}
}

func TestStatusOfHealthyFleetIsShort(t *testing.T) {
	var out strings.Builder
	if err := StatusOf(healthy()).Text(&out, printer.Style{}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines > 4 {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
}

func TestStatusReportsPendingReplacements(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"healthy": {func(*Facts) {}, " machines, none waiting."},
		"one machine must be replaced": {func(f *Facts) {
			f.Machines[0].Annotations = map[string]string{v1beta1.AnnotationReplace: ""}
		}, " machines, none waiting, 1 still to be replaced."},
		"a budget delays the rollout": {func(f *Facts) {
			f.Deployments[0].Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRollingOut,
				Status: metav1.ConditionTrue, Reason: v1beta1.ReasonWaitingForDisruptionBudget, ObservedGeneration: 1}}
		}, " machines, none waiting. The tables above show what still changes."},
	} {
		f, out := healthy(), strings.Builder{}
		test.change(&f)
		if err := StatusOf(f).Text(&out, printer.Style{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: no %q in\n%s", name, test.want, out.String())
		}
	}
}

func TestRolloutIsNotCompleteWithoutAllMachines(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"healthy":     {func(*Facts) {}, "Complete"},
		"one missing": {func(f *Facts) { f.Machines = f.Machines[1:] }, "Scaling"},
		"one not ready": {func(f *Facts) {
			f.Machines[0] = machine("web-new", "x", notLaunched(v1beta1.ReasonInvalidConfiguration, time.Minute))
		}, "NotReady"},
		"one starting": {func(f *Facts) {
			f.Machines[0] = machine("web-new", "x", notLaunched(v1beta1.ReasonProvisioning, time.Minute))
		}, "Scaling"},
		"one being deleted": {func(f *Facts) {
			f.Machines = append(f.Machines, machine("web-old", "x", deleted(v1beta1.ReasonDraining)))
		}, "Scaling"},
		"unobserved": {func(f *Facts) { f.Deployments[0].Generation = 2 }, "Unobserved"},
	} {
		f := healthy()
		test.change(&f)
		if got := StatusOf(f).Deployments[0].Rollout; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestTree(t *testing.T) {
	for name, test := range map[string]struct {
		facts      Facts
		kind, name string
		style      printer.Style
	}{
		"plain":          {troubled(), "", "", printer.Style{ASCII: true}},
		"boxes":          {troubled(), "", "", printer.Style{AllColumns: true}},
		"colour":         {troubled(), "", "", printer.Style{Colour: true}},
		"all-namespaces": {inAllNamespaces(healthy()), "", "", printer.Style{}},
		"deployment":     {troubled(), "MachineDeployment", "web", printer.Style{}},
		"machine":        {troubled(), "Machine", "api-new-1", printer.Style{}},
		"empty":          {Facts{Now: now, Namespace: "prod"}, "", "", printer.Style{}},
		"placed":         {placed(), "MachineDeployment", "web", printer.Style{ASCII: true}},
	} {
		tree, exists := TreeOf(test.facts, test.kind, test.name)
		if !exists {
			t.Errorf("%s: the object was not found", name)
			continue
		}
		golden(t, "tree-"+name, func(w *strings.Builder) error { return tree.Text(w, test.style) })
	}
	if _, exists := TreeOf(troubled(), "MachineSet", "web"); exists {
		t.Error("found a set by the name of a deployment")
	}
}

func TestOrphans(t *testing.T) {
	launched := now.Add(-2 * time.Hour)
	entry := func(id, machine string, v orphans.Outcome) ledger.Entry {
		return ledger.Entry{ProviderID: id, Machine: machine, UID: "u", Source: "prod/small",
			FirstSeen: now.Add(-40 * time.Minute), Launched: &launched, Outcome: string(v)}
	}
	page := ledger.Page{Provider: "sim", WriteTime: now.Add(-10 * time.Minute), Period: 1800, Total: 9,
		Unlisted: []ledger.FailedList{{Source: "prod/dark", Why: "Unavailable"}}}
	for _, v := range []orphans.Outcome{orphans.OutcomeDelete, orphans.OutcomeReport, orphans.OutcomeDuplicate, orphans.OutcomeUnconfirmed,
		orphans.OutcomeTooYoung, orphans.OutcomeAfterOutage, orphans.OutcomeOverLimit} {
		page.Entries = append(page.Entries, entry("sim://"+string(v), "prod/m", v))
	}
	page.Entries = append(page.Entries, entry("sim://x\x1b[2J", "other/m", orphans.OutcomeDelete))
	page.Entries[6].Launched = nil
	parts := entry("", "prod/m", orphans.OutcomeUnconfirmed)
	parts.Parts = []string{"/resourcegroups/machines/networkinterfaces/m-nic-0", "/resourcegroups/machines/disks/m-os"}
	page.Entries = append(page.Entries, parts)
	processes := map[string]why.Process{"sim": running("machinist-provider-sim")}
	gone := now.Add(-time.Hour)
	off := map[string]why.Process{"azure": {Name: "machinist-provider-azure", IsKnown: true, LastRenewal: &gone}}
	for name, o := range map[string]Orphans{
		"none": OrphansOf(now, "prod", nil, nil),
		"in-order": OrphansOf(now, "prod", []ledger.Page{{Provider: "sim", Period: 1800, WriteTime: now.Add(-72 * time.Hour)}},
			processes),
		"all":       OrphansOf(now, "", []ledger.Page{page}, processes),
		"namespace": OrphansOf(now, "prod", []ledger.Page{page}, processes),
		"stopped": OrphansOf(now, "",
			[]ledger.Page{{Provider: "azure", Period: 1800, WriteTime: now, Stopped: "the cluster id is another one"}}, off),
	} {
		golden(t, "orphans-"+name, func(w *strings.Builder) error { return o.Text(w, printer.Style{}) })
	}
}

// Users rely on these field names.
func TestJSON(t *testing.T) {
	tree, _ := TreeOf(healthy(), "", "")
	golden(t, "json", func(w *strings.Builder) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(StatusOf(troubled())); err != nil {
			return err
		}
		if err := encoder.Encode(tree); err != nil {
			return err
		}
		return encoder.Encode(OrphansOf(now, "", []ledger.Page{{Provider: "sim", Period: 1800, WriteTime: now}},
			map[string]why.Process{"sim": running("machinist-provider-sim")}))
	})
}

func TestMachineWithoutItsOwnerIsShown(t *testing.T) {
	f := healthy()
	f.Sets = nil
	if got := StatusOf(f).Loose; len(got) != 3 {
		t.Errorf("got %+v, want all three machines", got)
	}
	f = healthy()
	f.Deployments = nil
	if got := StatusOf(f).Sets; len(got) != 2 {
		t.Errorf("got %+v, want both sets", got)
	}
}
