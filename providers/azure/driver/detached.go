package driver

import (
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// tagDetached says of an adopted machine which of its parts were to stay when it goes: "os", the number of each data
// disk as "d3", and the place of each interface in the list as "n0". Adopt writes it and Disown reads it.
const tagDetached = "machinist-detached"

// maxDetached is what the value of a tag holds. Parts beyond it would stay with ours when a migration is aborted.
const maxDetached = 256

// detachedIn writes down the parts that withParts changes.
func detachedIn(p *armcompute.VirtualMachineProperties) string {
	change := withParts(p)
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

// detached is the change by which the parts that detachedIn wrote down stay again, nil where there are none. A disk
// that was detached since is not there to be changed.
func detached(p *armcompute.VirtualMachineProperties, written string) *armcompute.VirtualMachineProperties {
	if p == nil || written == "" {
		return nil
	}
	stays := map[string]bool{}
	for part := range strings.FieldsSeq(written) {
		stays[part] = true
	}
	var change armcompute.VirtualMachineProperties
	if s := p.StorageProfile; s != nil {
		var disks []*armcompute.DataDisk
		differs := false
		for _, data := range s.DataDisks {
			disk := *data
			if stays["d"+strconv.Itoa(int(value(disk.Lun)))] {
				disk.DeleteOption, differs = ref(armcompute.DiskDeleteOptionTypesDetach), true
			}
			disks = append(disks, &disk)
		}
		if differs || stays["os"] && s.OSDisk != nil {
			change.StorageProfile = &armcompute.StorageProfile{}
		}
		if differs {
			change.StorageProfile.DataDisks = disks
		}
		if stays["os"] && s.OSDisk != nil {
			disk := *s.OSDisk
			disk.DeleteOption = ref(armcompute.DiskDeleteOptionTypesDetach)
			change.StorageProfile.OSDisk = &disk
		}
	}
	if n := p.NetworkProfile; n != nil && strings.Contains(written, "n") {
		change.NetworkProfile = &armcompute.NetworkProfile{}
		for i, one := range n.NetworkInterfaces {
			reference := armcompute.NetworkInterfaceReference{ID: one.ID,
				Properties: &armcompute.NetworkInterfaceReferenceProperties{}}
			if one.Properties != nil {
				*reference.Properties = *one.Properties
			}
			if stays["n"+strconv.Itoa(i)] {
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
