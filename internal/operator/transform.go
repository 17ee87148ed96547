package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TransformNode drops from a Node what no controller reads: managed fields, images, and the heartbeats of conditions, so
// that a heartbeat changes nothing but the resource version. It is a cache.TransformFunc.
func TransformNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	node.Status.Images = nil
	node.Status.VolumesInUse = nil
	node.Status.Config = nil
	node.Status.RuntimeHandlers = nil
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
