package ui

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/rollout"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

const (
	// machinesOfDeployment limits the machines on the page. Broken and waiting machines come first.
	machinesOfDeployment = 40
	maxRevisions         = 20
	maxOptions           = 64
)

type deploymentBody struct {
	Deployment *v1beta1.MachineDeployment
	Scaled     fleet.Scaled
	Progress   rollout.Progress
	Bar        Bar
	Why        why.View
	Revisions  []revisionRow
	// HiddenRevisions is the number of hidden revisions.
	HiddenRevisions int
	// Options are the relevant options of the placement. HiddenOptions is the number of the other options.
	Options       []fleet.Option
	HiddenOptions int
	Zones         []zoneCount
	Failures      []failureRow
	Machines      []*fleet.Machine
	// All is the filter that selects the machines of the deployment. Total is the number of these machines.
	All   Filter
	Total int
}

type revisionRow struct {
	Number  int64
	Set     *v1beta1.MachineSet
	Current bool
	Bar     Bar
	// Class has the class of the revision, or the classes of its placement. Version comes from the template.
	Class, Version string
}

type zoneCount struct {
	Zone string
	// Machines is the number of machines in the zone. Broken is the number of machines that failed or are unhealthy.
	Machines, Broken int
	// URL lists these machines.
	URL string
}

func deploymentPage(r *request) (*page, error) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	s := r.snapshot
	d := s.deployments[key]
	if d == nil {
		return nil, notFound("The deployment %s does not exist in namespace %s, or you may not see it.", key.Name,
			key.Namespace)
	}
	view, err := r.server.options.Source.WhyDeployment(r.Context(), key)
	if err != nil {
		return nil, err
	}
	b := deploymentBody{Deployment: d, Bar: s.bars[key], Why: view, Progress: rollout.Judge(d, r.now),
		All: Filter{Deployment: key.Namespace + "/" + key.Name}}
	for _, scaled := range s.Status.Deployments {
		if scaled.Namespace == key.Namespace && scaled.Name == key.Name {
			b.Scaled = scaled
		}
	}
	for _, o := range b.Scaled.Placement {
		if o.IsRelevant() && len(b.Options) < maxOptions {
			b.Options = append(b.Options, o)
		}
	}
	b.HiddenOptions = len(b.Scaled.Placement) - len(b.Options)
	sets := s.inventory.Sets(d)
	current := fleet.CurrentSet(d, sets)
	for _, set := range sets {
		row := revisionRow{Number: machinedeployment.Revision(set), Set: set, Current: set == current, Bar: s.setBar(set),
			Version: set.Spec.Template.Spec.Version}
		class := ""
		if ref := set.Spec.Template.Spec.ClassRef; ref != nil {
			class = ref.Name
		}
		row.Class = rollout.ClassText(class, set.Spec.Placement.ClassNames(), false)
		b.Revisions = append(b.Revisions, row)
	}
	slices.SortFunc(b.Revisions, func(x, y revisionRow) int {
		return cmp.Or(cmp.Compare(y.Number, x.Number), cmp.Compare(x.Set.Name, y.Set.Name))
	})
	if b.HiddenRevisions = max(0, len(b.Revisions)-maxRevisions); b.HiddenRevisions > 0 {
		b.Revisions = b.Revisions[:maxRevisions]
	}
	b.All.Sort = "state"
	machines := b.All.choose(s.Machines)
	b.Total = len(machines)
	b.Zones = zonesOf(machines, b.All)
	b.Machines = machines[:min(len(machines), machinesOfDeployment)]
	for _, f := range why.FailuresOf(d) {
		b.Failures = append(b.Failures, failureRowOf(s, f))
	}
	return &page{title: "Deployment " + d.Name, template: "deployment", body: b,
		summary: fmt.Sprintf("%s: %s. %s.", d.Name, b.Scaled.Rollout, b.Bar.Words())}, nil
}

func zonesOf(machines []*fleet.Machine, f Filter) []zoneCount {
	counts := map[string]*zoneCount{}
	for _, m := range machines {
		c := counts[m.Zone]
		if c == nil {
			f.Zone, f.Sort = cmp.Or(m.Zone, noZone), ""
			c = &zoneCount{Zone: m.Zone, URL: f.URL()}
			counts[m.Zone] = c
		}
		c.Machines++
		if fleet.ToneOf(m.State) == fleet.Bad {
			c.Broken++
		}
	}
	var zones []zoneCount
	for _, c := range counts {
		zones = append(zones, *c)
	}
	slices.SortFunc(zones, func(a, b zoneCount) int { return cmp.Compare(a.Zone, b.Zone) })
	return zones
}
