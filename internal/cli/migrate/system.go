package migrate

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// shortNames maps short names of old systems to API groups. Kubermatic's first API has no short name, because a short
// name stands for a single API group and that API has two groups.
var shortNames = map[string]string{
	"kubermatic":  provider.SourceClusterK8s,
	"cluster-api": provider.SourceClusterAPI,
	"gardener":    provider.SourceGardener,
	"openshift":   provider.SourceOpenShift,
}

// Systems returns all API groups and short names that Source accepts.
func Systems() []string {
	systems := provider.Sources()
	for name := range shortNames {
		systems = append(systems, name)
	}
	slices.Sort(systems)
	return systems
}

// Source returns the API group of an old system, which is given by its group or short name.
func Source(system string) (string, error) {
	if slices.Contains(provider.Sources(), system) {
		return system, nil
	}
	if group, known := shortNames[strings.ToLower(system)]; known {
		return group, nil
	}
	return "", fmt.Errorf("%q: must be one of %s", system, strings.Join(Systems(), ", "))
}
