package admission

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/placement"
)

// placement validates the placement of a deployment, or of a set without a deployment. The parameter replicas is nil
// if the number of machines is not known yet.
func (v *Result) placement(p *v1beta1.Placement, replicas *int32, annotations map[string]string, s Environment) {
	if p == nil {
		return
	}
	spec := field.NewPath("spec")
	path := spec.Child("placement")
	v.refuse(placement.Validate(path, p)...)
	v.placementBounds(spec, p, replicas, annotations)
	v.placementClasses(path.Child("domains"), p, s)
}

// placementBounds compares the bounds of the domains with the number of machines. Requests for the scale subresource
// do not reach the webhook, so an autoscaler can always scale. The replicas of a node group come from the autoscaler,
// so too large a number is only a warning.
func (v *Result) placementBounds(spec *field.Path, p *v1beta1.Placement, replicas *int32,
	annotations map[string]string) {
	smallest, largest := int64(0), int64(0)
	limited := true
	for i := range p.Domains {
		if d := &p.Domains[i]; d.WeightOrDefault() > 0 {
			smallest += int64(d.MinReplicas)
			if d.MaxReplicas == nil {
				limited = false
			} else {
				largest += int64(*d.MaxReplicas)
			}
		}
	}
	isNodeGroup := autoscaling.IsNodeGroup(annotations)
	if replicas != nil && limited && int64(*replicas) > largest {
		detail := fmt.Sprintf("the domains may have at most %d machines together: reduce replicas, or "+
			"increase maxReplicas of a domain", largest)
		if isNodeGroup {
			v.warn(spec.Child("replicas"), "%d machines are wanted, but %s", *replicas, detail)
		} else {
			v.refuse(field.Invalid(spec.Child("replicas"), *replicas, detail))
		}
	}
	if replicas != nil && *replicas > 0 && int64(*replicas) < smallest {
		v.warn(spec.Child("replicas"), "%d machines are wanted, but minReplicas of the domains add up to %d; each domain "+
			"gets a proportional part", *replicas, smallest)
	}
	if !isNodeGroup || !limited {
		return
	}
	if _, size, err := autoscaling.Bounds(annotations); err == nil && int64(size) > largest {
		v.warn(field.NewPath("metadata", "annotations").Key(v1beta1.AutoscalerMaxSizeAnnotation),
			"the autoscaler may ask for %d machines, but the domains may have at most %d machines together", size, largest)
	}
}

// placementClasses checks the classes of the options. All classes must have the same provider, because a machine
// without an instance can change its class, but not its provider.
func (v *Result) placementClasses(path *field.Path, p *v1beta1.Placement, s Environment) {
	if s.Class == nil {
		return
	}
	var first, firstArchitecture, firstSystem property
	missing := 0
	for i := range p.Domains {
		for j, option := range p.Domains[i].Options {
			at := path.Index(i).Child("options").Index(j).Child("className")
			class, found := s.Class(option.ClassName)
			if !found || class.DeletionTimestamp != nil {
				if missing++; missing <= maxNamed {
					v.warn(at, "%s", unusable(option.ClassName, found))
				}
				if !found {
					continue
				}
			}
			if other, differs := first.differs(class.Name, class.Spec.Provider); differs {
				v.refuse(field.Invalid(at, class.Name, fmt.Sprintf("the provider of this MachineClass is %s, and the provider "+
					"of the MachineClass %s is %s: all classes of a placement must have the same provider",
					class.Spec.Provider, other.class, other.value)))
			}
			architecture, system := hostOf(class)
			if other, differs := firstArchitecture.differs(class.Name, architecture); differs {
				v.warn(at, "the architecture of the MachineClass %s is %s, and that of the MachineClass %s is %s; "+
					"pods must run on both", class.Name, architecture, other.class, other.value)
			}
			if other, differs := firstSystem.differs(class.Name, system); differs {
				v.warn(at, "the operating system of the MachineClass %s is %s, and that of the MachineClass %s is %s; "+
					"pods must run on both", class.Name, system, other.class, other.value)
			}
		}
	}
	if more := missing - maxNamed; more > 0 {
		v.warn(path, "%d more MachineClasses do not exist in this namespace or are being deleted", more)
	}
}

func unusable(class string, exists bool) string {
	if exists {
		return "the MachineClass " + class + " is being deleted; no machine is created from it"
	}
	return "the MachineClass " + class + " does not exist in this namespace; no machine is created from it until it exists"
}

// hostOf returns the architecture and the operating system of the hosts of a class. Both are empty if they are unknown.
func hostOf(class *v1beta1.MachineClass) (architecture, system string) {
	info := cmp.Or(class.Status.NodeInfo, &v1beta1.NodeInfo{})
	stated := cmp.Or(class.Spec.Capacity, &v1beta1.ClassCapacity{})
	return cmp.Or(stated.Architecture, info.Architecture), info.OperatingSystem
}

// property is the value that all classes of a placement should share, and the first class that has the value.
type property struct{ class, value string }

// differs reports whether a class has another value than the classes before. It also returns the first class. Unknown
// values do not differ.
func (p *property) differs(class, value string) (property, bool) {
	if p.value == "" {
		p.class, p.value = class, value
	}
	return *p, value != "" && value != p.value
}
