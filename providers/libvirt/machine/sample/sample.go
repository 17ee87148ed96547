// Package sample has a providerSpec for tests.
package sample

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/providers/libvirt/machine"
)

// What the providerSpec refers to by name.
const (
	Pool    = "machines"
	Base    = "debian-12"
	Network = "nodes"
)

// base is a providerSpec that works.
func base() map[string]any {
	return map[string]any{
		"apiVersion": machine.APIVersion, "kind": machine.Kind, "vcpus": 1, "memoryMiB": 128, "domainType": "qemu",
		"volume":   map[string]any{"pool": Pool, "base": Base, "sizeGiB": 1},
		"disks":    []any{map[string]any{"name": "data", "sizeGiB": 1}},
		"networks": []any{map[string]any{"network": Network}},
	}
}

// Spec is a providerSpec that works, with changes: dotted paths and values, nil to leave something out. A path may have
// an index, such as "ports[0].network"; the index after the last one adds an entry.
func Spec(changes ...any) []byte {
	var all any = base()
	for i := 0; i < len(changes); i += 2 {
		path := strings.ReplaceAll(changes[i].(string), "[", ".[")
		all = with(all, strings.Split(path, "."), changes[i+1])
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}

// with returns in with another value at the path.
func with(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if text, ok := strings.CutPrefix(path[0], "["); ok {
		list, _ := in.([]any)
		i, err := strconv.Atoi(strings.TrimSuffix(text, "]"))
		if err != nil || i > len(list) {
			panic(fmt.Sprintf("%s is no index of %d entries", path[0], len(list)))
		}
		if i == len(list) {
			list = append(list, nil)
		}
		list[i] = with(list[i], path[1:], value)
		return list
	}
	object, ok := in.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	if object[path[0]] = with(object[path[0]], path[1:], value); object[path[0]] == nil {
		delete(object, path[0])
	}
	return object
}
