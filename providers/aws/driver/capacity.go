package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
)

// Capacity implements provider.Driver. The zone is that of the subnet. The memory is that of the instance type
// without a tenth, because the hypervisor, the firmware and the kernel need a part of it.
func (d *Driver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	c, err := d.clients(req.Class.Credentials, spec.Region)
	if err != nil {
		return provider.Capacity{}, err
	}
	t, err := c.instanceType(ctx, spec.InstanceType)
	if err != nil {
		return provider.Capacity{}, err
	}
	image, err := c.image(ctx, spec.ImageID)
	if err != nil {
		return provider.Capacity{}, err
	}
	if err := checkType(&spec, t, image); err != nil {
		return provider.Capacity{}, err
	}
	zone, err := c.zone(ctx, spec.Subnet)
	if err != nil {
		return provider.Capacity{}, err
	}
	return capacityOf(&spec, t, image, c.region, zone), nil
}

// checkType returns an error if the class cannot be served, so that it is not Ready.
func checkType(spec *machine.Spec, t types.InstanceTypeInfo, image types.Image) error {
	if t.ProcessorInfo != nil && len(t.ProcessorInfo.SupportedArchitectures) > 0 && image.Architecture != "" &&
		!slices.Contains(t.ProcessorInfo.SupportedArchitectures, types.ArchitectureType(image.Architecture)) {
		return missing("imageID", "the image %s has the architecture %s, which the instance type %s does not support",
			spec.ImageID, image.Architecture, spec.InstanceType)
	}
	if t.NetworkInfo == nil || t.NetworkInfo.MaximumNetworkInterfaces == nil {
		return nil
	}
	if most := int(*t.NetworkInfo.MaximumNetworkInterfaces); 1+len(spec.NetworkInterfaces) > most {
		return missing("networkInterfaces", "the instance type %s supports %d network interfaces, and the class has %d",
			spec.InstanceType, most, 1+len(spec.NetworkInterfaces))
	}
	return nil
}

// instanceType returns an instance type. Its properties never change, so they are cached.
func (c *clients) instanceType(ctx context.Context, name string) (types.InstanceTypeInfo, error) {
	c.facts.mu.Lock()
	known, found := c.facts.kinds[name]
	c.facts.mu.Unlock()
	if found {
		return known, nil
	}
	out, err := send(ctx, c, "get instance type "+name, c.ec2.DescribeInstanceTypes,
		&ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{types.InstanceType(name)}})
	if err != nil {
		return types.InstanceTypeInfo{}, createError(err)
	}
	for _, t := range out.InstanceTypes {
		if string(t.InstanceType) == name {
			c.facts.mu.Lock()
			defer c.facts.mu.Unlock()
			if len(c.facts.kinds) >= maxFacts {
				clear(c.facts.kinds)
			}
			c.facts.kinds[name] = t
			return t, nil
		}
	}
	return types.InstanceTypeInfo{}, missing("instanceType", "region %s does not offer the instance type %s", c.region,
		name)
}

// zone returns the zone of a subnet.
func (c *clients) zone(ctx context.Context, r machine.Reference) (string, error) {
	id, _, err := c.subnet(ctx, "subnet", r)
	if err != nil {
		return "", err
	}
	out, err := send(ctx, c, "get subnet "+id, c.ec2.DescribeSubnets,
		&ec2.DescribeSubnetsInput{SubnetIds: []string{id}})
	if err != nil {
		return "", createError(err)
	}
	for _, s := range out.Subnets {
		if aws.ToString(s.SubnetId) == id {
			return aws.ToString(s.AvailabilityZone), nil
		}
	}
	return "", missing("subnet", "the subnet %s does not exist in region %s", id, c.region)
}

func capacityOf(spec *machine.Spec, t types.InstanceTypeInfo, image types.Image, region,
	zone string) provider.Capacity {
	list := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(spec.MaxPods), resource.DecimalSI)}
	cpus := int64(0)
	if t.VCpuInfo != nil {
		cpus = int64(aws.ToInt32(t.VCpuInfo.DefaultVCpus))
	}
	if o := spec.CPUOptions; o != nil {
		cpus = int64(o.CoreCount) * int64(o.ThreadsPerCore)
	}
	if cpus > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	}
	if t.MemoryInfo != nil && aws.ToInt64(t.MemoryInfo.SizeInMiB) > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(aws.ToInt64(t.MemoryInfo.SizeInMiB)<<20/10*9,
			resource.BinarySI)
	}
	if t.GpuInfo != nil {
		for _, g := range t.GpuInfo.Gpus {
			name := map[string]corev1.ResourceName{"NVIDIA": "nvidia.com/gpu",
				"AMD": "amd.com/gpu"}[aws.ToString(g.Manufacturer)]
			if name != "" && aws.ToInt32(g.Count) > 0 {
				list[name] = *resource.NewQuantity(int64(aws.ToInt32(g.Count)), resource.DecimalSI)
			}
		}
	}
	if spec.RootVolume.SizeGiB > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(spec.RootVolume.SizeGiB)<<30/10*9,
			resource.BinarySI)
	}
	out := provider.Capacity{Resources: list, InstanceType: spec.InstanceType, Region: region, Zone: zone,
		OperatingSystem: "linux"}
	out.Architecture = map[types.ArchitectureValues]string{types.ArchitectureValuesX8664: "amd64",
		types.ArchitectureValuesArm64: "arm64"}[image.Architecture]
	return out
}
