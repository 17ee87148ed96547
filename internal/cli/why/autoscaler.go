package why

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
)

// Reasons why cluster-autoscaler does not scale a node group. Only "machinist why" computes these reasons; no condition
// contains them.
const (
	// MalformedBounds means that cluster-autoscaler cannot parse the size limits.
	MalformedBounds = "MalformedBounds"
	// NoLargestSize means that there is a minimum size, but no maximum size.
	NoLargestSize = "NoLargestSize"
	// OutsideBounds means that the replicas are not between the minimum and the maximum size.
	OutsideBounds = "OutsideBounds"
)

func autoscalerFindings(about, namespace string, f FleetFacts, conditions []metav1.Condition) (findings []Finding) {
	var annotations map[string]string
	var replicas int
	if f.Deployment != nil {
		annotations, replicas = f.Deployment.Annotations, int(f.Deployment.ReplicasOrDefault())
	} else {
		annotations, replicas = f.Set.Annotations, int(f.Set.ReplicasOrDefault())
	}
	if !autoscaling.IsNodeGroup(annotations) {
		return nil
	}
	setLargest := fmt.Sprintf("kubectl annotate --overwrite %s %s=4", argument(about, namespace),
		v1beta1.AutoscalerMaxSizeAnnotation)
	smallest, largest, err := autoscaling.Bounds(annotations)
	switch {
	case err != nil:
		findings = append(findings, Finding{Object: about, Reason: MalformedBounds, Message: err.Error(),
			Description:  "cluster-autoscaler cannot parse the sizes of this group, and therefore scales none of its groups.",
			Instructions: "Correct the annotation that the message names. For example: " + setLargest})
	case largest == 0:
		findings = append(findings, Finding{Object: about, Reason: NoLargestSize,
			Description:  "cluster-autoscaler ignores the group, because its largest size is missing or 0.",
			Instructions: "Set the largest size. For example: " + setLargest})
	case replicas < smallest || replicas > largest:
		findings = append(findings, Finding{Object: about, Reason: OutsideBounds,
			Description: fmt.Sprintf("The group has %d replicas, but cluster-autoscaler may only choose %d to %d. The autoscaler does not "+
				"correct this: it adds no machines above the largest size, and removes none below the smallest size.",
				replicas, smallest, largest),
			Instructions: fmt.Sprintf("kubectl scale %s --replicas=%d", argument(about, namespace),
				min(max(replicas, smallest), largest))})
	}
	if c := meta.FindStatusCondition(conditions, v1beta1.ConditionScalableFromZero); c != nil &&
		c.Status == metav1.ConditionFalse {
		findings = append(findings, fleetFinding(about, namespace, c))
	}
	return findings
}
