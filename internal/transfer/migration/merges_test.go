package migration

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
)

// zonal makes the fake cloud keep the zones of old descriptions.
func (f *oldFleet) zonal() {
	f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
		var old map[string]any
		if err := json.Unmarshal(req.Legacy.Spec.Reveal(), &old); err != nil {
			return provider.ImportedSpec{}, err
		}
		spec := map[string]any{}
		if err := json.Unmarshal(importedSpec(req.Legacy), &spec); err != nil {
			return provider.ImportedSpec{}, err
		}
		for _, key := range []string{"zone", "zones"} {
			if old[key] != nil {
				spec[key] = old[key]
			}
		}
		data, err := json.Marshal(spec)
		return provider.ImportedSpec{Spec: data}, err
	}
}

// Rule: migration-suggests-merge.
func TestDeploymentsOfZonesCanBeMerged(t *testing.T) {
	const name = "general"
	pathOfSpec := []string{"spec", "template", "spec", "providerSpec", "value", "cloudProviderSpec"}
	copyTo := func(f *oldFleet, as, zone, size string) {
		f.addCopy("MachineDeployment", name, as, func(o *unstructured.Unstructured) {
			write(t, o, []any{zone}, append(pathOfSpec, "zones")...)
			if size != "" {
				write(t, o, size, append(pathOfSpec, "vmSize")...)
			}
		})
	}
	for test, c := range map[string]struct {
		prepare func(*oldFleet)
		want    string
	}{
		"one deployment": {func(*oldFleet) {}, ""},
		"three zones": {func(f *oldFleet) { copyTo(f, "general-b", "2", ""); copyTo(f, "general-c", "3", "") },
			"machinist placement merge --deployments general,general-b,general-c --name merged"},
		"another size": {func(f *oldFleet) { copyTo(f, "general-b", "2", "Standard_D8s_v3") }, ""},
		"another version": {func(f *oldFleet) {
			copyTo(f, "general-b", "2", "")
			write(t, f.named("MachineDeployment", "general-b"), "1.30.0", "spec", "template", "spec", "versions", "kubelet")
		}, ""},
		"the same zone": {func(f *oldFleet) { copyTo(f, "general-b", "1", "") }, ""},
	} {
		t.Run(test, func(t *testing.T) {
			f := fleetOf(t, provider.SourceClusterK8s, "healthy")
			f.zonal()
			c.prepare(f)
			notes := f.plan().findings.withCode(CodeMergeable)
			switch {
			case c.want == "" && len(notes) > 0:
				t.Errorf("unexpected note: %s", notes[0].Message)
			case c.want != "" && (len(notes) != 1 || !strings.HasSuffix(notes[0].Message, ": "+c.want)):
				t.Errorf("got %v, want %s", notes, c.want)
			}
		})
	}
}

// OpenShift has a MachineSet for each zone, and no MachineDeployments.
//
// Rule: migration-suggests-merge.
func TestSetsOfZonesCanBeMergedByDeployments(t *testing.T) {
	f := fleetOf(t, provider.SourceOpenShift, "healthy")
	f.zonal()
	for zone, as := range map[string]string{"2": "one-abcde-worker-westeurope2", "3": "one-abcde-worker-westeurope3"} {
		f.addCopy("MachineSet", "one-abcde-worker-westeurope1", as, func(o *unstructured.Unstructured) {
			write(t, o, zone, "spec", "template", "spec", "providerSpec", "value", "zone")
		})
	}
	notes := f.plan().findings.withCode(CodeMergeable)
	if len(notes) != 1 || !strings.Contains(notes[0].Message, "create a MachineDeployment with the name") ||
		!strings.HasSuffix(notes[0].Message, " --name one-abcde-worker-westeurope") {
		t.Errorf("got %v", notes)
	}
}

func TestMergedName(t *testing.T) {
	for want, names := range map[string][]string{
		"pool":    {"pool-a", "pool-b"},
		"pool-eu": {"pool-eu1", "pool-eu2", "pool-eu3"},
		"merged":  {"a", "b"},
	} {
		if got := (&mergeable{names: names}).mergedName(); got != want {
			t.Errorf("%v: got %s, want %s", names, got, want)
		}
	}
	if got := (&mergeable{names: []string{"web", "web-b"}}).mergedName(); got != "merged" {
		t.Errorf("the name of a deployment is used again: %s", got)
	}
}
