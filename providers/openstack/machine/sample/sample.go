// Package sample contains a valid providerSpec for tests.
package sample

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/providers/openstack/machine"
)

// The providerSpec refers to these names.
const (
	Region        = "RegionOne"
	Flavor        = "m1.small"
	Image         = "debian-12"
	Network       = "nodes"
	SecurityGroup = "workers"
	ServerGroup   = "workers"
	KeyPair       = "machinist"
)

func base() map[string]any {
	return map[string]any{
		"apiVersion": machine.APIVersion, "kind": machine.Kind,
		"region": Region, "flavor": Flavor, "image": map[string]any{"name": Image},
		"volumes":        []any{map[string]any{"name": "data", "sizeGiB": 1}},
		"ports":          []any{map[string]any{"network": Network}},
		"securityGroups": []any{SecurityGroup}, "serverGroup": ServerGroup, "keyPair": KeyPair,
		"metadata": map[string]any{"team": "blue"}, "tags": []any{"pool-a"},
	}
}

// Spec returns a valid providerSpec with changes, given as pairs of a dotted path and a value. The value nil removes a
// field. A path may contain an index, such as "ports[0].network". An index equal to the length of the list appends the
// value.
func Spec(changes ...any) []byte {
	var all any = base()
	for i := 0; i < len(changes); i += 2 {
		path := strings.ReplaceAll(changes[i].(string), "[", ".[")
		all = withValue(all, strings.Split(path, "."), changes[i+1])
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}

// withValue returns a copy of an object with another value at a path.
func withValue(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if text, ok := strings.CutPrefix(path[0], "["); ok {
		list, _ := in.([]any)
		i, err := strconv.Atoi(strings.TrimSuffix(text, "]"))
		if err != nil || i > len(list) {
			panic(fmt.Sprintf("%s is not an index of %d entries", path[0], len(list)))
		}
		if i == len(list) {
			list = append(list, nil)
		}
		list[i] = withValue(list[i], path[1:], value)
		return list
	}
	object, ok := in.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	if object[path[0]] = withValue(object[path[0]], path[1:], value); object[path[0]] == nil {
		delete(object, path[0])
	}
	return object
}
