package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managed is what the server knows of the managers of an object's fields: what each of them last applied, and who owns
// a label or annotation. It is immutable.
type managed struct {
	configurations map[string]map[string]any
	// owned are the labels and annotations that a manager applied, and of updaters those that a manager applied besides
	// with the same value. All that are in none of them are those of updaters.
	owned map[string]map[mapKey]bool
	// writer is the manager whose write is under way, empty for an update.
	writer string
}

// updaters stands for all that write without apply.
const updaters = ""

// mapKey is a label or an annotation.
type mapKey struct{ of, name string }

// mapsOf are the maps of metadata whose keys have owners.
func mapsOf(meta *metav1.ObjectMeta) map[string]map[string]string {
	return map[string]map[string]string{"labels": meta.Labels, "annotations": meta.Annotations}
}

// appliedKeys returns the labels and annotations of a configuration.
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

// ownedByOthers reports whether anybody but who owns a key.
func (m managed) ownedByOthers(who string, key mapKey) bool {
	for manager, keys := range m.owned {
		if manager != who && keys[key] {
			return true
		}
	}
	return !m.owned[who][key]
}

// conflicts returns what a configuration would change of the fields of others.
func (m managed) conflicts(who string, meta *metav1.ObjectMeta, content map[string]any) (causes []metav1.StatusCause) {
	for key, value := range appliedKeys(content) {
		if now, found := mapsOf(meta)[key.of][key.name]; found && now != value && m.ownedByOthers(who, key) {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict,
				Field: fmt.Sprintf(".metadata.%s.%s", key.of, key.name), Message: "conflict with another manager"})
		}
	}
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Field, b.Field) })
	return causes
}

// drop removes from an object what who applied before, does not any more and nobody else owns.
func (m managed) drop(who string, content, object map[string]any) {
	still := appliedKeys(content)
	metadata, _ := object["metadata"].(map[string]any)
	for key := range m.owned[who] {
		if _, keeps := still[key]; keeps {
			continue
		}
		only := !slices.ContainsFunc(slices.Collect(maps.Keys(m.owned)), func(manager string) bool {
			return manager != who && m.owned[manager][key]
		})
		if entries, _ := metadata[key.of].(map[string]any); only && entries != nil {
			entries = maps.Clone(entries)
			delete(entries, key.name)
			metadata[key.of] = entries
		}
	}
}

// shared notes that updaters own what a configuration applies with the value that they gave it.
func (m managed) shared(meta *metav1.ObjectMeta, content map[string]any) managed {
	for key, value := range appliedKeys(content) {
		if now, found := mapsOf(meta)[key.of][key.name]; !found || now != value || m.anybody(key) {
			continue
		}
		theirs := maps.Clone(m.owned[updaters])
		if theirs == nil {
			theirs = map[mapKey]bool{}
		}
		theirs[key] = true
		m.owned = with(m.owned, updaters, theirs)
	}
	return m
}

// anybody reports whether a manager is known to own a key.
func (m managed) anybody(key mapKey) bool {
	for _, keys := range m.owned {
		if keys[key] {
			return true
		}
	}
	return false
}

// applied notes what who applied; all of it is theirs.
func (m managed) applied(who string, content map[string]any) managed {
	keys := map[mapKey]bool{}
	for key := range appliedKeys(content) {
		keys[key] = true
	}
	after := managed{configurations: with(m.configurations, who, content), owned: with(m.owned, who, keys), writer: who}
	if appliesNothing(content) {
		// The server forgets a manager without fields.
		delete(after.configurations, who)
		delete(after.owned, who)
	}
	return after
}

// appliesNothing reports whether a configuration only names its object.
func appliesNothing(content map[string]any) bool {
	metadata, _ := content["metadata"].(map[string]any)
	for name := range metadata {
		if name != "name" && name != "namespace" {
			return false
		}
	}
	return len(content) <= 1
}

// after takes what a write changes from all but its writer.
func (m managed) after(before, after *metav1.ObjectMeta) managed {
	writer := m.writer
	m.writer = ""
	if len(m.owned) == 0 {
		return m
	}
	then := mapsOf(after)
	for of, was := range mapsOf(before) {
		is := then[of]
		if maps.Equal(was, is) {
			continue
		}
		owned := make(map[string]map[mapKey]bool, len(m.owned))
		for manager, keys := range m.owned {
			keys = maps.Clone(keys)
			maps.DeleteFunc(keys, func(key mapKey, _ bool) bool {
				old, had := was[key.name]
				now, has := is[key.name]
				return key.of == of && manager != writer && (had != has || old != now)
			})
			owned[manager] = keys
		}
		m.owned = owned
	}
	return m
}

func (m managed) equal(other managed) bool {
	sameConfiguration := func(a, b map[string]any) bool { return sameJSON(a, b) }
	return maps.EqualFunc(m.configurations, other.configurations, sameConfiguration) &&
		maps.EqualFunc(m.owned, other.owned, maps.Equal[map[mapKey]bool, map[mapKey]bool])
}

// with returns a copy of m that has one more entry.
func with[V any](m map[string]V, key string, value V) map[string]V {
	copied := maps.Clone(m)
	if copied == nil {
		copied = map[string]V{}
	}
	copied[key] = value
	return copied
}
