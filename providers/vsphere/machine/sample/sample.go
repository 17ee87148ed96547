// Package sample contains a valid providerSpec for tests and for the demo.
package sample

import (
	"encoding/json"
	"maps"

	"machinist.dev/machinist/providers/vsphere/machine"
)

// The providerSpec refers to these objects, which package fakevsphere creates.
const (
	VCenter    = "lab"
	Datacenter = "DC0"
	Folder     = "machines"
	Template   = "templates/debian-12"
	Cluster    = "DC0_C0"
	Datastore  = "LocalDS_0"
	Network    = "DC0_DVPG0"
)

// Spec returns a valid providerSpec with changed fields, given as pairs of a name and a value. The value nil removes a
// field.
func Spec(changes ...any) []byte {
	all := map[string]any{
		"apiVersion": machine.APIVersion, "kind": machine.Kind,
		"vcenter": VCenter, "datacenter": Datacenter, "folder": Folder, "template": Template, "cluster": Cluster,
		"datastore": Datastore, "networks": []any{map[string]any{"path": Network}},
		"cpus": 2, "memoryMiB": 4096, "region": "europe", "zone": "rack-1",
	}
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		all[name] = changes[i+1]
		maps.DeleteFunc(all, func(key string, value any) bool { return key == name && value == nil })
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}
