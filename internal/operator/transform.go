package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TransformNode keeps of a Node what controllers read, and no heartbeats of conditions, so that a heartbeat changes nothing
// but the resource version. What is written to a Node must be a patch of the difference to what is cached, or made from a live
// read. It is a cache.TransformFunc.
func TransformNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	spec, status := node.Spec, node.Status
	node.Spec = corev1.NodeSpec{ProviderID: spec.ProviderID, Taints: spec.Taints, Unschedulable: spec.Unschedulable}
	node.Status = corev1.NodeStatus{
		Conditions: status.Conditions, VolumesAttached: status.VolumesAttached,
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: status.NodeInfo.KubeletVersion},
	}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return node, nil
}

// TransformMetadata drops annotations and managed fields, for kinds that are cached as metadata: the annotation of kubectl
// apply carries the data of a Secret. It is a cache.TransformFunc.
func TransformMetadata(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetAnnotations(nil)
		o.SetManagedFields(nil)
	}
	return object, nil
}
