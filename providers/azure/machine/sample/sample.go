// Package sample contains a providerSpec for tests, and the IDs that it refers to.
package sample

import (
	"encoding/json"
	"maps"
	"strings"

	"machinist.dev/machinist/providers/azure/machine"
)

// These are the subscription, subnet and SSH key of the providerSpec.
const (
	Subscription = "22222222-2222-4222-8222-222222222222"
	Subnet       = "/subscriptions/" + Subscription +
		"/resourceGroups/network/providers/Microsoft.Network/virtualNetworks/nodes/subnets/workers"
	SSHKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hY2hpbmlzdE1hY2hpbmlzdE1hY2hpbmlzdE1hY2hpbmk= nobody"
)

func base() map[string]any {
	return map[string]any{
		"apiVersion": machine.APIVersion, "kind": machine.Kind,
		"location": "westeurope", "resourceGroup": "machines", "vmSize": "Standard_D2s_v5", "zone": "1",
		"image": map[string]any{"marketplace": map[string]any{
			"publisher": "Canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts-gen2", "version": "latest",
		}},
		"dataDisks": []any{map[string]any{"lun": 0, "sizeGiB": 16},
			map[string]any{"lun": 3, "sizeGiB": 8, "storageAccountType": "Premium_LRS"}},
		"networkInterfaces": []any{map[string]any{"subnetID": Subnet, "publicIP": true}},
		"tags":              map[string]any{"team": "blue"},
		"sshPublicKey":      SSHKey,
	}
}

// Spec returns a valid providerSpec with changes, given as pairs of a dotted path and a value. The value nil removes a
// field.
func Spec(changes ...any) []byte {
	all := base()
	for i := 0; i < len(changes); i += 2 {
		set(all, strings.Split(changes[i].(string), "."), changes[i+1])
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}

func set(in map[string]any, path []string, value any) {
	if len(path) == 1 {
		if in[path[0]] = value; value == nil {
			delete(in, path[0])
		}
		return
	}
	next, ok := in[path[0]].(map[string]any)
	if !ok {
		next = map[string]any{}
	}
	next = maps.Clone(next)
	set(next, path[1:], value)
	in[path[0]] = next
}
