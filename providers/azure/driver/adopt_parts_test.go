package driver

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// An attached disk is a volume of a pod or belongs to a user. Such a disk survives the machine.
//
// Rule: azure-adopted-parts-go.
func TestAttachedDisksAreKept(t *testing.T) {
	disk := func(lun int32, made armcompute.DiskCreateOptionTypes,
		option armcompute.DiskDeleteOptionTypes) *armcompute.DataDisk {
		return &armcompute.DataDisk{Lun: &lun, CreateOption: &made, DeleteOption: ref(option)}
	}
	const attach, empty = armcompute.DiskCreateOptionTypesAttach, armcompute.DiskCreateOptionTypesEmpty
	const detach, remove = armcompute.DiskDeleteOptionTypesDetach, armcompute.DiskDeleteOptionTypesDelete
	storage := func(disks ...*armcompute.DataDisk) *armcompute.VirtualMachineProperties {
		return &armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{DataDisks: disks}}
	}
	for name, test := range map[string]struct {
		has, want *armcompute.VirtualMachineProperties
	}{
		"no properties":                    {nil, nil},
		"one attached volume":              {storage(disk(0, attach, detach)), nil},
		"already deleted with the machine": {storage(disk(0, empty, remove), disk(1, attach, detach)), nil},
		"one kept disk, one volume":        {storage(disk(0, empty, detach), disk(1, attach, detach)), storage(disk(0, empty, remove), disk(1, attach, detach))},
		"ephemeral root disk":              {&armcompute.VirtualMachineProperties{StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{DiffDiskSettings: &armcompute.DiffDiskSettings{}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deleteOptionsChange(test.has); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %s, want %s", jsonOf(got), jsonOf(test.want))
			}
		})
	}
}

func jsonOf(p *armcompute.VirtualMachineProperties) string {
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
