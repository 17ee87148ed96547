package authorized

import (
	"fmt"
	"net/http"
	"slices"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// judge returns what of the grants one user's requests to one cluster used, and what was wrong with the requests.
func judge(requests []auditlog.Request, grants []Grant) (used map[Grant]bool, wrong []string) {
	used = map[Grant]bool{}
	for _, r := range requests {
		grant, ok := find(grants, r)
		switch {
		case r.Denied && (ok || ofEverybody(r)):
			// An API server that has just started denies everything until it has read its roles. Were it to do so for
			// longer, the fleet would not become what the test waits for.
		case r.NamespaceEnds && ok:
			// The roles allow it. That the namespace is being deleted, nobody can know before he asks.
		case r.Code == http.StatusForbidden:
			wrong = append(wrong, describe(r)+" was refused")
		case ofEverybody(r):
		case ok:
			used[grant] = true
		default:
			wrong = append(wrong, describe(r)+" is allowed by something else than the roles")
		}
	}
	slices.Sort(wrong)
	return used, slices.Compact(wrong)
}

// ofEverybody reports whether everybody who is authenticated may ask this: whether the API server is ready, what it
// serves, and what he may do himself, which our processes ask after a denial.
func ofEverybody(r auditlog.Request) bool {
	return r.Path != "" ||
		r.Verb == "create" && r.Group == "authorization.k8s.io" && r.Resource == "selfsubjectaccessreviews"
}

// find returns the grant that allows the request. Where one cluster is both, several may, and the one for less is
// meant.
func find(grants []Grant, r auditlog.Request) (found Grant, ok bool) {
	for _, g := range grants {
		if g.allows(r) && (!ok || g.precise() > found.precise()) {
			found, ok = g, true
		}
	}
	return found, ok
}

// describe leaves out names, so that a thousand requests of a kind are one.
func describe(r auditlog.Request) string {
	if r.Path != "" {
		return fmt.Sprintf("%s %s by %s", r.Verb, r.Path, r.User)
	}
	c := auditlog.Call{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource}
	return fmt.Sprintf("%s in namespace %q by %s", c, r.Namespace, r.User)
}
