package autoscaling

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/api/v1beta1"
)

func capacityKeys() []string {
	return []string{
		v1beta1.AutoscalerCPUAnnotation, v1beta1.AutoscalerMemoryAnnotation, v1beta1.AutoscalerEphemeralDiskAnnotation,
		v1beta1.AutoscalerMaxPodsAnnotation, v1beta1.AutoscalerGPUTypeAnnotation, v1beta1.AutoscalerGPUCountAnnotation,
		v1beta1.AutoscalerLabelsAnnotation, v1beta1.AutoscalerTaintsAnnotation, v1beta1.AutoscalerDRADriverAnnotation,
		v1beta1.AutoscalerCSIDriverAnnotation,
	}
}

// Capacity returns the annotations that describe the Nodes of machines with this template and one of the classes.
// Unknown values are omitted. If there are several classes, each annotation is true for the Nodes of all classes: a
// resource is the minimum, and a label exists only if all classes have the same value. Values in a class's spec take
// precedence over those of its provider. Startup taints are omitted, because they are removed before pods are
// scheduled.
func Capacity(template *v1beta1.MachineSpec, classes ...*v1beta1.MachineClass) map[string]string {
	annotations := map[string]string{}
	put := func(key, value string) {
		if value != "" {
			annotations[key] = value
		}
	}
	node := commonNode(classes)
	put(v1beta1.AutoscalerCPUAnnotation, quantity(node.resources, corev1.ResourceCPU))
	put(v1beta1.AutoscalerMemoryAnnotation, quantity(node.resources, corev1.ResourceMemory))
	put(v1beta1.AutoscalerEphemeralDiskAnnotation, quantity(node.resources, corev1.ResourceEphemeralStorage))
	put(v1beta1.AutoscalerMaxPodsAnnotation, number(node.resources[corev1.ResourcePods]))
	gpu := gpuOf(node.resources)
	gpus := number(node.resources[gpu])
	switch {
	case node.omitsDevices:
	case node.draDriver != "":
		if node.draDevices > 0 {
			gpus = strconv.Itoa(int(node.draDevices))
		}
		put(v1beta1.AutoscalerDRADriverAnnotation, node.draDriver)
		put(v1beta1.AutoscalerGPUCountAnnotation, gpus)
	case gpus != "":
		put(v1beta1.AutoscalerGPUTypeAnnotation, string(gpu))
		put(v1beta1.AutoscalerGPUCountAnnotation, gpus)
	}
	put(v1beta1.AutoscalerCSIDriverAnnotation, csiDrivers(node.volumeLimits))
	put(v1beta1.AutoscalerLabelsAnnotation, labels(node.labels, template.Node.Labels))
	put(v1beta1.AutoscalerTaintsAnnotation, taints(template.Node.Taints))
	return annotations
}

// quantity returns a positive quantity, or "".
func quantity(resources corev1.ResourceList, name corev1.ResourceName) string {
	q := resources[name]
	if q.Sign() <= 0 {
		return ""
	}
	return q.String()
}

// number returns a positive quantity as a whole number, or "". The autoscaler does not accept quantities with a unit
// suffix such as 2k.
func number(q resource.Quantity) string {
	if q.Value() <= 0 {
		return ""
	}
	return strconv.FormatInt(q.Value(), 10)
}

// gpuOf returns the extended resource that the autoscaler treats as the GPU, or "". The autoscaler supports one GPU
// resource for each node group. gpuOf prefers the alphabetically first resource with a name such as nvidia.com/gpu. If
// no name has this form and there is exactly one extended resource, gpuOf returns this resource.
func gpuOf(resources corev1.ResourceList) corev1.ResourceName {
	var extended []corev1.ResourceName
	for name, q := range resources {
		domain, _, isExtended := strings.Cut(string(name), "/")
		if isExtended && q.Sign() > 0 && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") {
			extended = append(extended, name)
		}
	}
	slices.Sort(extended)
	for _, name := range extended {
		if _, device, _ := strings.Cut(string(name), "/"); strings.HasPrefix(device, "gpu") {
			return name
		}
	}
	if len(extended) == 1 {
		return extended[0]
	}
	return ""
}

// csiDrivers returns driver=limit pairs. For the autoscaler, 0 means no limit.
func csiDrivers(limits map[string]int32) string {
	pairs := make([]string, 0, len(limits))
	for driver, limit := range limits {
		pairs = append(pairs, fmt.Sprintf("%s=%d", driver, limit))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// labels returns key=value pairs of the labels that a Node will have. The labels of the template take precedence.
func labels(class, template map[string]string) string {
	all := maps.Clone(class)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, template)
	pairs := make([]string, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, key+"="+all[key])
	}
	return strings.Join(pairs, ",")
}

func taints(all []corev1.Taint) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = t.ToString()
	}
	return strings.Join(texts, ",")
}

// Problem is the reason why an autoscaler cannot scale a node group up from zero machines. Reason is empty if there is
// no problem.
type Problem struct{ Reason, Message string }

// scaleFromZeroProblem evaluates the annotations of all field managers as the autoscaler does. If no annotation
// contains the capacity, it returns the given problem.
func scaleFromZeroProblem(annotations map[string]string, missing Problem) Problem {
	for _, key := range []string{v1beta1.AutoscalerCPUAnnotation, v1beta1.AutoscalerMemoryAnnotation,
		v1beta1.AutoscalerEphemeralDiskAnnotation} {
		if value := annotations[key]; value != "" {
			if _, err := resource.ParseQuantity(value); err != nil {
				return malformed(key, value, "a quantity such as 4 or 16Gi")
			}
		}
	}
	for _, key := range []string{v1beta1.AutoscalerMaxPodsAnnotation, v1beta1.AutoscalerGPUCountAnnotation} {
		if value := annotations[key]; value != "" {
			if _, err := strconv.ParseInt(value, 10, 0); err != nil {
				return malformed(key, value, "a whole number")
			}
		}
	}
	for _, key := range []string{v1beta1.AutoscalerCPUAnnotation, v1beta1.AutoscalerMemoryAnnotation} {
		if q, err := resource.ParseQuantity(annotations[key]); err != nil || q.IsZero() {
			return missing
		}
	}
	return Problem{}
}

func malformed(key, value, wanted string) Problem {
	return Problem{v1beta1.ReasonMalformedCapacity, fmt.Sprintf(
		"The group cannot be scaled from zero because the autoscaler cannot read metadata.annotations[%s]: %q is not %s. "+
			"Correct the annotation, or remove it so that Machinist sets it.", key, value, wanted)}
}
