package invariants

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/api/v1beta1"
)

// NodeCapacity returns the annotations of a node group that describe its future Nodes to an autoscaler, from the table
// in docs/autoscaling.md. Each resource of the class's spec replaces the same resource that the provider reports.
func NodeCapacity(class *v1beta1.MachineClass, template *v1beta1.MachineSpec) map[string]string {
	spec, info, out := v1beta1.ClassCapacity{}, v1beta1.NodeInfo{}, map[string]string{}
	if class.Spec.Capacity != nil {
		spec = *class.Spec.Capacity
	}
	if class.Status.NodeInfo != nil {
		info = *class.Status.NodeInfo
	}
	set := func(name, value string) {
		if value != "" && value != "0" {
			out["capacity.cluster-autoscaler.kubernetes.io/"+name] = value
		}
	}
	amountOf := func(name corev1.ResourceName) resource.Quantity {
		if stated, ok := spec.Resources[name]; ok {
			return stated
		}
		return class.Status.Capacity[name]
	}
	for name, of := range map[string]corev1.ResourceName{"cpu": "cpu", "memory": "memory",
		"ephemeral-disk": "ephemeral-storage"} {
		amount := amountOf(of)
		set(name, amount.String())
	}
	pods := amountOf("pods")
	set("maxPods", fmt.Sprint(pods.Value()))

	var devices []string
	for _, resources := range []corev1.ResourceList{spec.Resources, class.Status.Capacity} {
		for name := range resources {
			domain, _, extended := strings.Cut(string(name), "/")
			if amount := amountOf(name); extended && !amount.IsZero() && !slices.Contains(devices, string(name)) &&
				domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") {
				devices = append(devices, string(name))
			}
		}
	}
	slices.Sort(devices)
	gpu := slices.IndexFunc(devices, func(name string) bool { return strings.Contains(name, "/gpu") })
	if gpu < 0 && len(devices) == 1 {
		gpu = 0
	}
	if gpu >= 0 {
		amount := amountOf(corev1.ResourceName(devices[gpu]))
		set("gpu-count", fmt.Sprint(amount.Value()))
	}
	switch dra := spec.DRADriver; {
	case dra != nil:
		set("dra-driver", dra.Name)
		set("gpu-count", fmt.Sprint(dra.Devices))
	case gpu >= 0:
		set("gpu-type", devices[gpu])
	}

	var csi, labels, taints []string
	for _, d := range spec.CSIDrivers {
		csi = append(csi, fmt.Sprintf("%s=%d", d.Name, d.VolumeLimit))
	}
	for key, values := range map[string][2]string{"kubernetes.io/arch": {spec.Architecture, info.Architecture},
		"kubernetes.io/os": {info.OperatingSystem}, "node.kubernetes.io/instance-type": {spec.InstanceType, info.InstanceType},
		"topology.kubernetes.io/region": {spec.Region, info.Region}, "topology.kubernetes.io/zone": {spec.Zone, info.Zone}} {
		value := values[0]
		if value == "" {
			value = values[1]
		}
		if _, stated := template.Node.Labels[key]; value != "" && !stated {
			labels = append(labels, key+"="+value)
		}
	}
	for key, value := range template.Node.Labels {
		labels = append(labels, key+"="+value)
	}
	for _, t := range template.Node.Taints {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		taints = append(taints, text+":"+string(t.Effect))
	}
	slices.Sort(csi)
	slices.Sort(labels)
	set("csi-driver", strings.Join(csi, ","))
	set("labels", strings.Join(labels, ","))
	set("taints", strings.Join(taints, ","))
	return out
}
