package fakeazure

import "net/http"

// addDisk makes a disk with its machine. It has the machine's tags.
func (a *Azure) addDisk(vm *resource, spec object, size any) {
	name := text(spec, "name")
	sku := text(spec, "managedDisk", "storageAccountType")
	if sku == "" {
		sku = "Standard_LRS"
	}
	r := &resource{id: a.id(vm.group, kindDisk, name), group: vm.group, name: name, kind: kindDisk, body: object{
		"location": vm.body["location"], "tags": clone(vm.tags()), "managedBy": vm.id, "sku": object{"name": sku},
		"properties": object{"diskSizeGB": size, "diskState": "Attached", "provisioningState": "Succeeded"},
	}}
	if zones, ok := vm.body["zones"]; ok {
		r.body["zones"] = zones
	}
	child(spec, "managedDisk")["id"] = r.id
	a.add(r)
}

// patchDisk changes a disk's tags.
// https://learn.microsoft.com/rest/api/compute/disks/update
func (c *call) patchDisk(p []string) {
	r, _ := c.at(kindDisk, p[0])
	if r == nil {
		c.refuse(c.missing(kindDisk, p[0]))
		return
	}
	if f := diskUpdateSchema().check(c.body); f != nil {
		c.refuse(f)
		return
	}
	if tags, given := c.body["tags"].(object); given {
		r.body["tags"] = tags
		r.touch()
	}
	c.azure.operate(r, c.azure.options.Change, func() *failure { return nil }).announce(c)
	c.answer(http.StatusAccepted, r.show())
}

// deleteDisk removes a disk that no machine has.
// https://learn.microsoft.com/rest/api/compute/disks/delete
func (c *call) deleteDisk(p []string) {
	a := c.azure
	r, _ := c.at(kindDisk, p[0])
	if r == nil {
		c.answer(http.StatusNoContent, nil)
		return
	}
	if user := text(r.body, "managedBy"); user != "" {
		c.refuse(fail(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", r.name, user))
		return
	}
	r.setState("Deleting")
	a.operate(r, a.options.Change, func() *failure { a.remove(r); return nil }).announce(c)
	c.answer(http.StatusAccepted, nil)
}
