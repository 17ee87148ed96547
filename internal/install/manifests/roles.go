package manifests

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Role is the set of permissions of one process in one cluster: a ClusterRole, and Roles of the same name in some
// namespaces. In the control cluster, a provider has a second ClusterRole for Secrets.
type Role string

// Roles of machinist-manager, of a provider, of metrics readers, and of cluster-autoscaler in the control cluster.
const (
	ManagerControl    Role = "manager-control"
	ManagerTarget     Role = "manager-target"
	ProviderControl   Role = "provider-control"
	ProviderTarget    Role = "provider-target"
	MetricsReader     Role = "metrics-reader"
	ClusterAutoscaler Role = "cluster-autoscaler"
)

// Objects returns the ClusterRole and the Roles that grant the permissions of this Role. If namespace is not empty,
// the process works only in this namespace.
func (r Role) Objects(provider, namespace string) []client.Object {
	parts := Parts{Control: r != ManagerTarget && r != ProviderTarget, WatchNamespace: namespace, WebhookURL: WebhookOff}
	parts.Target = !parts.Control
	name := "machinist-" + string(r)
	var objects []client.Object
	if r == ProviderControl || r == ProviderTarget {
		name = strings.Replace(name, "provider", "provider-"+provider, 1)
		objects = mustRender(parts.Provider(provider))
	} else {
		objects = mustRender(parts.Manager())
	}
	secrets := strings.Replace(name, "-control", "-secrets", 1)
	if namespace != "" {
		name, secrets = name+"-"+namespace, secrets+"-"+namespace
	}
	var found []client.Object
	for _, object := range objects {
		switch object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.Role:
			if object.GetName() == name || r == ProviderControl && object.GetName() == secrets {
				found = append(found, object)
			}
		}
	}
	return found
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
