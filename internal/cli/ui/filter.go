package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/internal/cli/fleet"
)

// Values of the URL parameter state in addition to the phases. An unsettled machine is not running, not up to date, or
// blocked by an obstacle. A broken machine failed or is unhealthy.
const (
	unsettledState = "unsettled"
	brokenState    = "broken"
)

const noZone = "-"

// Filter selects and sorts machines. The fields of Filter are URL parameters.
type Filter struct {
	// Query is a part of the name of the machine, its Node or its instance.
	Query string
	// Namespace, Deployment and Set are the names of the objects to which the machines must belong. Deployment may
	// include a namespace, such as prod/web.
	Namespace, Deployment, Set string
	// Zone is the zone of the instance, or "-" for machines without a zone.
	Zone string
	// State is a phase, or one of the values "unsettled" and "broken".
	State string
	// Sort is name, state, zone, node or age. A minus sign reverses the order.
	Sort string
	Page int
}

// filterOf parses URL parameters. Unknown parameters are ignored.
func filterOf(q url.Values) Filter {
	f := Filter{Query: strings.TrimSpace(q.Get("q")), Namespace: q.Get("namespace"), Deployment: q.Get("deployment"),
		Set: q.Get("set"), Zone: q.Get("zone"), State: q.Get("state"), Sort: q.Get("sort")}
	f.Page, _ = strconv.Atoi(q.Get("page"))
	if _, known := orders[strings.TrimPrefix(f.Sort, "-")]; !known {
		f.Sort = ""
	}
	return f
}

// values returns the URL parameters. Default values are omitted, so that each view has one URL.
func (f Filter) values() url.Values {
	v := url.Values{"q": {f.Query}, "namespace": {f.Namespace}, "deployment": {f.Deployment}, "set": {f.Set},
		"zone": {f.Zone}, "state": {f.State}, "sort": {f.Sort}}
	if f.Page > 1 {
		v.Set("page", strconv.Itoa(f.Page))
	}
	return v
}

// URL returns the URL that lists the selected machines.
func (f Filter) URL() string { return withQuery("/machines", f.values()) }

func (f Filter) pageURL(page int) string {
	f.Page = page
	return f.URL()
}

// SortURL returns the URL that sorts the list in the given order. If the list already has this order, the URL
// reverses it.
func (f Filter) SortURL(order string) string {
	if f.sorted() == order {
		order = "-" + order
	}
	f.Sort, f.Page = order, 0
	if order == "name" {
		f.Sort = ""
	}
	return f.URL()
}

// AriaSort returns the attribute aria-sort of a column.
func (f Filter) AriaSort(order string) string {
	switch f.sorted() {
	case order:
		return "ascending"
	case "-" + order:
		return "descending"
	}
	return "none"
}

func (f Filter) sorted() string { return cmp.Or(f.Sort, "name") }

// IsEmpty reports whether the filter is empty, so that all machines are selected.
func (f Filter) IsEmpty() bool {
	f.Sort, f.Page = "", 0
	return f == Filter{}
}

func (f Filter) matches(m *fleet.Machine) bool {
	if f.Namespace != "" && m.Namespace != f.Namespace || f.Set != "" && m.Set != f.Set {
		return false
	}
	if f.Deployment != "" {
		namespace, name, qualified := strings.Cut(f.Deployment, "/")
		if !qualified {
			namespace, name = m.Namespace, f.Deployment
		}
		if m.Deployment != name || m.Namespace != namespace {
			return false
		}
	}
	if f.Zone == noZone && m.Zone != "" || f.Zone != "" && f.Zone != noZone && m.Zone != f.Zone {
		return false
	}
	switch f.State {
	case "":
	case unsettledState:
		if m.IsSettled() {
			return false
		}
	case brokenState:
		if fleet.ToneOf(m.State) != fleet.Bad {
			return false
		}
	default:
		if m.State != f.State {
			return false
		}
	}
	return f.Query == "" || contains(m.Name, f.Query) || contains(m.Node, f.Query) || contains(m.ProviderID, f.Query)
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// orders are the comparison functions for Filter.Sort. Equal machines stay sorted by name.
var orders = map[string]func(a, b *fleet.Machine) int{
	"name": func(a, b *fleet.Machine) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	},
	"state": func(a, b *fleet.Machine) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.State, b.State))
	},
	"zone": func(a, b *fleet.Machine) int { return cmp.Compare(a.Zone, b.Zone) },
	"node": func(a, b *fleet.Machine) int { return cmp.Compare(a.Node, b.Node) },
	"age":  func(a, b *fleet.Machine) int { return b.Created.Compare(a.Created) },
}

func urgency(m *fleet.Machine) int {
	switch {
	case fleet.ToneOf(m.State) == fleet.Bad:
		return 0
	case !m.IsSettled():
		return 1
	}
	return 2
}

// choose returns the selected machines in the selected order. It does not change its argument.
func (f Filter) choose(all []fleet.Machine) []*fleet.Machine {
	chosen := make([]*fleet.Machine, 0, len(all))
	for i := range all {
		if f.matches(&all[i]) {
			chosen = append(chosen, &all[i])
		}
	}
	name, backwards := strings.CutPrefix(f.sorted(), "-")
	order := orders[name]
	slices.SortStableFunc(chosen, func(a, b *fleet.Machine) int {
		if backwards {
			return order(b, a)
		}
		return order(a, b)
	})
	return chosen
}
