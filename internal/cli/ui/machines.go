package ui

import (
	"fmt"
	"maps"
	"slices"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const machinesPerPage = 100

// maxChoices limits the choices in the select box of a filter. If there are more possible values, the page has a text
// field instead of the select box.
const maxChoices = 100

type machinesBody struct {
	Filter   Filter
	Machines []*fleet.Machine
	Paging   Paging
	// Deployments, Zones, States and Namespaces are the choices of the filters. If a filter has more than maxChoices
	// choices, its list is empty.
	Deployments, Zones, States, Namespaces []string
	// NoZone is true if some machines have no zone.
	NoZone        bool
	AllNamespaces bool
}

func machinesPage(r *request) (*page, error) {
	f := filterOf(r.query)
	chosen := f.choose(r.snapshot.Machines)
	b := machinesBody{Filter: f, AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	b.Machines, b.Paging = paginate(chosen, f.Page, machinesPerPage, f.pageURL)
	b.Deployments, b.Zones, b.States, b.Namespaces, b.NoZone = choices(r.snapshot, b.AllNamespaces)
	waiting := 0
	for _, m := range chosen {
		if !m.IsSettled() {
			waiting++
		}
	}
	return &page{title: "Machines", template: "machines", body: b,
		summary: fmt.Sprintf("%s, %d waiting", wording.Count(len(chosen), "machine"), waiting)}, nil
}

// choices returns the values that the user can select in each filter. If qualified is true, names of deployments
// include the namespace.
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
