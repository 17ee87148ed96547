package installer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// hasAllFields reports whether the found object has all desired fields. Other fields, such as defaults, are ignored.
// When a field is removed from the chart, the hash of the rendered object changes. Therefore a comparison of all
// found fields is not necessary.
func hasAllFields(found, desired any) bool {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := found.(map[string]any)
		if !ok {
			return len(want) == 0 && found == nil
		}
		for key, value := range want {
			if !coversField(key, have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := found.([]any)
		if !ok {
			return len(want) == 0 && found == nil
		}
		return coversInOrder(have, want)
	case nil:
		return found == nil
	default:
		return equalValues(found, desired)
	}
}

// mergedLists maps each list that the API server merges to the key of its items. Other clients may add items.
var mergedLists = map[string]string{
	"containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
	"imagePullSecrets": "name", "webhooks": "name", "matchConditions": "name", "ownerReferences": "uid",
}

func coversField(field string, found, desired any) bool {
	key, isMerged := mergedLists[field]
	want, isList := desired.([]any)
	if !isMerged || !isList {
		return hasAllFields(found, desired)
	}
	have, ok := found.([]any)
	if !ok {
		return len(want) == 0
	}
	for _, item := range want {
		named, ok := item.(map[string]any)
		if !ok || !hasAllFields(itemWith(have, key, named[key]), item) {
			return false
		}
	}
	return true
}

func itemWith(list []any, key string, value any) any {
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok && fields[key] == value {
			return item
		}
	}
	return nil
}

func coversInOrder(found, desired []any) bool {
	if len(found) != len(desired) {
		return false
	}
	for i := range desired {
		if !hasAllFields(found[i], desired[i]) {
			return false
		}
	}
	return true
}

// equalValues compares scalars as the API server does: 1000m equals 1, and an integer equals the same float. An empty
// value equals a missing value.
func equalValues(found, desired any) bool {
	if found == desired {
		return true
	}
	if found == nil {
		return desired == "" || desired == false || fmt.Sprint(desired) == "0"
	}
	a, b := fmt.Sprint(found), fmt.Sprint(desired)
	if a == b {
		return true
	}
	first, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	second, err := resource.ParseQuantity(b)
	return err == nil && first.Cmp(second) == 0
}
