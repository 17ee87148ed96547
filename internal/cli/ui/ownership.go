package ui

import (
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// treesPerPage is how many deployments the map shows.
	treesPerPage = 20
	// leavesPerPage is how many machines are drawn over all of them: first of those that are opened.
	leavesPerPage = 240
	// leavesOfSet is how many machines are drawn of each set.
	leavesOfSet = 60
)

// ownershipBody is the map of ownership: deployment, set, machine, node.
type ownershipBody struct {
	Query  string
	Trees  []branch
	Paging Paging
	// AllNamespaces says that there may be several namespaces.
	AllNamespaces bool
}

// branch is an object of the map with those below it that are drawn.
type branch struct {
	fleet.Branch
	Branches []branch
	// Machines is how many machines there are below it, and Hidden how many of its own are not drawn.
	Machines, Hidden int
	// Open says that it is drawn open.
	Open bool
	// URL lists its machines.
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
		summary: fmt.Sprintf("%s of the map", wording.Count(len(items), "root"))}, nil
}

// search leaves of a branch what has the words in its name or its node, with what it belongs to and what belongs to it.
func search(b fleet.Branch, words string) (fleet.Branch, bool) {
	if contains(b.Name, words) || contains(b.Node, words) {
		return b, true
	}
	var found []fleet.Branch
	for _, child := range b.Children {
		if c, ok := search(child, words); ok {
			found = append(found, c)
		}
	}
	b.Children = found
	return b, len(found) > 0
}

// draw turns a branch into what is drawn of it. left is how many machines may be drawn still.
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
