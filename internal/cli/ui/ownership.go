package ui

import (
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// treesPerPage is the number of deployments on a page.
	treesPerPage = 20
	// leavesPerPage is the maximum number of machines on a page. The machines of the first deployments are shown.
	leavesPerPage = 240
	// leavesOfSet is the maximum number of machines that are shown for a set.
	leavesOfSet = 60
)

// ownershipBody is the body of the page of ownership, with trees of deployments, sets, machines and Nodes.
type ownershipBody struct {
	Query  string
	Trees  []branch
	Paging Paging
	// AllNamespaces is true if the page may list several namespaces.
	AllNamespaces bool
}

// branch is an object with the objects below it that are shown.
type branch struct {
	fleet.Branch
	Branches []branch
	// Machines is the number of machines below the object. Hidden is how many of its own machines are not shown.
	Machines, Hidden int
	// Open is true if the branch is shown open.
	Open bool
	// URL is the URL of the list of its machines.
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

// search returns the objects of a branch whose name or Node contains the query, with their owners and the objects that
// they own. It returns false if there are none.
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

// draw returns the part of a branch that is shown. left is how many more machines may be shown on the page.
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
