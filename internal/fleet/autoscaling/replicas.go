package autoscaling

import "machinist.dev/machinist/api/v1beta1"

// Replicas returns the replicas of a MachineDeployment or MachineSet without spec.replicas. For an existing object,
// current is its number of machines, which Replicas returns. For a new object, current is nil, and Replicas returns the
// default within the autoscaler's bounds. An invalid bound is ignored.
func Replicas(annotations map[string]string, current *int32) int32 {
	if current != nil {
		return *current
	}
	replicas := int(v1beta1.DefaultReplicas)
	if smallest, err := bound(annotations, v1beta1.AutoscalerMinSizeAnnotation); err == nil {
		replicas = max(replicas, smallest)
	}
	if _, found := annotations[v1beta1.AutoscalerMaxSizeAnnotation]; found {
		if largest, err := bound(annotations, v1beta1.AutoscalerMaxSizeAnnotation); err == nil {
			replicas = min(replicas, largest)
		}
	}
	return int32(min(replicas, maxReplicas))
}

// maxReplicas is the maximum that the schema allows.
const maxReplicas = 100000
