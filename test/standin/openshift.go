package standin

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// openshift is the machine-api-operator of OpenShift. The garbage collector deletes the Machines of a deleted set.
var openshift = group{
	version:    "v1beta1",
	parents:    []string{sets},
	finalizers: []string{"machine.machine.openshift.io"},
	instance:   []string{"spec", "providerSpec", "value"},
	nodeMeta:   []string{"spec", "metadata"},
	taints:     []string{"spec", "taints"},
	identify: func(machine *unstructured.Unstructured, in Instance) {
		setProviderID(machine, in)
		for key, value := range map[string]string{"instance-type": in.Type, "region": in.Region, "zone": in.Zone} {
			_ = unstructured.SetNestedField(machine.Object, value, "metadata", "labels", "machine.openshift.io/"+key)
		}
	},
	status: func(node *corev1.Node) map[string]any {
		return map[string]any{"nodeRef": nodeRef(node), "phase": "Running"}
	},
	mark: func(machine *unstructured.Unstructured, node *corev1.Node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, "machine.openshift.io/machine",
			machine.GetNamespace()+"/"+machine.GetName())
	},
}
