package ui

import (
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	treesPerPage = 20
	// leavesPerPage limits the machines on a page. Trees at the top of the page show their machines until this limit is
	// reached.
	leavesPerPage = 240
	leavesOfSet   = 60
)

// ownershipBody shows trees of deployments, sets, machines and Nodes.
type ownershipBody struct {
	Query         string
	Trees         []branch
	Paging        Paging
	AllNamespaces bool
}

type branch struct {
	fleet.Branch
	Branches []branch
	// Machines is the number of machines below the object. Hidden is the number of hidden direct children.
	Machines, Hidden int
	// Open is true for an expanded branch.
	Open bool
	// URL lists the machines of the object.
	URL string
}

func ownershipPage(r *request) (*page, error) {
	b := ownershipBody{Query: strings.TrimSpace(r.query.Get("q")),
		AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	tree := r.snapshot.tree()
	items := tree.Items
	if b.Query != "" {
		items = nil
		for _, item := range tree.Items {
			if found, ok := search(item, b.Query); ok {
				items = append(items, found)
			}
		}
	}
	number, _ := strconv.Atoi(r.query.Get("page"))
	shown, paging := paginate(items, number, treesPerPage, func(page int) string {
		return withQuery("/ownership", values("q", b.Query, "page", ordinal(page)))
	})
	b.Paging = paging
	left := leavesPerPage
	for _, item := range shown {
		b.Trees = append(b.Trees, draw(item, item.Name, &left))
	}
	return &page{title: "Ownership", template: "ownership", body: b,
		summary: fmt.Sprintf("%s shown", wording.Count(len(items), "tree"))}, nil
}

// search reduces a branch to the objects whose name or Node contains the query. The result includes the owners and the
// children of each found object. If no object is found, search returns false.
func search(b fleet.Branch, query string) (fleet.Branch, bool) {
	if contains(b.Name, query) || contains(b.Node, query) {
		return b, true
	}
	var found []fleet.Branch
	for _, child := range b.Children {
		if c, ok := search(child, query); ok {
			found = append(found, c)
		}
	}
	b.Children = found
	return b, len(found) > 0
}

// draw returns the visible part of a branch. left is how many machines the page can still show.
func draw(b fleet.Branch, deployment string, left *int) branch {
	drawn := branch{Branch: b, Open: *left > 0}
	drawn.Children = nil
	if b.Kind == "MachineSet" {
		drawn.URL = Filter{Namespace: b.Namespace, Set: b.Name}.URL()
	} else {
		drawn.URL = Filter{Deployment: b.Namespace + "/" + deployment}.URL()
	}
	leaves := 0
	for _, child := range b.Children {
		if child.Kind != "Machine" {
			c := draw(child, deployment, left)
			drawn.Machines += c.Machines
			drawn.Branches = append(drawn.Branches, c)
			continue
		}
		drawn.Machines++
		if leaves == leavesOfSet || *left == 0 {
			drawn.Hidden++
			continue
		}
		leaves++
		*left--
		drawn.Branches = append(drawn.Branches, branch{Branch: child})
	}
	return drawn
}
