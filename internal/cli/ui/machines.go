package ui

import (
	"fmt"
	"maps"
	"slices"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

// machinesPerPage is how many rows a page of machines has: a page stays light however large the fleet is.
const machinesPerPage = 100

// mostChoices is how many values a list to choose from offers. Of more, a name is typed.
const mostChoices = 100

// machinesBody is the page of machines.
type machinesBody struct {
	Filter   Filter
	Machines []*fleet.Machine
	Paging   Paging
	// Deployments, Zones, States and Namespaces are what may be chosen; a list that is too long is empty.
	Deployments, Zones, States, Namespaces []string
	// NoZone says that there are machines without a zone.
	NoZone bool
	// AllNamespaces says that machines of several namespaces may be listed.
	AllNamespaces bool
}

func machinesPage(r *request) (*page, error) {
	f := filterOf(r.query)
	chosen := f.choose(r.snapshot.Machines)
	b := machinesBody{Filter: f, AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	b.Machines, b.Paging = paginate(chosen, f.Page, machinesPerPage, f.on)
	b.Deployments, b.Zones, b.States, b.Namespaces, b.NoZone = choices(r.snapshot, b.AllNamespaces)
	unsettled := 0
	for _, m := range chosen {
		if !m.Settled() {
			unsettled++
		}
	}
	return &page{title: "Machines", template: "machines", body: b,
		summary: fmt.Sprintf("%s, %d not settled", wording.Count(len(chosen), "machine"), unsettled)}, nil
}

// choices are the values that filters offer.
func choices(s *Snapshot, qualified bool) (deployments, zones, states, namespaces []string, noZone bool) {
	names, phases, spaces := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for key := range s.deployments {
		name := key.Name
		if qualified {
			name = key.Namespace + "/" + key.Name
		}
		names[name] = true
	}
	for i := range s.Machines {
		phases[s.Machines[i].State], spaces[s.Machines[i].Namespace] = true, true
	}
	delete(phases, "")
	for _, zone := range s.Zones {
		if zone == "" {
			noZone = true
			continue
		}
		zones = append(zones, zone)
	}
	bounded := func(values []string) []string {
		if len(values) > mostChoices {
			return nil
		}
		return values
	}
	return bounded(slices.Sorted(maps.Keys(names))), bounded(zones), slices.Sorted(maps.Keys(phases)),
		bounded(slices.Sorted(maps.Keys(spaces))), noZone
}
