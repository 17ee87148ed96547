package installation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// manager must be upgraded before the provider processes.
const manager = "machinist-manager"

var required = []string{"MachineClass", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck",
	"MachineDisruptionBudget"}

// Judge adds warnings about versions that do not work together. An upgrade starts with the CustomResourceDefinitions,
// continues with the manager, and ends with the providers.
func (v *Versions) Judge() {
	v.checkKinds()
	v.checkProcesses()
}

func (v *Versions) checkKinds() {
	if v.Kinds == nil {
		return
	}
	_, api, _ := strings.Cut(v.Client.API, "/")
	var missing, unserved []string
	releases := map[string][]string{}
	for _, name := range required {
		if !slices.ContainsFunc(v.Kinds, func(k Kind) bool { return k.Name == name }) {
			missing = append(missing, name)
		}
	}
	for _, k := range v.Kinds {
		if !slices.Contains(k.ServedVersions, api) {
			unserved = append(unserved, k.Name)
		}
		if k.Release != "" {
			releases[k.Release] = append(releases[k.Release], k.Name)
		}
		for _, stored := range k.Stored {
			if !slices.Contains(k.ServedVersions, stored) {
				v.warn("Objects of kind %s may still be stored as %s, which is no longer served. Update all of them before the next upgrade of the CustomResourceDefinitions.",
					k.Name, stored)
			}
		}
	}
	if len(missing) > 0 {
		v.warn("The cluster lacks the CustomResourceDefinitions of %s. Apply the CustomResourceDefinitions of the release.",
			strings.Join(missing, ", "))
	}
	if len(unserved) > 0 {
		v.warn("The cluster does not serve %s in the API version %s, which this command uses. Use a machinist command that has the same release as the CustomResourceDefinitions.",
			strings.Join(unserved, ", "), api)
	}
	if len(releases) > 1 {
		var parts []string
		for release, kinds := range releases {
			parts = append(parts, release+" ("+strings.Join(kinds, ", ")+")")
		}
		slices.Sort(parts)
		v.warn("The CustomResourceDefinitions have different releases: %s. Apply all CustomResourceDefinitions of the newest release.",
			strings.Join(parts, ", "))
	}
}

func (v *Versions) checkProcesses() {
	oldestKind := ""
	for _, k := range v.Kinds {
		if k.Release != "" && (oldestKind == "" || isNewer(oldestKind, k.Release)) {
			oldestKind = k.Release
		}
	}
	oldestManager := ""
	for _, p := range v.Processes {
		if p.Program == manager && p.Version != "" && (oldestManager == "" || isNewer(oldestManager, p.Version)) {
			oldestManager = p.Version
		}
	}
	newest := Process{}
	for _, p := range v.Processes {
		if p.Version != "" && (newest.Version == "" || isNewer(p.Version, newest.Version)) {
			newest = p
		}
	}
	if oldestKind != "" && isNewer(newest.Version, oldestKind) {
		v.warn("%s has the version %s, but CustomResourceDefinitions have %s. Apply the CustomResourceDefinitions of %s. They must be upgraded before the processes.",
			newest.Program, newest.Version, oldestKind, newest.Version)
	}
	for i, p := range v.Processes {
		if p.Version == "" {
			continue
		}
		if oldestManager != "" && p.Program != manager && isNewer(p.Version, oldestManager) {
			v.warn("%s has the version %s, but the manager has the version %s. Upgrade the manager. It must be upgraded before the providers.",
				p.Program, p.Version, oldestManager)
		}
		for _, o := range v.Processes[:i] {
			if o.Program == p.Program && o.Namespace == p.Namespace && o.Version != "" && !equalVersions(o.Version, p.Version) {
				v.warn("%s runs in two versions, %s and %s. This is normal only during an upgrade.", p.Program, o.Version, p.Version)
			}
		}
	}
	if oldestManager != "" && isNewer(oldestManager, v.Client.Version) {
		v.warn("This command has the version %s, but the manager has the version %s. Upgrade this command, because an older command does not show new features.",
			v.Client.Version, oldestManager)
	}
}

func (v *Versions) warn(format string, args ...any) {
	v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
}

// isNewer reports whether version a is newer than b. Versions of development builds are never newer.
func isNewer(a, b string) bool {
	parsedA, errA := version.ParseSemantic(a)
	parsedB, errB := version.ParseSemantic(b)
	return errA == nil && errB == nil && parsedB.LessThan(parsedA)
}

// equalVersions ignores the prefix "v".
func equalVersions(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }
