package driver

import (
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/providers/openstack/machine"
)

func TestCapacityComesFromFlavor(t *testing.T) {
	f := &flavors.Flavor{VCPUs: 2, RAM: 2048, Disk: 20}
	list := resources(f, nil, nil)
	if list.Cpu().Value() != 2 || list.Memory().Value() != 1948<<20 || list.StorageEphemeral().Value() != 18<<30 ||
		list.Pods().Value() != 110 || len(list) != 4 {
		t.Errorf("got %v", list)
	}
	if list := resources(f, nil, &machine.RootVolume{SizeGiB: 100}); list.StorageEphemeral().Value() != 90<<30 {
		t.Errorf("root volume of 100 GiB: got %v", list)
	}
	if list := resources(&flavors.Flavor{}, nil, nil); list.Memory().Sign() != 0 {
		t.Errorf("empty flavor: got %v", list)
	}
}

func TestGPUsComeFromExtraSpecs(t *testing.T) {
	for name, test := range map[string]struct {
		specs map[string]string
		want  map[corev1.ResourceName]int64
	}{
		"none":                  {nil, nil},
		"virtual":               {map[string]string{"resources:VGPU": "2"}, map[corev1.ResourceName]int64{gpuResource: 2}},
		"passed through":        {map[string]string{"pci_passthrough:alias": "gpu-a100:2, nic:1,GPUx:1"}, map[corev1.ResourceName]int64{gpuResource: 3}},
		"other device":          {map[string]string{"pci_passthrough:alias": "qat:2"}, nil},
		"invalid numbers":       {map[string]string{"resources:VGPU": "many", "pci_passthrough:alias": "gpu:-1,gpu"}, nil},
		"machinist:gpu":         {map[string]string{"machinist:gpu": "amd.com/gpu=4", "resources:VGPU": "2"}, map[corev1.ResourceName]int64{"amd.com/gpu": 4}},
		"invalid resource name": {map[string]string{"machinist:gpu": "what is this=4"}, nil},
	} {
		resourceName, n := gpus(test.specs)
		got := map[corev1.ResourceName]int64{}
		if n > 0 {
			got[corev1.ResourceName(resourceName)] = n
		}
		if len(got) != len(test.want) || n != test.want[corev1.ResourceName(resourceName)] {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestArchitectureComesFromImage(t *testing.T) {
	for want, properties := range map[string]map[string]any{
		"amd64": {"hw_architecture": "x86_64"}, "arm64": {"architecture": "aarch64"}, "": {"hw_architecture": 7},
	} {
		if got := architecture(properties); got != want {
			t.Errorf("%v: got %q, want %q", properties, got, want)
		}
	}
}
