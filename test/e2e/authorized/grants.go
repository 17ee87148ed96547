// Package authorized holds the roles in config/rbac against what the processes asked of real API servers, as their
// audit logs tell: no request was refused, none was allowed by anything but the roles, and each verb that a role
// gives was asked for.
//
// Each test that runs the processes records what they used; when the whole suite has run, what nobody used is found.
package authorized

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/internal/install/manifests"
)

// Grant is the smallest part of a role: one verb on one resource.
type Grant struct {
	Role      manifests.Role
	Namespace string // where it holds; "" is everywhere
	Verb      string
	Group     string
	Resource  string // with the subresource, such as "pods/eviction"
	Name      string // the only object that it holds for; "" is any

	within string // the only namespace in which a role for all namespaces is bound; "" if it is bound for all
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

// allows says whether the grant allows the request.
func (g Grant) allows(r auditlog.Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return g.Verb == r.Verb && g.Group == r.Group && g.Resource == resource &&
		(g.Namespace == "" || g.Namespace == r.Namespace) && (g.within == "" || g.within == r.Namespace) && g.names(r)
}

// names says whether the grant is for the object of the request. The lease of a process for one namespace has that in
// its name, as its role has.
func (g Grant) names(r auditlog.Request) bool {
	return g.Name == "" || g.Name == r.Name || g.Resource == "leases" && strings.HasPrefix(r.Name, g.Name+"-")
}

// precise is greater for a grant that holds for less.
func (g Grant) precise() int {
	n := 0
	if g.Namespace != "" {
		n += 2
	}
	if g.Name != "" {
		n++
	}
	return n
}

// of returns the grants of a role, whose cluster-wide ones are bound within a namespace only, if one is given.
func of(role manifests.Role, within string) ([]Grant, error) {
	var grants []Grant
	for _, object := range role.For("sim", within) {
		var rules []rbacv1.PolicyRule
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			rules = o.Rules
		}
		for _, rule := range rules {
			if !certain(rule) {
				return nil, fmt.Errorf("role %s has a rule that is not about certain verbs of certain resources: %+v", role, rule)
			}
			g := Grant{Role: role, Namespace: object.GetNamespace()}
			if g.Namespace == "" {
				g.within = within
			}
			grants = append(grants, split(g, rule)...)
		}
	}
	return grants, nil
}

// certain says whether the rule names all that it allows.
func certain(rule rbacv1.PolicyRule) bool {
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
