package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managedFields contains the configuration that each field manager applied last. It also contains the field managers
// that own the labels and annotations. managedFields is immutable.
type managedFields struct {
	configurations map[string]map[string]any
	// ownedKeys contains, for each field manager, the labels and annotations that the manager applied. A label or
	// annotation without an entry belongs to the clients that send ordinary updates. If a manager applies the value
	// that such a client has set, the client and the manager both own the label or annotation.
	ownedKeys map[string]map[mapKey]bool
	// writer is the name of the field manager that sends the current write. The name is empty if the write is not a
	// server-side apply.
	writer string
}

// updaters is the manager that represents all clients that write without server-side apply.
const updaters = ""

type mapKey struct{ of, name string }

func mapsOf(meta *metav1.ObjectMeta) map[string]map[string]string {
	return map[string]map[string]string{"labels": meta.Labels, "annotations": meta.Annotations}
}

func appliedKeys(content map[string]any) map[mapKey]string {
	keys := map[mapKey]string{}
	metadata, _ := content["metadata"].(map[string]any)
	for _, of := range []string{"labels", "annotations"} {
		entries, _ := metadata[of].(map[string]any)
		for name := range entries {
			keys[mapKey{of, name}] = textAt(entries, name)
		}
	}
	return keys
}

func (m managedFields) ownedByOthers(manager string, key mapKey) bool {
	for other, keys := range m.ownedKeys {
		if other != manager && keys[key] {
			return true
		}
	}
	return !m.ownedKeys[manager][key]
}

func (m managedFields) conflicts(manager string, meta *metav1.ObjectMeta,
	content map[string]any) (causes []metav1.StatusCause) {
	for key, value := range appliedKeys(content) {
		if now, found := mapsOf(meta)[key.of][key.name]; found && now != value && m.ownedByOthers(manager, key) {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict,
				Field: fmt.Sprintf(".metadata.%s.%s", key.of, key.name), Message: "conflict with another manager"})
		}
	}
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Field, b.Field) })
	return causes
}

// removeUnapplied removes keys that only this manager owned and that this manager no longer applies.
func (m managedFields) removeUnapplied(manager string, content, object map[string]any) {
	applied := appliedKeys(content)
	metadata, _ := object["metadata"].(map[string]any)
	for key := range m.ownedKeys[manager] {
		if _, ok := applied[key]; ok {
			continue
		}
		shared := slices.ContainsFunc(slices.Collect(maps.Keys(m.ownedKeys)), func(other string) bool {
			return other != manager && m.ownedKeys[other][key]
		})
		if entries, _ := metadata[key.of].(map[string]any); !shared && entries != nil {
			entries = maps.Clone(entries)
			delete(entries, key.name)
			metadata[key.of] = entries
		}
	}
}

// withShared finds the labels and annotations whose value an apply request does not change. Clients that have set
// these labels and annotations with an update remain their owners.
func (m managedFields) withShared(meta *metav1.ObjectMeta, content map[string]any) managedFields {
	for key, value := range appliedKeys(content) {
		if now, found := mapsOf(meta)[key.of][key.name]; !found || now != value || m.hasOwner(key) {
			continue
		}
		keys := maps.Clone(m.ownedKeys[updaters])
		if keys == nil {
			keys = map[mapKey]bool{}
		}
		keys[key] = true
		m.ownedKeys = with(m.ownedKeys, updaters, keys)
	}
	return m
}

func (m managedFields) hasOwner(key mapKey) bool {
	for _, keys := range m.ownedKeys {
		if keys[key] {
			return true
		}
	}
	return false
}

func (m managedFields) withApplied(manager string, content map[string]any) managedFields {
	keys := map[mapKey]bool{}
	for key := range appliedKeys(content) {
		keys[key] = true
	}
	after := managedFields{configurations: with(m.configurations, manager, content),
		ownedKeys: with(m.ownedKeys, manager, keys),
		writer:    manager}
	if appliesNothing(content) {
		// If a manager has no fields, the real server removes the manager's entry.
		delete(after.configurations, manager)
		delete(after.ownedKeys, manager)
	}
	return after
}

func appliesNothing(content map[string]any) bool {
	metadata, _ := content["metadata"].(map[string]any)
	for name := range metadata {
		if name != "name" && name != "namespace" {
			return false
		}
	}
	return len(content) <= 1
}

// afterWrite returns the managed fields after a write. The writer becomes the only owner of the keys that this write
// changed.
func (m managedFields) afterWrite(before, after *metav1.ObjectMeta) managedFields {
	writer := m.writer
	m.writer = ""
	if len(m.ownedKeys) == 0 {
		return m
	}
	newMaps := mapsOf(after)
	for of, oldEntries := range mapsOf(before) {
		newEntries := newMaps[of]
		if maps.Equal(oldEntries, newEntries) {
			continue
		}
		owned := make(map[string]map[mapKey]bool, len(m.ownedKeys))
		for manager, keys := range m.ownedKeys {
			keys = maps.Clone(keys)
			maps.DeleteFunc(keys, func(key mapKey, _ bool) bool {
				oldValue, existed := oldEntries[key.name]
				newValue, exists := newEntries[key.name]
				return key.of == of && manager != writer && (existed != exists || oldValue != newValue)
			})
			owned[manager] = keys
		}
		m.ownedKeys = owned
	}
	return m
}

func (m managedFields) equal(other managedFields) bool {
	sameConfiguration := func(a, b map[string]any) bool { return sameJSON(a, b) }
	return maps.EqualFunc(m.configurations, other.configurations, sameConfiguration) &&
		maps.EqualFunc(m.ownedKeys, other.ownedKeys, maps.Equal[map[mapKey]bool, map[mapKey]bool])
}

func with[V any](m map[string]V, key string, value V) map[string]V {
	copied := maps.Clone(m)
	if copied == nil {
		copied = map[string]V{}
	}
	copied[key] = value
	return copied
}
