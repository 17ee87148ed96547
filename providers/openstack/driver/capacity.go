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
	// podsPerNode is the kubelet's default.
	podsPerNode = 110
	// gpuResource is what a GPU is called where the flavor does not say.
	gpuResource = "nvidia.com/gpu"
	// gpuSpec is the extra spec of a flavor that says which devices a node offers, such as "amd.com/gpu=2".
	gpuSpec = "machinist:gpu"
)

// Capacity implements provider.Driver: what the flavor has.
func (d *Driver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, spec.Region)
	if err != nil {
		return provider.Capacity{}, err
	}
	flavor, err := c.flavor(ctx, spec.Flavor)
	if err != nil {
		return provider.Capacity{}, err
	}
	specs := flavor.ExtraSpecs
	if specs == nil {
		// Lists have them since microversion 2.61 only.
		if specs, err = flavors.ListExtraSpecs(ctx, c.compute, flavor.ID).Extract(); err != nil {
			return provider.Capacity{}, translate(ctx, err, "get the extra specs of flavor "+flavor.ID)
		}
	}
	image, err := c.imageOf(ctx, spec.Image)
	if err != nil {
		return provider.Capacity{}, err
	}
	return provider.Capacity{
		Resources: resources(flavor, specs, spec.RootVolume), InstanceType: flavor.Name, Region: c.region,
		Zone: spec.AvailabilityZone, OperatingSystem: "linux", Architecture: architecture(image.Properties),
	}, nil
}

// resources are what the kubelet of such a server reports as allocatable, by its defaults: it keeps back 100 MiB of
// memory and a tenth of the disk. What the server's own system takes is not known.
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
	if name, n := devices(specs); n > 0 {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// devices are the GPUs of a flavor: those that machinist:gpu names, else virtual ones, else passed-through PCI devices
// whose alias has "gpu" in its name.
// https://docs.openstack.org/nova/latest/configuration/extra-specs.html
func devices(specs map[string]string) (name string, n int64) {
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

// architecture is that of the image, empty where it does not say.
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
