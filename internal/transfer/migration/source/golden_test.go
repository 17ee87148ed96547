package source

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

var update = flag.Bool("update", false, "write the golden files again")

// flagsOf are the flags of the old processes in the golden files, by system.
var flagsOf = map[string]Flags{
	provider.SourceClusterK8s: {"skip-eviction-after": "1h", "join-cluster-timeout": "25m"},
	provider.SourceGardener: {"machine-pv-detach-timeout": "10m", "machine-health-timeout": "15m",
		"bootstrap-token-auth-extra-groups": "system:bootstrappers:one"},
}

// Rule: migration-loses-nothing-silently.
func TestConversionsMatchGoldenFiles(t *testing.T) {
	for group, system := range linkedSystems() {
		for name, objects := range sources.Samples(group) {
			t.Run(group+"/"+name, func(t *testing.T) {
				var all [][]byte
				for _, old := range objects {
					before := old.DeepCopy()
					all = append(all, describe(t, old, system.Convert(roleOf(t, system, old), old, flagsOf[group])))
					if diff := cmp.Diff(before, old); diff != "" {
						t.Error("the conversion changed the old object:", diff)
					}
				}
				compare(t, filepath.Join("testdata", group, name+".yaml"), bytes.Join(all, []byte("---\n")))
			})
		}
	}
}

// linkedSystems returns all systems with the objects to which their samples refer.
func linkedSystems() map[string]System {
	all := Systems()
	for group, system := range all {
		if l, ok := system.(Linked); ok {
			all[group] = l.With(sources.LinkedObjects(group))
		}
	}
	return all
}

func roleOf(t testing.TB, system System, old *unstructured.Unstructured) Role {
	kinds := system.Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.GroupVersionKind == old.GroupVersionKind() })
	if i < 0 {
		t.Fatalf("%s does not have the kind %s", system.Group(), old.GroupVersionKind())
	}
	return kinds[i].Role
}

// describe formats the result of a conversion as YAML, with the findings as comments.
func describe(t *testing.T, old *unstructured.Unstructured, c Converted) []byte {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "# %s %s\n", old.GetKind(), old.GetName())
	for _, f := range c.Findings {
		fmt.Fprintf(out, "#   %s %s %s: %s\n", f.Level, f.Code, f.Path, f.Message)
	}
	parts := map[string]any{"object": c.Object, "class": c.Class, "className": c.ClassName, "check": c.HealthCheck,
		"machine": c.Machine, "later": c.LaterAnnotations}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		part := jsonValue(t, parts[name])
		if object, ok := part.(map[string]any); ok {
			delete(object, "status")
			maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil || value == "" || value == false })
			if len(object) == 0 && name != "machine" {
				continue
			}
		}
		if part == nil || part == "" {
			continue
		}
		data, err := yaml.Marshal(map[string]any{name: part})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
	}
	return out.Bytes()
}

// jsonValue returns the value as if it came from a manifest.
func jsonValue(t *testing.T, value any) (out any) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compare(t *testing.T, path string, got []byte) {
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-%s +got (go test -update writes the files again):\n%s", path, diff)
	}
}

// Each flag must change the conversion of an object, at least to a Blocker for an invalid value.
func TestFlagsChangeConversions(t *testing.T) {
	for group, system := range linkedSystems() {
		convert := func(flags Flags) (all []byte) {
			samples := sources.Samples(group)
			for _, name := range slices.Sorted(maps.Keys(samples)) {
				for _, old := range samples[name] {
					all = append(all, describe(t, old, system.Convert(roleOf(t, system, old), old, flags))...)
				}
			}
			return all
		}
		without := convert(nil)
		for name := range flagsOf[group] {
			if !slices.Contains(system.Flags(), name) {
				t.Errorf("%s: the migrator refuses the flag %s", group, name)
			}
		}
		for _, name := range system.Flags() {
			if bytes.Equal(convert(Flags{name: "("}), without) {
				t.Errorf("%s: the flag %s changes no object", group, name)
			}
		}
	}
}

func TestKindsMatchCRDs(t *testing.T) {
	for group, system := range Systems() {
		defined := map[string]Kind{}
		for _, crd := range sources.CRDs(group) {
			text := func(path ...string) string {
				value, _, _ := unstructured.NestedString(crd.Object, append([]string{"spec"}, path...)...)
				return value
			}
			defined[text("names", "kind")] = Kind{Resource: text("names", "plural"), ClusterScoped: text("scope") == "Cluster"}
		}
		served := map[string]Kind{}
		for _, kind := range system.Kinds() {
			if kind.Group != group {
				t.Errorf("%s: the kind %s has the group %s", group, kind.Kind, kind.Group)
			}
			served[kind.Kind] = Kind{Resource: kind.Resource, ClusterScoped: kind.ClusterScoped}
		}
		if diff := cmp.Diff(defined, served); diff != "" {
			t.Errorf("%s: -definitions +kinds:\n%s", group, diff)
		}
	}
}
