package config

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Role is what one process may do in one cluster: a ClusterRole, and Roles for single namespaces, all of that name.
type Role string

// The roles of machinist-manager and of a provider process, and of those who read the metrics of both.
const (
	ManagerControl  Role = "manager-control"
	ManagerTarget   Role = "manager-target"
	ProviderControl Role = "provider-control"
	ProviderTarget  Role = "provider-target"
	MetricsReader   Role = "metrics-reader"
)

// Objects returns the ClusterRole and the Roles. Those of a provider are the simulated one's.
func (r Role) Objects() []client.Object {
	return must(read("rbac/" + string(r) + ".yaml"))
}

// written is the provider for which the roles of a provider process are written down.
const written = "sim"

// For returns the ClusterRole and the Roles of a process for the provider of that name, that checks one namespace
// only unless that is empty: its own lease, webhook configuration and certificate are all that differs. The names of
// a provider's roles have the provider's in them, so that several providers have theirs side by side.
func (r Role) For(provider, namespace string) []client.Object {
	objects := r.Objects()
	for _, object := range objects {
		if provider != written {
			object.SetName(strings.Replace(object.GetName(), "machinist-provider", "machinist-provider-"+provider, 1))
		}
		var rules []rbacv1.PolicyRule
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		for _, rule := range rules {
			for i, name := range rule.ResourceNames {
				if of, ok := strings.CutPrefix(name, "machinist-provider-"+written); ok {
					rule.ResourceNames[i] = "machinist-provider-" + provider + of
				}
				if namespace != "" && slices.Contains(rule.Resources, "leases") {
					rule.ResourceNames[i] += "-" + namespace
				}
			}
		}
	}
	return objects
}
