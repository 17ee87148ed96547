package driver

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

const (
	// podsPerNode is the default limit of the kubelet.
	podsPerNode = 110
	// gpuResource is the default resource name of a GPU.
	gpuResource = "nvidia.com/gpu"
	// gpuSpec is the extra spec of a flavor with the devices of a node, such as "amd.com/gpu=2".
	gpuSpec = "machinist:gpu"
)

// Capacity implements provider.Driver. The capacity comes from the flavor.
func (d *Driver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, spec.Region)
	if err != nil {
		return provider.Capacity{}, err
	}
	flavor, err := c.findFlavor(ctx, spec.Flavor)
	if err != nil {
		return provider.Capacity{}, err
	}
	specs := flavor.ExtraSpecs
	if specs == nil {
		// Lists contain extra specs only since microversion 2.61.
		if specs, err = flavors.ListExtraSpecs(ctx, c.compute, flavor.ID).Extract(); err != nil {
			return provider.Capacity{}, translate(ctx, err, "get the extra specs of flavor "+flavor.ID)
		}
	}
	image, err := c.findImage(ctx, spec.Image)
	if err != nil {
		return provider.Capacity{}, err
	}
	return provider.Capacity{
		Resources: resources(flavor, specs, spec.RootVolume), InstanceType: flavor.Name, Region: c.region,
		Zone: spec.AvailabilityZone, OperatingSystem: "linux", Architecture: architecture(image.Properties),
	}, nil
}

// resources returns the allocatable resources of a flavor with default kubelet settings. The kubelet reserves 100 MiB
// of memory and a tenth of the disk. The memory of the operating system is unknown and not subtracted.
func resources(f *flavors.Flavor, specs map[string]string, root *machine.RootVolume) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
		corev1.ResourceCPU:    *resource.NewQuantity(int64(f.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(max(0, int64(f.RAM)<<20-100<<20), resource.BinarySI),
	}
	disk := int64(f.Disk)
	if root != nil {
		disk = int64(root.SizeGiB)
	}
	if disk > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk<<30*9/10, resource.BinarySI)
	}
	if name, n := gpus(specs); n > 0 {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// gpus uses the first source that exists: the extra spec machinist:gpu, virtual GPUs, and passed-through PCI devices
// whose alias contains "gpu". https://docs.openstack.org/nova/latest/configuration/extra-specs.html
func gpus(specs map[string]string) (name string, n int64) {
	if own := specs[gpuSpec]; own != "" {
		name, text, _ := strings.Cut(own, "=")
		if n, err := strconv.ParseInt(text, 10, 16); err == nil && n > 0 && len(validation.IsQualifiedName(name)) == 0 {
			return name, n
		}
		return "", 0
	}
	if n, err := strconv.ParseInt(specs["resources:VGPU"], 10, 16); err == nil && n > 0 {
		return gpuResource, n
	}
	for alias := range strings.SplitSeq(specs["pci_passthrough:alias"], ",") {
		device, text, _ := strings.Cut(strings.TrimSpace(alias), ":")
		if count, err := strconv.ParseInt(text, 10, 16); err == nil && count > 0 &&
			strings.Contains(strings.ToLower(device), "gpu") {
			n += count
		}
	}
	return gpuResource, n
}

// architecture returns the architecture of an image, or an empty string if the image does not specify it.
// https://docs.openstack.org/glance/latest/admin/useful-image-properties.html
func architecture(properties map[string]any) string {
	for _, property := range []string{"hw_architecture", "architecture"} {
		switch properties[property] {
		case "x86_64":
			return "amd64"
		case "aarch64":
			return "arm64"
		}
	}
	return ""
}
