package process

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"machinist.dev/machinist/api/v1beta1"
)

const maxSiblings = 1000

// NewTransform returns the default cache.TransformFunc. NewTransform drops managed fields, and stores equal parts of
// the Machines of a MachineSet only once. Without sharing, a cached Machine would take almost twice the memory
// (TestCachedMachineAndNodeAreSmall in bench/micro).
func NewTransform() toolscache.TransformFunc {
	siblings := lru.New(maxSiblings) // the last Machine of each MachineSet, by the UID of the set
	return func(object any) (any, error) {
		if o, err := meta.Accessor(object); err == nil {
			o.SetManagedFields(nil)
		}
		m, ok := object.(*v1beta1.Machine)
		if !ok {
			return object, nil
		}
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			if sibling, ok := siblings.Get(owner.UID); ok {
				shareWithSibling(m, sibling.(*v1beta1.Machine))
			}
			siblings.Add(owner.UID, m)
		}
		return m, nil
	}
}

func shareWithSibling(m, sibling *v1beta1.Machine) {
	share(&m.Labels, sibling.Labels)
	share(&m.Annotations, sibling.Annotations)
	share(&m.OwnerReferences, sibling.OwnerReferences)
	share(&m.Finalizers, sibling.Finalizers)
	share(&m.Spec.ClassRef, sibling.Spec.ClassRef)
	share(&m.Spec.Node, sibling.Spec.Node)
	// The JSON decoder allocates memory for more conditions than the object has.
	m.Status.Conditions = slices.Clone(m.Status.Conditions)
	for i := range min(len(m.Status.Conditions), len(sibling.Status.Conditions)) {
		own, other := &m.Status.Conditions[i], &sibling.Status.Conditions[i]
		share(&own.Type, other.Type)
		share(&own.Status, other.Status)
		share(&own.Reason, other.Reason)
	}
}

func share[T any](own *T, other T) {
	if equality.Semantic.DeepEqual(*own, other) {
		*own = other
	}
}

// TransformNode is a cache.TransformFunc that keeps only the parts of a Node that controllers read. TransformNode also
// removes the heartbeat times of conditions. Without these times, a heartbeat changes only the resource version of the
// cached Node.
//
// Never send an Update request with a cached Node, because the request would delete the missing parts. Patch the
// difference to the cached object, or update an object from a live read. A cached Node takes a fifth of the memory of a
// Node without managed fields (TestCachedMachineAndNodeAreSmall).
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
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: status.NodeInfo.KubeletVersion, BootID: status.NodeInfo.BootID},
	}
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return node, nil
}

// TransformMetadata is the cache.TransformFunc for kinds that are cached as metadata. TransformMetadata drops managed
// fields and annotations, because the annotation of kubectl apply would contain the data of Secrets.
func TransformMetadata(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetAnnotations(nil)
		o.SetManagedFields(nil)
	}
	return object, nil
}
