package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/vsphere/machine"
)

const (
	// podsPerNode is the default limit of the kubelet.
	podsPerNode = 110
	// gpuResource is the default resource name of a GPU.
	gpuResource = "nvidia.com/gpu"
)

// Capacity implements provider.Driver. Capacity makes no call: the specification contains the size. The kubelet
// reserves 100 MiB of memory and a tenth of the disk. The memory of the operating system is unknown and not subtracted.
// The instance type and the operating system are unknown too, because the cloud controller manager derives the label
// from what the guest reports.
func (d *Driver) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	if _, err := d.session(req.Class.Credentials, spec.VCenter); err != nil {
		return provider.Capacity{}, err
	}
	list := corev1.ResourceList{
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
		corev1.ResourceCPU:    *resource.NewQuantity(int64(spec.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(max(0, spec.MemoryMiB<<20-100<<20), resource.BinarySI),
	}
	if spec.RootDiskGiB > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(spec.RootDiskGiB)*gib*9/10, resource.BinarySI)
	}
	if n := len(spec.VGPUProfiles); n > 0 {
		list[gpuResource] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return provider.Capacity{Resources: list, Region: spec.Region, Zone: spec.Zone}, nil
}
