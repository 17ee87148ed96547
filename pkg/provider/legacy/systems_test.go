package legacy

import "testing"

func TestSystemOfRecognizesKeys(t *testing.T) {
	for key, want := range map[string]string{
		"kubernetes.io-cluster-shoot--a--b":                  "Gardener",
		"kubernetes.io-role-node":                            "Gardener",
		"machine-uid":                                        "Kubermatic's machine-controller",
		"Machine-UID":                                        "Kubermatic's machine-controller",
		"openshiftClusterID":                                 "OpenShift",
		"openshiftClusterID=shop-x7":                         "OpenShift",
		"kubernetes.io_cluster.shop-x7":                      "OpenShift",
		"cluster-api-provider-openstack":                     "OpenShift or Cluster API",
		"sigs.k8s.io_cluster-api-provider-azure_cluster_one": "Cluster API",
		"aks-managed-poolName":                               "Azure Kubernetes Service",
		"karpenter.sh_nodepool":                              "Karpenter",
		"machinist-adoptable":                                "",
		"pool":                                               "",
		"my-kubernetes.io-role-node":                         "",
	} {
		system, found := SystemOf([]string{"a", key, "z"})
		if system != want || (found == key) != (want != "") {
			t.Errorf("SystemOf returns %q and %q for the key %q, want %q", system, found, key, want)
		}
	}
}
