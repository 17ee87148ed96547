package driver

import (
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// tagDetached lists the parts of an adopted machine that Azure would have kept after its deletion. Adopt writes the tag
// and Disown reads it.
const tagDetached = "machinist-detached"

// maxDetached is the maximum length of a tag value. If a list of parts is longer, its last parts are omitted. If the
// migration is aborted, the omitted parts keep the delete option "Delete".
const maxDetached = 256

// encodeDetached returns a list such as "os d0 n1" of the parts whose delete option deleteOptionsChange changes.
func encodeDetached(p *armcompute.VirtualMachineProperties) string {
	change := deleteOptionsChange(p)
	if change == nil {
		return ""
	}
	var parts []string
	if change.StorageProfile != nil {
		if change.StorageProfile.OSDisk != nil {
			parts = append(parts, "os")
		}
		for i, disk := range change.StorageProfile.DataDisks {
			if value(p.StorageProfile.DataDisks[i].DeleteOption) != value(disk.DeleteOption) {
				parts = append(parts, "d"+strconv.Itoa(int(value(disk.Lun))))
			}
		}
	}
	if change.NetworkProfile != nil {
		for i, n := range p.NetworkProfile.NetworkInterfaces {
			if n.Properties == nil || value(n.Properties.DeleteOption) != armcompute.DeleteOptionsDelete {
				parts = append(parts, "n"+strconv.Itoa(i))
			}
		}
	}
	for len(strings.Join(parts, " ")) > maxDetached {
		parts = parts[:len(parts)-1]
	}
	return strings.Join(parts, " ")
}

// restoreDetached returns the update that makes Azure keep the listed parts again, or nil if the machine has none of
// these parts. restoreDetached skips disks that were detached meanwhile.
func restoreDetached(p *armcompute.VirtualMachineProperties, list string) *armcompute.VirtualMachineProperties {
	if p == nil || list == "" {
		return nil
	}
	kept := map[string]bool{}
	for part := range strings.FieldsSeq(list) {
		kept[part] = true
	}
	var change armcompute.VirtualMachineProperties
	if s := p.StorageProfile; s != nil {
		var disks []*armcompute.DataDisk
		differs := false
		for _, data := range s.DataDisks {
			disk := *data
			if kept["d"+strconv.Itoa(int(value(disk.Lun)))] {
				disk.DeleteOption, differs = ref(armcompute.DiskDeleteOptionTypesDetach), true
			}
			disks = append(disks, &disk)
		}
		if differs || kept["os"] && s.OSDisk != nil {
			change.StorageProfile = &armcompute.StorageProfile{}
		}
		if differs {
			change.StorageProfile.DataDisks = disks
		}
		if kept["os"] && s.OSDisk != nil {
			disk := *s.OSDisk
			disk.DeleteOption = ref(armcompute.DiskDeleteOptionTypesDetach)
			change.StorageProfile.OSDisk = &disk
		}
	}
	if n := p.NetworkProfile; n != nil && strings.Contains(list, "n") {
		change.NetworkProfile = &armcompute.NetworkProfile{}
		for i, existing := range n.NetworkInterfaces {
			reference := armcompute.NetworkInterfaceReference{ID: existing.ID,
				Properties: &armcompute.NetworkInterfaceReferenceProperties{}}
			if existing.Properties != nil {
				*reference.Properties = *existing.Properties
			}
			if kept["n"+strconv.Itoa(i)] {
				reference.Properties.DeleteOption = ref(armcompute.DeleteOptionsDetach)
			}
			change.NetworkProfile.NetworkInterfaces = append(change.NetworkProfile.NetworkInterfaces, &reference)
		}
	}
	if change.StorageProfile == nil && change.NetworkProfile == nil {
		return nil
	}
	return &change
}
