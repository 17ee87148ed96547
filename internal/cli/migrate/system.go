package migrate

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// shortNames maps names of systems to the API group of their machines. The first API of Kubermatic has two groups, so
// it has no short name.
var shortNames = map[string]string{
	"kubermatic":  provider.SourceClusterK8s,
	"cluster-api": provider.SourceClusterK8s,
	"gardener":    provider.SourceGardener,
	"openshift":   provider.SourceOpenShift,
}

// Systems returns the API groups and names that Source accepts.
func Systems() []string {
	systems := provider.Sources()
	for name := range shortNames {
		systems = append(systems, name)
	}
	slices.Sort(systems)
	return systems
}

// Source returns the API group of a system. system is the group itself, or the name of the system.
func Source(system string) (string, error) {
	if slices.Contains(provider.Sources(), system) {
		return system, nil
	}
	if group, known := shortNames[strings.ToLower(system)]; known {
		return group, nil
	}
	return "", fmt.Errorf("%q: must be one of %s", system, strings.Join(Systems(), ", "))
}
