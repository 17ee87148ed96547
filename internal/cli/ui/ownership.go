package ui

import (
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// treesPerPage is the maximum number of deployments on a page.
	treesPerPage = 20
	// leavesPerPage is the maximum number of machines on a page. If there are more, the page shows only the machines of
	// the first deployments.
	leavesPerPage = 240
	// leavesOfSet is the maximum number of machines that the page shows for one set.
	leavesOfSet = 60
)

// ownershipBody is the template data for the ownership page, which shows trees of deployments, sets, machines and
// Nodes.
type ownershipBody struct {
	Query  string
	Trees  []branch
	Paging Paging
	// AllNamespaces is true if the page shows objects of all namespaces.
	AllNamespaces bool
}

// branch is an object in the tree, with the objects below it that the page shows.
type branch struct {
	fleet.Branch
	Branches []branch
	// Machines is the number of machines below the object in the tree. Hidden is the number of the object's direct
	// children that the page does not show.
	Machines, Hidden int
	// Open is true if the page shows the branch expanded.
	Open bool
	// URL is the URL of the page that lists the machines of the object.
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

// search looks for objects in a branch. It finds an object if the name of the object, or of its Node, contains the
// query. The result consists of the objects found, their owners, and the objects that they own. If nothing is found,
// search returns false.
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

// draw returns the part of a branch that the page shows. The argument left is the number of machines that may still be
// added to the page.
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
