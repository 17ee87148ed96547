package authorized

import (
	"fmt"
	"net/http"
	"slices"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// checkRequests checks the requests of one user to one cluster. checkRequests returns the grants that these requests
// used, and a description of each wrong request.
func checkRequests(requests []auditlog.Request, grants []Grant) (used map[Grant]bool, wrong []string) {
	used = map[Grant]bool{}
	for _, r := range requests {
		grant, ok := find(grants, r)
		switch {
		case r.Denied && (ok || allowedForAll(r)):
			// An API server that has just started denies all requests until the server has read the roles.
		case r.NamespaceEnds && ok:
			// The roles allow the request, but the namespace is being deleted. A process cannot know this in advance.
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

// allowedForAll reports whether every authenticated user may send the request. Such requests read the health and the
// discovery of the API server, or check the user's own identity and permissions.
func allowedForAll(r auditlog.Request) bool {
	return r.Path != "" || r.Verb == "create" &&
		(r.Group == "authorization.k8s.io" && r.Resource == "selfsubjectaccessreviews" ||
			r.Group == "authentication.k8s.io" && r.Resource == "selfsubjectreviews")
}

// find returns the most specific grant that allows the request. If one cluster is both the control and the target
// cluster, several grants may allow the same request.
func find(grants []Grant, r auditlog.Request) (found Grant, ok bool) {
	for _, g := range grants {
		if g.allows(r) && (!ok || g.specificity() > found.specificity()) {
			found, ok = g, true
		}
	}
	return found, ok
}

// describe returns a description of a request without the object's name. Two requests that differ only in the object's
// name have the same description.
func describe(r auditlog.Request) string {
	if r.Path != "" {
		return fmt.Sprintf("%s %s by %s", r.Verb, r.Path, r.User)
	}
	c := auditlog.Call{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}
	return fmt.Sprintf("%s in namespace %q by %s", c, r.Namespace, r.User)
}
