package ui

import (
	"fmt"
	"maps"
	"slices"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

// machinesPerPage is the number of rows on a page of machines. It keeps pages small for large fleets.
const machinesPerPage = 100

// maxChoices is the maximum length of a list of choices. If there are more values, the user types a name.
const maxChoices = 100

// machinesBody is the body of the page of machines.
type machinesBody struct {
	Filter   Filter
	Machines []*fleet.Machine
	Paging   Paging
	// Deployments, Zones, States and Namespaces are the choices of the filters. A list that is too long is empty.
	Deployments, Zones, States, Namespaces []string
	// NoZone is true if there are machines without a zone.
	NoZone bool
	// AllNamespaces is true if the page may list several namespaces.
	AllNamespaces bool
}

func machinesPage(r *request) (*page, error) {
	f := filterOf(r.query)
	chosen := f.choose(r.snapshot.Machines)
	b := machinesBody{Filter: f, AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	b.Machines, b.Paging = paginate(chosen, f.Page, machinesPerPage, f.on)
	b.Deployments, b.Zones, b.States, b.Namespaces, b.NoZone = choices(r.snapshot, b.AllNamespaces)
	waiting := 0
	for _, m := range chosen {
		if !m.Settled() {
			waiting++
		}
	}
	return &page{title: "Machines", template: "machines", body: b,
		summary: fmt.Sprintf("%s, %d waiting", wording.Count(len(chosen), "machine"), waiting)}, nil
}

// choices returns the choices of the filters.
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
		if len(values) > maxChoices {
			return nil
		}
		return values
	}
	return bounded(slices.Sorted(maps.Keys(names))), bounded(zones), slices.Sorted(maps.Keys(phases)),
		bounded(slices.Sorted(maps.Keys(spaces))), noZone
}
