package autoscaling

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// IsNodeGroup reports whether an autoscaler scales the MachineDeployment or MachineSet. A node group must have an
// annotation with a minimum or maximum size.
func IsNodeGroup(annotations map[string]string) bool {
	_, hasMin := annotations[v1beta1.AutoscalerMinSizeAnnotation]
	_, hasMax := annotations[v1beta1.AutoscalerMaxSizeAnnotation]
	return hasMin || hasMax
}

// Bounds returns the smallest and largest size of a node group. A missing annotation counts as 0. The error names an
// invalid annotation. A single invalid annotation makes cluster-autoscaler ignore all node groups.
func Bounds(annotations map[string]string) (smallest, largest int, err error) {
	if smallest, err = bound(annotations, v1beta1.AutoscalerMinSizeAnnotation); err != nil {
		return 0, 0, err
	}
	if largest, err = bound(annotations, v1beta1.AutoscalerMaxSizeAnnotation); err != nil {
		return 0, 0, err
	}
	if smallest > largest {
		return 0, 0, fmt.Errorf("metadata.annotations[%s]: %d is less than the smallest size, %d",
			v1beta1.AutoscalerMaxSizeAnnotation, largest, smallest)
	}
	return smallest, largest, nil
}

func bound(annotations map[string]string, key string) (int, error) {
	value, found := annotations[key]
	if !found {
		return 0, nil
	}
	size, err := strconv.Atoi(value)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("metadata.annotations[%s]: %q is not a number of machines", key, value)
	}
	return size, nil
}

func templateOf(o client.Object) *v1beta1.MachineSpec {
	if d, ok := o.(*v1beta1.MachineDeployment); ok {
		return &d.Spec.Template.Spec
	}
	return &o.(*v1beta1.MachineSet).Spec.Template.Spec
}

func placementOf(o client.Object) *v1beta1.Placement {
	if d, ok := o.(*v1beta1.MachineDeployment); ok {
		return d.Spec.Placement
	}
	return o.(*v1beta1.MachineSet).Spec.Placement
}

// ClassesOf returns the classes from which a node group creates machines. The result is empty if o has no class or is
// not a node group. The cache indexes objects by these names. Domains of a placement that get no new machines are
// omitted.
func ClassesOf(o client.Object) (names []string) {
	if !IsNodeGroup(o.GetAnnotations()) {
		return nil
	}
	if ref := templateOf(o).ClassRef; ref != nil {
		return []string{ref.Name}
	}
	if p := placementOf(o); p != nil {
		for i := range p.Domains {
			d := &p.Domains[i]
			if d.WeightOrDefault() == 0 || d.MaxReplicas != nil && *d.MaxReplicas == 0 {
				continue
			}
			for _, option := range d.Options {
				names = append(names, option.ClassName)
			}
		}
	}
	return names
}
