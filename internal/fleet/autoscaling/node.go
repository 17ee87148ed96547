package autoscaling

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/api/v1beta1"
)

// node describes the Nodes of a class, or what the Nodes of several classes have in common.
type node struct {
	resources corev1.ResourceList
	labels    map[string]string
	// volumeLimits maps each CSI driver to its maximum number of volumes. 0 means no limit.
	volumeLimits map[string]int32
	draDriver    string
	draDevices   int32
	// If only some classes have the DRA driver, pods cannot request the devices of all Nodes in the same way. Then the
	// annotations contain no devices.
	omitsDevices bool
}

// nodeOf describes the Nodes of a class. Invalid label values are omitted, because no Node will have them.
func nodeOf(class *v1beta1.MachineClass) node {
	stated, info := class.Spec.Capacity, class.Status.NodeInfo
	if stated == nil {
		stated = &v1beta1.ClassCapacity{}
	}
	if info == nil {
		info = &v1beta1.NodeInfo{}
	}
	n := node{resources: corev1.ResourceList{}, volumeLimits: map[string]int32{}, labels: map[string]string{
		corev1.LabelArchStable:         cmp.Or(stated.Architecture, info.Architecture),
		corev1.LabelOSStable:           info.OperatingSystem,
		corev1.LabelInstanceTypeStable: cmp.Or(stated.InstanceType, info.InstanceType),
		corev1.LabelTopologyRegion:     cmp.Or(stated.Region, info.Region),
		corev1.LabelTopologyZone:       cmp.Or(stated.Zone, info.Zone),
	}}
	maps.Copy(n.resources, class.Status.Capacity)
	maps.Copy(n.resources, stated.Resources)
	maps.DeleteFunc(n.labels, func(_, value string) bool {
		return value == "" || len(validation.IsValidLabelValue(value)) > 0
	})
	for _, driver := range stated.CSIDrivers {
		n.volumeLimits[driver.Name] = driver.VolumeLimit
	}
	if dra := stated.DRADriver; dra != nil {
		n.draDriver, n.draDevices = dra.Name, dra.Devices
	}
	return n
}

// commonNode describes what the Nodes of all classes have in common. The autoscaler may then add a Node of any class.
func commonNode(classes []*v1beta1.MachineClass) (common node) {
	for i, class := range classes {
		other := nodeOf(class)
		if i == 0 {
			common = other
			continue
		}
		maps.DeleteFunc(common.resources, func(name corev1.ResourceName, q resource.Quantity) bool {
			amount, found := other.resources[name]
			if found && amount.Cmp(q) < 0 {
				common.resources[name] = amount
			}
			return !found
		})
		maps.DeleteFunc(common.labels, func(key, value string) bool { return other.labels[key] != value })
		maps.DeleteFunc(common.volumeLimits, func(driver string, limit int32) bool {
			volumes, found := other.volumeLimits[driver]
			if found && volumes > 0 && (limit == 0 || volumes < limit) {
				common.volumeLimits[driver] = volumes
			}
			return !found
		})
		if common.draDriver != other.draDriver {
			common.draDriver, common.draDevices, common.omitsDevices = "", 0, true
		} else {
			common.draDevices = min(common.draDevices, other.draDevices)
		}
	}
	return common
}

// statesSize reports whether the class states both cpu and memory, without which the autoscaler cannot add a first
// Node.
func statesSize(class *v1beta1.MachineClass) bool {
	resources := nodeOf(class).resources
	return quantity(resources, corev1.ResourceCPU) != "" && quantity(resources, corev1.ResourceMemory) != ""
}
