// Package authorized compares the roles in config/rbac with the requests of the processes in the audit logs of real API
// servers. No request may be refused, and the roles alone must allow every request. At least one request must use each
// verb of a role.
//
// Each test that runs the processes records the grants that the processes used. After all tests, CheckUnused finds
// the grants that no test used.
package authorized

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/internal/install/manifests"
)

// Grant is the permission for one verb on one resource, the smallest part of a role.
type Grant struct {
	Role      manifests.Role
	Namespace string // the namespace of the role, "" for all namespaces
	Verb      string
	Group     string
	Resource  string // includes the subresource, such as "pods/eviction"
	Name      string // the only object of the grant, "" for any object

	boundIn string // the only namespace in which a cluster-wide role is bound, "" for all namespaces
}

// String returns for example "provider-target: create pods/eviction" or "manager-control in machinist-system: get
// configmaps machinist-cluster-id".
func (g Grant) String() string {
	s := string(g.Role)
	if g.Namespace != "" {
		s += " in " + g.Namespace
	}
	s += ": " + g.Verb + " " + g.Resource
	if g.Group != "" {
		s += "." + g.Group
	}
	if g.Name != "" {
		s += " " + g.Name
	}
	return s
}

func (g Grant) allows(r auditlog.Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return g.Verb == r.Verb && g.Group == r.Group && g.Resource == resource &&
		(g.Namespace == "" || g.Namespace == r.Namespace) && (g.boundIn == "" || g.boundIn == r.Namespace) && g.matchesName(r)
}

// matchesName reports whether the grant covers the object of the request. The Lease of a process that serves one
// namespace has this namespace as a suffix, which the role omits.
func (g Grant) matchesName(r auditlog.Request) bool {
	return g.Name == "" || g.Name == r.Name || g.Resource == "leases" && strings.HasPrefix(r.Name, g.Name+"-")
}

func (g Grant) specificity() int {
	n := 0
	if g.Namespace != "" {
		n += 2
	}
	if g.Name != "" {
		n++
	}
	return n
}

func grantsOf(role manifests.Role, namespace string) ([]Grant, error) {
	var grants []Grant
	for _, object := range role.Objects("sim", namespace) {
		var rules []rbacv1.PolicyRule
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			rules = o.Rules
		}
		for _, rule := range rules {
			if !explicit(rule) {
				return nil, fmt.Errorf("role %s has a rule that does not list its verbs, groups and resources: %+v", role, rule)
			}
			g := Grant{Role: role, Namespace: object.GetNamespace()}
			if g.Namespace == "" {
				g.boundIn = namespace
			}
			grants = append(grants, split(g, rule)...)
		}
	}
	return grants, nil
}

func explicit(rule rbacv1.PolicyRule) bool {
	for _, list := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources} {
		if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
			return false
		}
	}
	return true
}

func split(g Grant, rule rbacv1.PolicyRule) []Grant {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var grants []Grant
	for _, g.Group = range rule.APIGroups {
		for _, g.Resource = range rule.Resources {
			for _, g.Name = range names {
				for _, g.Verb = range rule.Verbs {
					grants = append(grants, g)
				}
			}
		}
	}
	return grants
}
