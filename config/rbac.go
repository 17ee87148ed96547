package config

import (
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

// Objects returns the ClusterRole and the Roles.
func (r Role) Objects() []client.Object {
	return must(read("rbac/" + string(r) + ".yaml"))
}
