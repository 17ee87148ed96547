package fakeazure

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"machinist.dev/machinist/simcloud/host"
)

// machine contains properties of a virtual machine that its resource lacks: the write-only properties and the power
// state.
type machine struct {
	power      string // "running", "deallocated" and so on, or empty before the first boot
	lastPower  string // the power state before the last request to change it
	errorCode  string // the error code if the creation failed
	customData []byte
	boots      int
	hosted     bool
	disk       host.Disk
	console    []string
}

// maxCustomData is the size limit before the encoding. https://learn.microsoft.com/azure/virtual-machines/custom-data
const maxCustomData = 65535

// putVM creates a virtual machine. If the machine exists, putVM changes only its tags. putVM refuses all other
// changes, even some that Azure allows.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
func (c *call) putVM() Answer {
	a := c.azure
	r, id := c.resourceAt(kindVM, c.Names[0])
	if f := c.conditions(r); f != nil {
		return refuse(f)
	}
	if f := vmSchema().check(c.body); f != nil {
		return refuse(f)
	}
	if r != nil {
		if text(r.body, "properties", "osProfile", "adminUsername") != text(c.body, "properties", "osProfile",
			"adminUsername") || valueAt(c.body, "properties", "osProfile", "customData") != nil {
			return refuse(fail(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property 'osProfile' is not allowed."))
		}
		r.body["tags"] = child(c.body, "tags")
		r.touch()
		return answer(http.StatusOK, r.show())
	}
	customData, f := c.checkVM(c.Names[0])
	if f != nil {
		return refuse(f)
	}
	r = &resource{id: id, group: c.Group, name: c.Names[0], kind: kindVM, body: c.body,
		vm: &machine{customData: customData}}
	a.add(r)
	a.created++
	properties := r.properties()
	delete(child(properties, "osProfile"), "customData") // Azure never returns the custom data.
	properties["vmId"], properties["timeCreated"] = uuid(), a.timestamp()
	a.attach(r)
	r.setState("Creating")
	failure := c.asyncFailure
	return a.operate(r, a.options.BootDuration, func() *failureAlias {
		if failure != nil {
			// The failed machine stays, so that clients can read and delete it.
			// https://learn.microsoft.com/azure/virtual-machines/states-billing
			r.vm.errorCode = failure.code
			r.setState("Failed")
			return failure
		}
		r.setState("Succeeded")
		a.boot(r)
		return nil
	}).response(http.StatusCreated, r.show())
}

// failureAlias is an alias of the type failure. The alias is needed where a local variable has the name failure.
type failureAlias = failure

// checkVM checks the properties of a new virtual machine and its references.
func (c *call) checkVM(name string) (customData []byte, f *failure) {
	a := c.azure
	badRequest := func(code, format string, args ...any) (_ []byte, f *failure) {
		return nil, fail(http.StatusBadRequest, code, format, args...)
	}
	// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
	if !vmNameFormat.MatchString(name) ||
		!vmNameFormat.MatchString(text(c.body, "properties", "osProfile", "computerName")) {
		return badRequest("InvalidParameter", "The name '%s' of the virtual machine or computer is invalid.", name)
	}
	if !strings.EqualFold(text(c.body, "location"), a.options.Location) {
		return badRequest("LocationNotAvailableForResourceType",
			"The provided location '%s' is not available for resource type '%s'.", text(c.body, "location"), kindVM)
	}
	size, f := a.checkSize(text(c.body, "properties", "hardwareProfile", "vmSize"), c.body)
	if f != nil {
		return nil, f
	}
	if f := a.checkQuota(size.cpus); f != nil {
		return nil, f
	}
	if f := a.checkImage(c.body); f != nil {
		return nil, f
	}
	// https://learn.microsoft.com/azure/virtual-machines/linux/create-ssh-keys-detailed
	linux := child(child(child(c.body, "properties"), "osProfile"), "linuxConfiguration")
	if text(c.body, "properties", "osProfile", "adminPassword") == "" && len(list(linux, "ssh", "publicKeys")) == 0 {
		return badRequest("InvalidParameter",
			"Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	if encoded := text(c.body, "properties", "osProfile", "customData"); encoded != "" {
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(data) > maxCustomData {
			return badRequest("InvalidParameter",
				"Custom data in OSProfile must be in Base64 encoding and with a maximum length of %d characters.", maxCustomData)
		}
		customData = data
	}
	// https://learn.microsoft.com/azure/virtual-machines/availability-set-overview
	if len(list(object{"z": c.body["zones"]}, "z")) == 0 && c.body["zones"] != nil &&
		valueAt(c.body, "properties", "availabilitySet") != nil {
		return badRequest("BadRequest", "Availability Zone and Availability Set cannot be specified together.")
	}
	if text(c.body, "properties", "priority") == "" && (valueAt(c.body, "properties", "evictionPolicy") != nil ||
		valueAt(c.body, "properties", "billingProfile") != nil) {
		// https://learn.microsoft.com/azure/virtual-machines/spot-vms
		return badRequest("OperationNotAllowed", "Eviction policy and max price can be set only on Azure Spot Virtual Machines.")
	}
	if f := c.checkDisks(name); f != nil {
		return nil, f
	}
	interfaces := list(c.body, "properties", "networkProfile", "networkInterfaces")
	if len(interfaces) == 0 {
		return badRequest("InvalidParameter", "The virtual machine must have at least one network interface.")
	}
	for _, reference := range interfaces {
		nic := a.find(text(reference, "id"))
		switch {
		case nic == nil || nic.kind != kindNIC:
			return badRequest("InvalidResourceReference", "Resource %s referenced by virtual machine %s was not found.",
				text(reference, "id"), name)
		case nic.state() != "Succeeded":
			return badRequest("ReferencedResourceNotProvisioned",
				"Cannot proceed with operation since resource %s is not in Succeeded state.", nic.id)
		case text(nic.body, "properties", "virtualMachine", "id") != "":
			return badRequest("NicInUse", "Network Interface %s is used by existing resource %s.", nic.id,
				text(nic.body, "properties", "virtualMachine", "id"))
		}
	}
	return customData, nil
}

func (c *call) checkDisks(name string) *failure {
	a, group := c.azure, c.Group
	all := append([]object{child(child(child(c.body, "properties"), "storageProfile"), "osDisk")},
		list(c.body, "properties", "storageProfile", "dataDisks")...)
	luns := map[any]bool{}
	for i, disk := range all {
		if text(disk, "name") == "" {
			disk["name"] = name + "_disk" + uuid()[:8]
		}
		if a.find(a.id(group, kindDisk, text(disk, "name"))) != nil {
			return fail(http.StatusConflict, "ConflictingUserInput", "Disk '%s' already exists in resource group '%s'.",
				text(disk, "name"), group)
		}
		if i == 0 {
			continue
		}
		if luns[disk["lun"]] {
			return fail(http.StatusBadRequest, "InvalidParameter",
				"The value '%v' of parameter 'dataDisk.lun' is used more than once.", disk["lun"])
		}
		luns[disk["lun"]] = true
		if text(disk, "createOption") == "Empty" && disk["diskSizeGB"] == nil {
			return fail(http.StatusBadRequest, "InvalidParameter", "Required parameter 'dataDisk.diskSizeGB' is missing (null).")
		}
	}
	// https://learn.microsoft.com/azure/virtual-machines/ephemeral-os-disks
	if os := all[0]; valueAt(os, "diffDiskSettings") != nil && text(os, "caching") != "ReadOnly" {
		return fail(http.StatusBadRequest, "InvalidParameter", "Ephemeral OS disks need the caching type ReadOnly.")
	}
	return nil
}

// attach creates the disks and attaches the interfaces to the machine.
func (a *Azure) attach(vm *resource) {
	os := child(child(vm.properties(), "storageProfile"), "osDisk")
	if os["diskSizeGB"] == nil {
		os["diskSizeGB"] = 30
	}
	if valueAt(os, "diffDiskSettings") == nil { // An ephemeral disk is not a resource.
		a.addDisk(vm, os, os["diskSizeGB"])
	}
	for _, disk := range list(vm.body, "properties", "storageProfile", "dataDisks") {
		a.addDisk(vm, disk, disk["diskSizeGB"])
	}
	for _, reference := range list(vm.body, "properties", "networkProfile", "networkInterfaces") {
		nic := a.find(text(reference, "id"))
		nic.properties()["virtualMachine"] = object{"id": vm.id}
		nic.touch()
	}
}

// getVM returns a virtual machine, with its power state on request.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/get
func (c *call) getVM() Answer {
	r := c.azure.read(c.azure.id(c.Group, kindVM, c.Names[0]))
	if r == nil {
		return refuse(c.missing(kindVM, c.Names[0]))
	}
	out := c.azure.view(r)
	switch expand := c.Expand; {
	case strings.EqualFold(expand, "instanceView"):
		state := strings.ToLower(r.state())
		if r.vm.errorCode != "" && state == "failed" {
			state += "/" + r.vm.errorCode
		}
		statuses := []object{{"code": "ProvisioningState/" + state, "level": "Info"}}
		if power := r.vm.lastPower; power != "" && c.azure.goesBack(r) {
			statuses = append(statuses, object{"code": "PowerState/" + power, "level": "Info"})
		} else if r.vm.power != "" && !c.azure.goesBack(r) {
			statuses = append(statuses, object{"code": "PowerState/" + r.vm.power, "level": "Info", "displayStatus": "VM " +
				r.vm.power})
		}
		child(out, "properties")["instanceView"] = object{"computerName": r.name, "statuses": statuses}
	case expand != "" && !strings.EqualFold(expand, "userData"):
		return refuse(fail(http.StatusBadRequest, "InvalidParameter", "The value '%s' of parameter '$expand' is invalid.",
			expand))
	}
	return answer(http.StatusOK, out)
}

// patchVM changes tags and size, and the delete options of disks and interfaces.
// https://learn.microsoft.com/rest/api/compute/virtual-machines/update
func (c *call) patchVM() Answer {
	a := c.azure
	r, _ := c.resourceAt(kindVM, c.Names[0])
	if r == nil {
		return refuse(c.missing(kindVM, c.Names[0]))
	}
	if f := c.conditions(r); f != nil {
		return refuse(f)
	}
	if f := vmUpdateSchema().check(c.body); f != nil {
		return refuse(f)
	}
	if f := r.busyFailure(); f != nil {
		return refuse(f)
	}
	properties := child(c.body, "properties")
	options := clone(r.properties())
	for key, wanted := range properties {
		switch key {
		case "hardwareProfile":
		case "storageProfile", "networkProfile":
			if f := changeDeleteOptions(options[key], wanted, key); f != nil {
				return refuse(f)
			}
		default:
			return refuse(notChanged(key))
		}
	}
	wanted := text(properties, "hardwareProfile", "vmSize")
	oldSize := text(r.body, "properties", "hardwareProfile", "vmSize")
	resized := wanted != "" && wanted != oldSize
	if resized {
		to, f := a.checkSize(wanted, r.body)
		if f == nil {
			f = a.checkQuota(to.cpus - a.cpusOf(oldSize))
		}
		if f != nil {
			return refuse(f)
		}
	}
	if tags, given := c.body["tags"].(object); given {
		r.body["tags"] = tags
	}
	for _, key := range []string{"storageProfile", "networkProfile"} {
		r.properties()[key] = options[key]
	}
	if resized {
		child(r.properties(), "hardwareProfile")["vmSize"] = wanted
	}
	r.setState("Updating")
	return a.operate(r, a.options.ChangeDuration, func() *failure {
		r.setState("Succeeded")
		if resized && r.vm.power == "running" {
			// https://learn.microsoft.com/azure/virtual-machines/sizes/resize-vm
			a.halt(r, "stopped")
			a.boot(r)
		}
		return c.asyncFailure
	}).response(http.StatusOK, r.show())
}

func notChanged(path string) *failure {
	return fail(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property '%s' is not allowed.", path)
}

// changeDeleteOptions copies delete options from the request (wanted) to the virtual machine (has). Other properties of
// attached disks and interfaces cannot change. A list in the request must contain all entries.
// https://learn.microsoft.com/azure/virtual-machines/delete
func changeDeleteOptions(has, wanted any, path string) *failure {
	switch wanted := wanted.(type) {
	case object:
		has, ok := has.(object)
		if !ok {
			return notChanged(path)
		}
		for key, value := range wanted {
			if _, nested := value.(object); nested && has[key] == nil {
				has[key] = object{}
			}
			if key == "deleteOption" {
				has[key] = value
			} else if f := changeDeleteOptions(has[key], value, path+"."+key); f != nil {
				return f
			}
		}
		return nil
	case []any:
		has, _ := has.([]any)
		if len(has) != len(wanted) {
			return notChanged(path)
		}
		for i := range wanted {
			if f := changeDeleteOptions(has[i], wanted[i], fmt.Sprintf("%s[%d]", path, i)); f != nil {
				return f
			}
		}
		return nil
	}
	if !strings.EqualFold(fmt.Sprint(has), fmt.Sprint(wanted)) {
		return notChanged(path)
	}
	return nil
}

// deleteVM also deletes the parts with the delete option "Delete".
// https://learn.microsoft.com/azure/virtual-machines/delete
func (c *call) deleteVM() Answer {
	a := c.azure
	r, _ := c.resourceAt(kindVM, c.Names[0])
	if r == nil {
		return answer(http.StatusNoContent, nil)
	}
	r.setState("Deleting")
	return a.operate(r, a.options.StopDuration, func() *failure {
		a.halt(r, "")
		a.release(r)
		a.remove(r)
		a.releaseCores(r)
		return nil
	}).response(http.StatusAccepted, nil)
}

// busyFailure returns the refusal of a request that is not possible during another operation, or nil.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
// (OperationNotAllowed, Conflict)
func (r *resource) busyFailure() *failure {
	if slices.Contains([]string{"Deleting", "Creating"}, r.state()) {
		return fail(http.StatusConflict, "OperationNotAllowed", "The operation is not allowed while VM '%s' is %s.",
			r.name, r.state())
	}
	if strings.HasSuffix(r.vm.power, "ing") && r.vm.power != "running" {
		return fail(http.StatusConflict, "Conflict",
			"The request failed due to conflict with a concurrent request: VM '%s' is %s.", r.name, r.vm.power)
	}
	return nil
}

// release detaches the parts of a virtual machine, and deletes the parts with the delete option "Delete".
func (a *Azure) release(vm *resource) {
	for _, reference := range list(vm.body, "properties", "networkProfile", "networkInterfaces") {
		nic := a.find(text(reference, "id"))
		if nic == nil {
			continue
		}
		delete(nic.properties(), "virtualMachine")
		nic.touch()
		if text(reference, "properties", "deleteOption") != "Delete" {
			continue
		}
		a.removeNIC(nic)
		for _, ip := range list(nic.body, "properties", "ipConfigurations") {
			if public := a.find(text(ip, "properties", "publicIPAddress", "id")); public != nil &&
				text(public.body, "properties", "deleteOption") == "Delete" {
				a.remove(public)
			}
		}
	}
	disks := append([]object{child(child(vm.properties(), "storageProfile"), "osDisk")},
		list(vm.body, "properties", "storageProfile", "dataDisks")...)
	for _, spec := range disks {
		disk := a.find(text(spec, "managedDisk", "id"))
		if disk == nil {
			continue
		}
		delete(disk.body, "managedBy")
		disk.properties()["diskState"] = "Unattached"
		disk.touch()
		if text(spec, "deleteOption") == "Delete" {
			a.remove(disk)
		}
	}
}

// These three operations change the power state.
// https://learn.microsoft.com/azure/virtual-machines/states-billing

func (c *call) deallocateVM() Answer { return c.power(c.Names[0], "deallocating", "deallocated") }
func (c *call) powerOffVM() Answer   { return c.power(c.Names[0], "stopping", "stopped") }
func (c *call) startVM() Answer      { return c.power(c.Names[0], "starting", "running") }

func (c *call) power(name, transition, to string) Answer {
	a := c.azure
	r, _ := c.resourceAt(kindVM, name)
	if r == nil {
		return refuse(c.missing(kindVM, name))
	}
	if f := r.busyFailure(); f != nil {
		return refuse(f)
	}
	// https://learn.microsoft.com/azure/virtual-machines/ephemeral-os-disks
	if to == "deallocated" && valueAt(r.body, "properties", "storageProfile", "osDisk", "diffDiskSettings") != nil {
		return refuse(fail(http.StatusConflict, "OperationNotAllowed",
			"VM '%s' with an ephemeral OS disk cannot be deallocated.", r.name))
	}
	if to == "running" && c.asyncFailure != nil {
		// A deallocated machine has lost its capacity.
		// https://learn.microsoft.com/azure/virtual-machines/allocation-failure
		return a.operate(r, a.options.ChangeDuration, func() *failure {
			r.vm.errorCode = c.asyncFailure.code
			r.setState("Failed")
			return c.asyncFailure
		}).response(http.StatusAccepted, nil)
	}
	if r.vm.power != to {
		r.vm.lastPower, r.vm.power = r.vm.power, transition
		r.touch()
	}
	return a.operate(r, a.options.ChangeDuration, func() *failure {
		r.setState("Succeeded")
		if to == "running" {
			if r.vm.power != to {
				a.boot(r)
			}
			return nil
		}
		a.halt(r, to)
		return nil
	}).response(http.StatusAccepted, nil)
}
