package driver

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/azure/machine"
)

// podsPerNode is the default maximum of the kubelet.
const podsPerNode = 110

// Capacity implements provider.Driver. Azure's list of VM sizes contains the CPUs and the memory of each size. It also
// says whether the subscription may use the size in the region and zone.
// https://learn.microsoft.com/rest/api/compute/resource-skus/list
func (d *Driver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	c, err := d.clients(req.Class.Credentials)
	if err != nil {
		return provider.Capacity{}, err
	}
	pager := c.skus.NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: ref("location eq '" +
		spec.Location + "'")})
	pages := httpapi.List(ctx)
	for pager.More() {
		page, err := pager.NextPage(pages)
		if err != nil {
			return provider.Capacity{}, translate(ctx, err, "list virtual machine sizes")
		}
		for _, sku := range page.Value {
			if value(sku.ResourceType) == "virtualMachines" && strings.EqualFold(value(sku.Name), spec.VMSize) &&
				inLocation(sku, spec.Location) {
				if err := checkAvailable(sku, &spec); err != nil {
					return provider.Capacity{}, err
				}
				return capacityOf(sku, &spec), nil
			}
		}
	}
	return provider.Capacity{}, notOffered("vmSize", "region %q has no size %q", spec.Location, spec.VMSize)
}

func notOffered(field, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = field
	return e
}

func inLocation(sku *armcompute.ResourceSKU, location string) bool {
	return slices.ContainsFunc(sku.Locations, func(l *string) bool { return strings.EqualFold(value(l), location) })
}

// checkAvailable returns an error for a size that the subscription cannot use in the region or zone.
func checkAvailable(sku *armcompute.ResourceSKU, s *machine.Spec) error {
	if s.Zone != "" {
		has := slices.ContainsFunc(sku.LocationInfo, func(info *armcompute.ResourceSKULocationInfo) bool {
			return info != nil && strings.EqualFold(value(info.Location), s.Location) &&
				slices.ContainsFunc(info.Zones, func(z *string) bool { return value(z) == s.Zone })
		})
		if !has {
			return notOffered("zone", "size %q is not in zone %q of region %q", s.VMSize, s.Zone, s.Location)
		}
	}
	for _, r := range sku.Restrictions {
		if r == nil || value(r.ReasonCode) != armcompute.ResourceSKURestrictionsReasonCodeNotAvailableForSubscription {
			continue
		}
		switch value(r.Type) {
		case armcompute.ResourceSKURestrictionsTypeLocation:
			return notOffered("vmSize", "the subscription may not use size %q in region %q", s.VMSize, s.Location)
		case armcompute.ResourceSKURestrictionsTypeZone:
			if s.Zone != "" && r.RestrictionInfo != nil && slices.ContainsFunc(r.RestrictionInfo.Zones, func(z *string) bool {
				return value(z) == s.Zone
			}) {
				return notOffered("zone", "the subscription may not use size %q in zone %q of region %q", s.VMSize, s.Zone,
					s.Location)
			}
		}
	}
	return nil
}

// capacityOf returns the allocatable resources of a size with default kubelet settings. The kubelet reserves 100 MiB of
// memory and a tenth of the disk. The memory of the operating system is unknown and not subtracted.
func capacityOf(sku *armcompute.ResourceSKU, s *machine.Spec) provider.Capacity {
	has := map[string]string{}
	for _, capability := range sku.Capabilities {
		if capability != nil {
			has[value(capability.Name)] = value(capability.Value)
		}
	}
	list := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(podsPerNode, resource.DecimalSI)}
	cpus := has["vCPUsAvailable"]
	if cpus == "" {
		cpus = has["vCPUs"]
	}
	if n, err := strconv.ParseInt(cpus, 10, 32); err == nil && n > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	if gib, err := strconv.ParseFloat(has["MemoryGB"], 64); err == nil && gib > 0 && gib < 1<<20 && !math.IsNaN(gib) {
		list[corev1.ResourceMemory] = *resource.NewQuantity(max(0, int64(gib*(1<<30))-100<<20), resource.BinarySI)
	}
	if n, err := strconv.ParseInt(has["GPUs"], 10, 32); err == nil && n > 0 {
		list["nvidia.com/gpu"] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	if s.OSDisk.SizeGiB > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(s.OSDisk.SizeGiB)<<30*9/10, resource.BinarySI)
	}
	out := provider.Capacity{Resources: list, InstanceType: s.VMSize, Region: s.Location, OperatingSystem: "linux"}
	if s.Zone != "" {
		out.Zone = s.Location + "-" + s.Zone
	}
	switch strings.ToLower(has["CpuArchitectureType"]) {
	case "x64":
		out.Architecture = "amd64"
	case "arm64":
		out.Architecture = "arm64"
	}
	return out
}
