package ui

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	zonesPerPage    = 10
	zoneRowsPerPage = 30
)

// zonesBody shows how many machines each deployment has in each zone.
type zonesBody struct {
	Query  string
	Zones  []string
	Rows   []zoneRow
	Paging Paging
	// Columns are the zones on this page.
	Columns       Paging
	AllNamespaces bool
}

type zoneRow struct {
	Namespace, Name string
	// Cells has one entry for each zone on the page. Total is the sum over all zones.
	Cells []zoneCount
	Total zoneCount
}

func zonesPage(r *request) (*page, error) {
	s := r.snapshot
	b := zonesBody{Query: strings.TrimSpace(r.query.Get("q")), AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	number, _ := strconv.Atoi(r.query.Get("page"))
	column, _ := strconv.Atoi(r.query.Get("zones"))
	at := func(rows, columns int) string {
		return withQuery("/zones", values("q", b.Query, "page", ordinal(rows), "zones", ordinal(columns)))
	}
	b.Zones, b.Columns = paginate(s.Zones, column, zonesPerPage, func(page int) string { return at(number, page) })
	var rows []fleet.Scaled
	for _, d := range s.Status.Deployments {
		if b.Query == "" || contains(d.Namespace+"/"+d.Name, b.Query) {
			rows = append(rows, d)
		}
	}
	shown, paging := paginate(rows, number, zoneRowsPerPage, func(page int) string { return at(page, column) })
	b.Paging = paging
	counts := map[types.NamespacedName]map[string]*zoneCount{}
	for i := range s.Machines {
		m := &s.Machines[i]
		key := types.NamespacedName{Namespace: m.Namespace, Name: m.Deployment}
		if counts[key] == nil {
			counts[key] = map[string]*zoneCount{}
		}
		c := counts[key][m.Zone]
		if c == nil {
			c = &zoneCount{Zone: m.Zone}
			counts[key][m.Zone] = c
		}
		c.Machines++
		if fleet.ToneOf(m.State) == fleet.Bad {
			c.Broken++
		}
	}
	for _, d := range shown {
		row := zoneRow{Namespace: d.Namespace, Name: d.Name}
		f := Filter{Deployment: d.Namespace + "/" + d.Name}
		row.Total.URL = f.URL()
		of := counts[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}]
		for _, c := range of {
			row.Total.Machines += c.Machines
			row.Total.Broken += c.Broken
		}
		for _, zone := range b.Zones {
			cell := zoneCount{Zone: zone}
			if c := of[zone]; c != nil {
				cell = *c
			}
			if f.Zone = zone; zone == "" {
				f.Zone = noZone
			}
			cell.URL = f.URL()
			row.Cells = append(row.Cells, cell)
		}
		b.Rows = append(b.Rows, row)
	}
	return &page{title: "Zones", template: "zones", body: b,
		summary: fmt.Sprintf("%s in %s", wording.Count(len(s.Machines), "machine"), wording.Count(len(s.Zones), "zone"))}, nil
}

// ordinal returns the value of the URL parameter for a page number. For the first page, the value is empty, so that the
// URL omits the parameter.
func ordinal(page int) string {
	if page <= 1 {
		return ""
	}
	return strconv.Itoa(page)
}
