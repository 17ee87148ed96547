package autoscaling

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/api/v1beta1"
)

func shortKeys(annotations map[string]string) map[string]string {
	names := map[string]string{}
	for key, value := range annotations {
		names[strings.TrimPrefix(key, v1beta1.AutoscalerCapacityPrefix)] = value
	}
	return names
}

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// Rules: capacity-of-empty-node-groups.
func TestCapacity(t *testing.T) {
	large := &v1beta1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux", InstanceType: "large", Region: "north",
		Zone: "north-1"}
	for _, test := range []struct {
		name   string
		stated *v1beta1.ClassCapacity
		status v1beta1.MachineClassStatus
		node   v1beta1.NodeTemplate
		want   map[string]string
	}{
		{name: "nothing is known", want: map[string]string{}},
		{
			name: "values of the provider",
			status: v1beta1.MachineClassStatus{NodeInfo: large, Capacity: resources("cpu", "4", "memory", "16Gi",
				"ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "0")},
			want: map[string]string{"cpu": "4", "memory": "16Gi", "ephemeral-disk": "100Gi", "maxPods": "110",
				"labels": "kubernetes.io/arch=arm64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=large," +
					"topology.kubernetes.io/region=north,topology.kubernetes.io/zone=north-1"},
		},
		{
			name: "each value of the class takes precedence over its provider's",
			stated: &v1beta1.ClassCapacity{Resources: resources("memory", "15Gi"), Zone: "north-2", InstanceType: "huge",
				Region: "south", Architecture: "amd64"},
			status: v1beta1.MachineClassStatus{NodeInfo: large, Capacity: resources("cpu", "3920m", "memory", "16Gi")},
			want: map[string]string{"cpu": "3920m", "memory": "15Gi",
				"labels": "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=huge," +
					"topology.kubernetes.io/region=south,topology.kubernetes.io/zone=north-2"},
		},
		{
			name:   "labels and taints of the template",
			status: v1beta1.MachineClassStatus{NodeInfo: &v1beta1.NodeInfo{Zone: "north-1"}},
			node: v1beta1.NodeTemplate{
				Labels: map[string]string{"pool": "batch", "empty": "", "topology.kubernetes.io/zone": "mine"},
				Taints: []corev1.Taint{{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule},
					{Key: "spot", Effect: corev1.TaintEffectNoExecute}},
				StartupTaints: []corev1.Taint{{Key: "network", Effect: corev1.TaintEffectNoSchedule}},
			},
			want: map[string]string{"labels": "empty=,pool=batch,topology.kubernetes.io/zone=mine",
				"taints": "dedicated=batch:NoSchedule,spot:NoExecute"},
		},
		{
			name:   "a GPU and another device",
			status: v1beta1.MachineClassStatus{Capacity: resources("example.com/fpga", "1", "nvidia.com/gpu", "2")},
			want:   map[string]string{"gpu-type": "nvidia.com/gpu", "gpu-count": "2"},
		},
		{
			name:   "a single device that is not a GPU",
			status: v1beta1.MachineClassStatus{Capacity: resources("habana.ai/gaudi", "8", "kubernetes.io/batch-cpu", "1")},
			want:   map[string]string{"gpu-type": "habana.ai/gaudi", "gpu-count": "8"},
		},
		{
			name:   "two devices and no GPU",
			status: v1beta1.MachineClassStatus{Capacity: resources("a.com/x", "1", "b.com/y", "1")},
			want:   map[string]string{},
		},
		{
			name:   "a DRA driver",
			stated: &v1beta1.ClassCapacity{DRADriver: &v1beta1.DRADriver{Name: "gpu.nvidia.com"}},
			status: v1beta1.MachineClassStatus{Capacity: resources("nvidia.com/gpu", "2")},
			want:   map[string]string{"dra-driver": "gpu.nvidia.com", "gpu-count": "2"},
		},
		{
			name:   "a DRA driver with a number of devices",
			stated: &v1beta1.ClassCapacity{DRADriver: &v1beta1.DRADriver{Name: "gpu.nvidia.com", Devices: 7}},
			want:   map[string]string{"dra-driver": "gpu.nvidia.com", "gpu-count": "7"},
		},
		{
			name: "CSI drivers",
			stated: &v1beta1.ClassCapacity{CSIDrivers: []v1beta1.CSIDriver{{Name: "nfs.example.com"},
				{Name: "disk.example.com", VolumeLimit: 25}}},
			want: map[string]string{"csi-driver": "disk.example.com=25,nfs.example.com=0"},
		},
		{
			name: "invalid values are omitted",
			status: v1beta1.MachineClassStatus{Capacity: resources("cpu", "0", "memory", "-1", "pods", "0"),
				NodeInfo: &v1beta1.NodeInfo{InstanceType: "too large, and too odd"}},
			want: map[string]string{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			class := &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Capacity: test.stated}, Status: test.status}
			got := shortKeys(Capacity(&v1beta1.MachineSpec{Node: test.node}, class))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Rules: empty-node-groups-report-unknown-capacity.
func TestScaleFromZeroProblem(t *testing.T) {
	unknown := Problem{v1beta1.ReasonCapacityUnknown, "no capacity"}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		reason      string
		mentions    string
	}{
		{"no annotations", nil, v1beta1.ReasonCapacityUnknown, "no capacity"},
		{"no memory", map[string]string{"cpu": "4"}, v1beta1.ReasonCapacityUnknown, ""},
		{"no CPUs", map[string]string{"cpu": "0", "memory": "4Gi"}, v1beta1.ReasonCapacityUnknown, ""},
		{"CPUs and memory", map[string]string{"cpu": "4", "memory": "4Gi"}, "", ""},
		{"CPUs that are not a quantity", map[string]string{"cpu": "many", "memory": "4Gi"},
			v1beta1.ReasonMalformedCapacity, `/cpu]: "many" is not`},
		{"a number of pods with a unit", map[string]string{"cpu": "4", "memory": "4Gi", "maxPods": "1k"},
			v1beta1.ReasonMalformedCapacity, `/maxPods]: "1k" is not`},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := map[string]string{}
			for name, value := range test.annotations {
				annotations[v1beta1.AutoscalerCapacityPrefix+name] = value
			}
			got := scaleFromZeroProblem(annotations, unknown)
			if got.Reason != test.reason || !strings.Contains(got.Message, test.mentions) {
				t.Errorf("got %+v, want reason %q, message with %q", got, test.reason, test.mentions)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	const smallest, largest = v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation
	for _, test := range []struct {
		name        string
		annotations map[string]string
		group       bool
		min, max    int
		mentions    string
	}{
		{name: "none"},
		{"both", map[string]string{smallest: "0", largest: "4"}, true, 0, 4, ""},
		{"only the largest", map[string]string{largest: "4"}, true, 0, 4, ""},
		{"not a number", map[string]string{smallest: "few", largest: "4"}, true, 0, 0, `min-size]: "few"`},
		{"negative", map[string]string{smallest: "0", largest: "-4"}, true, 0, 0, `max-size]: "-4"`},
		{"smallest above largest",
			map[string]string{smallest: "5", largest: "4"}, true, 0, 0, "less than the smallest size, 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := IsNodeGroup(test.annotations); got != test.group {
				t.Errorf("IsNodeGroup = %t", got)
			}
			lowest, highest, err := Bounds(test.annotations)
			if lowest != test.min || highest != test.max || (err != nil) != (test.mentions != "") ||
				err != nil && !strings.Contains(err.Error(), test.mentions) {
				t.Errorf("got %d, %d, %v", lowest, highest, err)
			}
		})
	}
}
