package autoscaling

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/api/v1beta1"
)

// Rules: capacity-of-empty-node-groups.
func TestCapacityOfSeveralClasses(t *testing.T) {
	type classes = []v1beta1.MachineClass
	class := func(stated *v1beta1.ClassCapacity, info *v1beta1.NodeInfo, pairs ...string) (c v1beta1.MachineClass) {
		c.Spec.Capacity, c.Status.NodeInfo, c.Status.Capacity = stated, info, resources(pairs...)
		return c
	}
	in := func(zone, instanceType string) *v1beta1.NodeInfo {
		return &v1beta1.NodeInfo{Architecture: "amd64", OperatingSystem: "linux", Region: "north", Zone: zone, InstanceType: instanceType}
	}
	volumes := func(drivers ...v1beta1.CSIDriver) *v1beta1.ClassCapacity {
		return &v1beta1.ClassCapacity{CSIDrivers: drivers}
	}
	dra := &v1beta1.ClassCapacity{DRADriver: &v1beta1.DRADriver{Name: "gpu.nvidia.com", Devices: 4}}
	for name, test := range map[string]struct {
		classes classes
		want    map[string]string
	}{
		"the minimum of each resource": {
			classes{class(nil, nil, "cpu", "4", "memory", "8Gi", "pods", "110"),
				class(nil, nil, "cpu", "2", "memory", "16Gi", "pods", "50"),
				class(nil, nil, "cpu", "3", "memory", "9Gi", "pods", "60")},
			map[string]string{"cpu": "2", "memory": "8Gi", "maxPods": "50"}},
		"a resource that one class does not state": {
			classes{class(nil, nil, "cpu", "4", "memory", "8Gi"), class(nil, nil, "cpu", "2")}, map[string]string{"cpu": "2"}},
		"the spec of a class": {
			classes{class(nil, nil, "cpu", "4"), class(&v1beta1.ClassCapacity{Resources: resources("cpu", "1")}, nil, "cpu", "8")},
			map[string]string{"cpu": "1"}},
		"several zones": {classes{class(nil, in("north-1", "small")), class(nil, in("north-2", "small"))},
			map[string]string{"labels": "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=small," +
				"topology.kubernetes.io/region=north"}},
		"several instance types in one zone": {classes{class(nil, in("north-1", "small")), class(nil, in("north-1", "large"))},
			map[string]string{"labels": "kubernetes.io/arch=amd64,kubernetes.io/os=linux,topology.kubernetes.io/region=north," +
				"topology.kubernetes.io/zone=north-1"}},
		"a zone that one class does not state": {classes{class(nil, &v1beta1.NodeInfo{Zone: "north-1"}), class(nil, nil)},
			map[string]string{}},
		"a GPU in all classes": {classes{class(nil, nil, "nvidia.com/gpu", "4"), class(nil, nil, "nvidia.com/gpu", "2")},
			map[string]string{"gpu-type": "nvidia.com/gpu", "gpu-count": "2"}},
		"a GPU in one class": {classes{class(nil, nil, "nvidia.com/gpu", "4", "cpu", "1"), class(nil, nil, "cpu", "1")},
			map[string]string{"cpu": "1"}},
		"a DRA driver in all classes": {classes{class(dra, nil), class(&v1beta1.ClassCapacity{DRADriver: &v1beta1.DRADriver{
			Name: "gpu.nvidia.com", Devices: 2}}, nil)}, map[string]string{"dra-driver": "gpu.nvidia.com", "gpu-count": "2"}},
		"a DRA driver in one class, a device plugin in the others": {classes{class(dra, nil, "nvidia.com/gpu", "4"),
			class(nil, nil, "nvidia.com/gpu", "4"), class(nil, nil, "nvidia.com/gpu", "4")}, map[string]string{}},
		"CSI drivers": {classes{
			class(volumes(v1beta1.CSIDriver{Name: "a"}, v1beta1.CSIDriver{Name: "b", VolumeLimit: 9}, v1beta1.CSIDriver{Name: "c"},
				v1beta1.CSIDriver{Name: "d"}), nil),
			class(volumes(v1beta1.CSIDriver{Name: "a", VolumeLimit: 5}, v1beta1.CSIDriver{Name: "b", VolumeLimit: 7},
				v1beta1.CSIDriver{Name: "d"}), nil)},
			map[string]string{"csi-driver": "a=5,b=7,d=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*v1beta1.MachineClass
			for i := range test.classes {
				all = append(all, test.classes[i].DeepCopy())
			}
			got := shortKeys(Capacity(&v1beta1.MachineSpec{}, all...))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			for i := range all {
				if diff := cmp.Diff(&test.classes[i], all[i]); diff != "" {
					t.Errorf("a class in the cache was changed: %s", diff)
				}
			}
			slices.Reverse(all)
			if diff := cmp.Diff(test.want, shortKeys(Capacity(&v1beta1.MachineSpec{}, all...))); diff != "" {
				t.Errorf("in the reverse order: %s", diff)
			}
		})
	}
}

func TestClassesOf(t *testing.T) {
	zero := int32(0)
	domain := func(weight, largest *int32, classes ...string) (d v1beta1.PlacementDomain) {
		d.Weight, d.MaxReplicas = weight, largest
		for _, class := range classes {
			d.Options = append(d.Options, v1beta1.PlacementOption{ClassName: class})
		}
		return d
	}
	group := map[string]string{v1beta1.AutoscalerMaxSizeAnnotation: "3"}
	for name, test := range map[string]struct {
		annotations map[string]string
		class       string
		placement   *v1beta1.Placement
		want        []string
	}{
		"a class":                    {annotations: group, class: "small", want: []string{"small"}},
		"a class, and no node group": {class: "small"},
		"an inline providerSpec":     {annotations: group},
		"a placement":                {annotations: group, placement: &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{domain(nil, nil, "b", "a"), domain(nil, nil, "c")}}, want: []string{"b", "a", "c"}},
		"a placement, no node group": {placement: &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{domain(nil, nil, "a")}}},
		"domains without new machines": {annotations: group, placement: &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{
			domain(&zero, nil, "a"), domain(nil, &zero, "b"), domain(nil, nil, "c")}}, want: []string{"c"}},
	} {
		d, set := &v1beta1.MachineDeployment{}, &v1beta1.MachineSet{}
		d.Annotations, set.Annotations = test.annotations, test.annotations
		d.Spec.Placement, set.Spec.Placement = test.placement, test.placement
		if test.class != "" {
			d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: test.class}
			set.Spec.Template.Spec.ClassRef = d.Spec.Template.Spec.ClassRef
		}
		if got := ClassesOf(d); !slices.Equal(got, test.want) {
			t.Errorf("%s: the deployment has the classes %q, want %q", name, got, test.want)
		}
		if got := ClassesOf(set); !slices.Equal(got, test.want) {
			t.Errorf("%s: the set has the classes %q, want %q", name, got, test.want)
		}
	}
}
