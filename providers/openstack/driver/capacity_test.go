package driver

import (
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/providers/openstack/machine"
)

func TestAFlavorIsANodesCapacity(t *testing.T) {
	f := &flavors.Flavor{VCPUs: 2, RAM: 2048, Disk: 20}
	list := resources(f, nil, nil)
	if list.Cpu().Value() != 2 || list.Memory().Value() != 1948<<20 || list.StorageEphemeral().Value() != 18<<30 ||
		list.Pods().Value() != 110 || len(list) != 4 {
		t.Errorf("got %v", list)
	}
	if list := resources(f, nil, &machine.RootVolume{SizeGiB: 100}); list.StorageEphemeral().Value() != 90<<30 {
		t.Errorf("with a root volume: %v", list)
	}
	if list := resources(&flavors.Flavor{}, nil, nil); list.Memory().Sign() != 0 {
		t.Errorf("of nothing: %v", list)
	}
}

func TestExtraSpecsNameGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		specs map[string]string
		want  map[corev1.ResourceName]int64
	}{
		"none":                  {nil, nil},
		"virtual":               {map[string]string{"resources:VGPU": "2"}, map[corev1.ResourceName]int64{gpuResource: 2}},
		"passed through":        {map[string]string{"pci_passthrough:alias": "gpu-a100:2, nic:1,GPUx:1"}, map[corev1.ResourceName]int64{gpuResource: 3}},
		"something else":        {map[string]string{"pci_passthrough:alias": "qat:2"}, nil},
		"not a number":          {map[string]string{"resources:VGPU": "many", "pci_passthrough:alias": "gpu:-1,gpu"}, nil},
		"named":                 {map[string]string{"machinist:gpu": "amd.com/gpu=4", "resources:VGPU": "2"}, map[corev1.ResourceName]int64{"amd.com/gpu": 4}},
		"named, but not a name": {map[string]string{"machinist:gpu": "what is this=4"}, nil},
	} {
		name0, n := devices(test.specs)
		got := map[corev1.ResourceName]int64{}
		if n > 0 {
			got[corev1.ResourceName(name0)] = n
		}
		if len(got) != len(test.want) || n != test.want[corev1.ResourceName(name0)] {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestTheImageTellsTheArchitecture(t *testing.T) {
	for want, properties := range map[string]map[string]any{
		"amd64": {"hw_architecture": "x86_64"}, "arm64": {"architecture": "aarch64"}, "": {"hw_architecture": 7},
	} {
		if got := architecture(properties); got != want {
			t.Errorf("%v: %q, want %q", properties, got, want)
		}
	}
}
