package legacy

import (
	"slices"
	"strings"
)

// systemKeys maps the beginnings of tags and of names of metadata to the systems that set them on instances. All
// entries are in lower case.
func systemKeys() [][2]string {
	return [][2]string{
		{"kubernetes.io-cluster-", "Gardener"},
		{"kubernetes.io-role-", "Gardener"},
		{"machine-uid", "Kubermatic's machine-controller"},
		{"openshiftclusterid", "OpenShift"},
		{"kubernetes.io_cluster.", "OpenShift"},
		{"cluster-api-provider-openstack", "OpenShift or Cluster API"},
		{"sigs.k8s.io_cluster-api-provider-azure", "Cluster API"},
		{"aks-managed-", "Azure Kubernetes Service"},
		{"karpenter.", "Karpenter"},
	}
}

// SystemOf returns which machine controller manages an instance with these tags or names of metadata, and the key
// that shows this. SystemOf ignores case. Without such a key, both results are empty.
func SystemOf(keys []string) (system, key string) {
	for _, key := range slices.Sorted(slices.Values(keys)) {
		for _, known := range systemKeys() {
			if strings.HasPrefix(strings.ToLower(key), known[0]) {
				return known[1], key
			}
		}
	}
	return "", ""
}
