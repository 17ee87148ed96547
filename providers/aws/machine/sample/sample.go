// Package sample contains a valid providerSpec for tests.
package sample

import (
	"encoding/json"
	"strings"

	"machinist.dev/machinist/providers/aws/machine"
)

// IDs of resources that exist in the fake AWS.
const (
	Region        = "eu-west-1"
	Image         = "ami-0a000000000000001"
	Subnet        = "subnet-0a000000000000001"
	SecurityGroup = "sg-0a000000000000001"
)

// Spec returns a valid providerSpec after some changes. A change is a path such as "rootVolume.sizeGiB" followed by
// the new value. The value nil removes the field.
func Spec(changes ...any) []byte {
	spec := map[string]any{
		"apiVersion": machine.APIVersion, "kind": machine.Kind, "region": Region, "instanceType": "m6i.large",
		"imageID": Image, "subnet": map[string]any{"id": Subnet},
		"securityGroups": []any{map[string]any{"id": SecurityGroup}},
		"tags":           map[string]any{"team": "blue"},
		"rootVolume":     map[string]any{"sizeGiB": 20},
		"dataVolumes":    []any{map[string]any{"deviceName": "/dev/sdf", "sizeGiB": 10}},
	}
	for i := 0; i < len(changes); i += 2 {
		at := spec
		path := strings.Split(changes[i].(string), ".")
		for _, name := range path[:len(path)-1] {
			if _, exists := at[name].(map[string]any); !exists {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		last := path[len(path)-1]
		if changes[i+1] == nil {
			delete(at, last)
			continue
		}
		at[last] = changes[i+1]
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return raw
}
