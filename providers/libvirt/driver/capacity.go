package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// podsPerNode is the default limit of the kubelet.
const podsPerNode = 110

// Capacity implements provider.Driver. It does not call the hypervisor, because the providerSpec contains all sizes.
// The result is what a kubelet with default settings reports as allocatable. The kubelet reserves 100 MiB of memory and
// a tenth of the disk. The memory of the operating system is unknown and not subtracted.
func (d *Driver) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	return provider.Capacity{
		Resources: corev1.ResourceList{
			corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
			corev1.ResourceCPU:              *resource.NewQuantity(int64(spec.VCPUs), resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(max(0, spec.MemoryMiB-100)<<20, resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(spec.Volume.SizeGiB<<30/10*9, resource.BinarySI),
		},
		InstanceType: instanceType(spec), Zone: spec.Zone, OperatingSystem: "linux", Architecture: spec.Architecture,
	}, nil
}
