package installation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// manager is the process that is upgraded before the providers.
const manager = "machinist-manager"

// required are the kinds that every process needs.
var required = []string{"MachineClass", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck",
	"MachineDisruptionBudget"}

// Judge adds the warnings: CustomResourceDefinitions are upgraded first, then the manager, then the providers.
func (v *Versions) Judge() {
	v.judgeKinds()
	v.judgeProcesses()
}

func (v *Versions) judgeKinds() {
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
		if !slices.Contains(k.Served, api) {
			unserved = append(unserved, k.Name)
		}
		if k.Release != "" {
			releases[k.Release] = append(releases[k.Release], k.Name)
		}
		for _, stored := range k.Stored {
			if !slices.Contains(k.Served, stored) {
				v.warn("%s: some objects may still be stored as %s, which is not served. Write them again before the next upgrade of the CustomResourceDefinitions.",
					k.Name, stored)
			}
		}
	}
	if len(missing) > 0 {
		v.warn("The cluster lacks the CustomResourceDefinitions of %s. Apply those of the release.", strings.Join(missing, ", "))
	}
	if len(unserved) > 0 {
		v.warn("The cluster does not serve %s in the version %s, which this command uses. Use a command of the release of the CustomResourceDefinitions.",
			strings.Join(unserved, ", "), api)
	}
	if len(releases) > 1 {
		var parts []string
		for release, kinds := range releases {
			parts = append(parts, release+" ("+strings.Join(kinds, ", ")+")")
		}
		slices.Sort(parts)
		v.warn("The CustomResourceDefinitions are of several releases: %s. Apply all of the newest.", strings.Join(parts, ", "))
	}
}

func (v *Versions) judgeProcesses() {
	oldest := ""
	for _, k := range v.Kinds {
		if k.Release != "" && (oldest == "" || newer(oldest, k.Release)) {
			oldest = k.Release
		}
	}
	managers := ""
	for _, p := range v.Processes {
		if p.Program == manager && p.Version != "" && (managers == "" || newer(managers, p.Version)) {
			managers = p.Version
		}
	}
	newest := Process{}
	for _, p := range v.Processes {
		if p.Version != "" && (newest.Version == "" || newer(p.Version, newest.Version)) {
			newest = p
		}
	}
	if oldest != "" && newer(newest.Version, oldest) {
		v.warn("%s runs %s, and CustomResourceDefinitions are of %s. Apply those of %s: they come before the processes.",
			newest.Program, newest.Version, oldest, newest.Version)
	}
	for i, p := range v.Processes {
		if p.Version == "" {
			continue
		}
		if managers != "" && p.Program != manager && newer(p.Version, managers) {
			v.warn("%s runs %s, and the manager %s. Upgrade the manager: it comes before the providers.", p.Program, p.Version,
				managers)
		}
		for _, o := range v.Processes[:i] {
			if o.Program == p.Program && o.Namespace == p.Namespace && o.Version != "" && !same(o.Version, p.Version) {
				v.warn("%s runs in two versions, %s and %s. That is so while it is upgraded, and should end.", p.Program, o.Version,
					p.Version)
			}
		}
	}
	if managers != "" && newer(managers, v.Client.Version) {
		v.warn("This command is of %s, and the manager of %s. Upgrade the command: it does not show what is new.",
			v.Client.Version, managers)
	}
}

func (v *Versions) warn(format string, args ...any) {
	v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
}

// newer reports whether a version is surely newer than another: false where one of them cannot be compared, such as
// that of a development build.
func newer(a, b string) bool {
	parsedA, errA := version.ParseSemantic(a)
	parsedB, errB := version.ParseSemantic(b)
	return errA == nil && errB == nil && parsedB.LessThan(parsedA)
}

// same reports whether two versions are equal, with or without the "v".
func same(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }
