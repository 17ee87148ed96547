package fakeazure

import "net/http"

// addDisk creates a disk of a new machine, with the machine's tags.
func (a *Azure) addDisk(vm *resource, spec object, size any) {
	name := text(spec, "name")
	sku := text(spec, "managedDisk", "storageAccountType")
	if sku == "" {
		sku = "Standard_LRS"
	}
	r := &resource{id: a.id(vm.group, kindDisk, name), group: vm.group, name: name, kind: kindDisk, body: object{
		"location": vm.body["location"], "tags": clone(vm.tags()), "managedBy": vm.id, "sku": object{"name": sku},
		"properties": object{"diskSizeGB": size, "diskState": "Attached", "provisioningState": "Succeeded",
			"timeCreated": a.timestamp()},
	}}
	if zones, ok := vm.body["zones"]; ok {
		r.body["zones"] = zones
	}
	child(spec, "managedDisk")["id"] = r.id
	a.add(r)
}

// patchDisk changes the tags of a disk.
// https://learn.microsoft.com/rest/api/compute/disks/update
func (c *call) patchDisk() Answer {
	r, _ := c.resourceAt(kindDisk, c.Names[0])
	if r == nil {
		return refuse(c.missing(kindDisk, c.Names[0]))
	}
	if f := diskUpdateSchema().check(c.body); f != nil {
		return refuse(f)
	}
	if tags, given := c.body["tags"].(object); given {
		r.body["tags"] = tags
		r.touch()
	}
	return c.azure.operate(r, c.azure.options.ChangeDuration, func() *failure {
		return nil
	}).response(http.StatusAccepted, r.show())
}

// deleteDisk deletes a disk that is not attached to a machine.
// https://learn.microsoft.com/rest/api/compute/disks/delete
func (c *call) deleteDisk() Answer {
	a := c.azure
	r, _ := c.resourceAt(kindDisk, c.Names[0])
	if r == nil {
		return answer(http.StatusNoContent, nil)
	}
	if user := text(r.body, "managedBy"); user != "" {
		return refuse(fail(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", r.name, user))
	}
	r.setState("Deleting")
	return a.operate(r, a.options.ChangeDuration,
		func() *failure { a.remove(r); return nil }).response(http.StatusAccepted, nil)
}
