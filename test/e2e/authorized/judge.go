package authorized

import (
	"fmt"
	"net/http"
	"slices"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// checkRequests returns which of the grants were used by the requests of one user to one cluster, and what was wrong
// with the requests.
func checkRequests(requests []auditlog.Request, grants []Grant) (used map[Grant]bool, wrong []string) {
	used = map[Grant]bool{}
	for _, r := range requests {
		grant, ok := find(grants, r)
		switch {
		case r.Denied && (ok || allowedForAll(r)):
			// An API server that has just started denies everything until it has read its roles. If it did so for longer,
			// the test would fail, because the fleet would not become as expected.
		case r.NamespaceEnds && ok:
			// The roles allow the request. A process cannot know in advance that the namespace is being deleted.
		case r.Code == http.StatusForbidden:
			wrong = append(wrong, describe(r)+" was refused")
		case allowedForAll(r):
		case ok:
			used[grant] = true
		default:
			wrong = append(wrong, describe(r)+" is allowed, but not by the roles")
		}
	}
	slices.Sort(wrong)
	return used, slices.Compact(wrong)
}

// allowedForAll reports whether every authenticated user may send the request. Such requests ask whether the API server
// is ready, what it serves, who the user is and what the user may do. The processes send the last two after a denial.
func allowedForAll(r auditlog.Request) bool {
	return r.Path != "" || r.Verb == "create" &&
		(r.Group == "authorization.k8s.io" && r.Resource == "selfsubjectaccessreviews" ||
			r.Group == "authentication.k8s.io" && r.Resource == "selfsubjectreviews")
}

// find returns the grant that allows the request. If one cluster is both control and target cluster, several grants may
// allow it, and find returns the most specific one.
func find(grants []Grant, r auditlog.Request) (found Grant, ok bool) {
	for _, g := range grants {
		if g.allows(r) && (!ok || g.specificity() > found.specificity()) {
			found, ok = g, true
		}
	}
	return found, ok
}

// describe describes a request without the name of its object, so that many requests of a kind have one description.
func describe(r auditlog.Request) string {
	if r.Path != "" {
		return fmt.Sprintf("%s %s by %s", r.Verb, r.Path, r.User)
	}
	c := auditlog.Call{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}
	return fmt.Sprintf("%s in namespace %q by %s", c, r.Namespace, r.User)
}
