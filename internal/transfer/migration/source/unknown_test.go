package source

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

// opaqueFields lists the names of fields whose content is not checked: maps with arbitrary keys, the status,
// descriptions for a driver, and objects that are lost as a whole.
var opaqueFields = []string{
	"labels", "annotations", "matchLabels", "status", "managedFields",
	"cloudProviderSpec", "operatingSystemSpec", "network", "configSource", "containerRuntime",
}

// opaqueIn lists additional names of fields whose content is not checked, for each system. It also has the names of
// fields that the system ignores.
var opaqueIn = map[string][]string{
	provider.SourceGardener:  {"providerSpec", "capacity", "virtualCapacity", "rollbackTo", "machineClass"},
	provider.SourceOpenShift: {"value", "remediationTemplate"},
	// Lost as a whole.
	provider.SourceClusterAPI: {"templateRef", "machineNaming", "readinessGates", "unhealthyMachineConditions"},
}

type level struct {
	path   string
	object map[string]any
}

func (l level) add(name string, value any) (path string) {
	l.object[name] = value
	if l.path == "" {
		return name
	}
	return l.path + "." + name
}

// levels returns all nested objects whose fields are checked.
func levels(group string, object map[string]any, path string) []level {
	if _, own := object["kind"]; own && path != "" && object["cloudProvider"] == nil && object["apiVersion"] != nil &&
		object["name"] == nil {
		return nil // The driver reads a description with its own kind.
	}
	all := []level{{path, object}}
	prefix := path
	if prefix != "" {
		prefix += "."
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(opaqueFields, key) || slices.Contains(opaqueIn[group], key) ||
			key == "ownerReferences" && path != "metadata" { // The owner references of a template are lost as a whole.
			continue
		}
		switch value := object[key].(type) {
		case map[string]any:
			all = append(all, levels(group, value, prefix+key)...)
		case []any:
			for i, item := range value {
				if item, ok := item.(map[string]any); ok {
					all = append(all, levels(group, item, prefix+key+"["+strconv.Itoa(i)+"]")...)
				}
			}
		}
	}
	return all
}

// completeSamples returns the samples for which the conversion must check each field. completeSamples omits samples
// for which a single finding can cover several fields.
func completeSamples(group string) (all []*unstructured.Unstructured) {
	samples := sources.Samples(group)
	delete(samples, "half-broken")
	delete(samples, "control-plane")
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		all = append(all, samples[name]...)
	}
	return all
}

func reports(c Converted, path string) bool {
	return slices.ContainsFunc(c.Findings, func(f provider.Finding) bool {
		return f.Path == path && f.Level != provider.FindingNote
	})
}

// Rule: migration-loses-nothing-silently.
func TestUnknownFieldsAreReportedAtEveryLevel(t *testing.T) {
	for group, system := range linkedSystems() {
		found := 0
		for _, sample := range completeSamples(group) {
			for i := range levels(group, sample.Object, "") {
				old := sample.DeepCopy()
				path := levels(group, old.Object, "")[i].add("surprise", map[string]any{"of": int64(i)})
				if !reports(system.Convert(roleOf(t, system, old), old, nil), path) {
					t.Errorf("%s %s: no finding for %s", old.GetKind(), old.GetName(), path)
				}
				found++
			}
		}
		if found < 20 {
			t.Errorf("%s: the samples only have %d levels", group, found)
		}
	}
}

// FuzzUnknownField adds an unknown field at an arbitrary place.
//
// Rule: migration-loses-nothing-silently.
func FuzzUnknownField(f *testing.F) {
	f.Add(uint(0), uint(0), "a", []byte("0"))
	f.Add(uint(3), uint(5), "", []byte(`{"a":[1,"b",{"c":null}]}`))
	f.Add(uint(9), uint(2), "a.b/c[0]", []byte(`true`))
	f.Fuzz(func(t *testing.T, sample, at uint, name string, data []byte) {
		var value any
		if json.Unmarshal(data, &value) != nil || empty(value) {
			return
		}
		name = "x-" + name // No version of an old API has such a field.
		for group, system := range linkedSystems() {
			samples := completeSamples(group)
			old := samples[sample%uint(len(samples))]
			all := levels(group, old.Object, "")
			path := all[at%uint(len(all))].add(name, value)
			c := system.Convert(roleOf(t, system, old), old, nil)
			if !reports(c, path) {
				t.Errorf("%s %s: no finding for %q: %v", old.GetKind(), old.GetName(), path, c.Findings)
			}
		}
	})
}

// FuzzConvert converts an arbitrary JSON object as a class, machine, set, deployment and health check of each old
// system.
//
// Rule: migration-loses-nothing-silently.
func FuzzConvert(f *testing.F) {
	for group := range Systems() {
		for _, objects := range sources.Samples(group) {
			for _, object := range objects {
				data, err := json.Marshal(object.Object)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		old := &unstructured.Unstructured{}
		if old.UnmarshalJSON(data) != nil {
			return
		}
		for _, system := range linkedSystems() {
			for _, kind := range system.Kinds() {
				c := system.Convert(kind.Role, old, Flags{"skip-eviction-after": "x", "machine-health-timeout": "x",
					"node-conditions": ",Ready,x"})
				for _, finding := range c.Findings {
					if finding.Code == CodeConversionFailed {
						t.Errorf("the conversion of a %s fails", kind.Kind)
					}
				}
			}
		}
	})
}
