package migrate

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// shortNames are words for systems whose machines are of one group. Kubermatic's first API has two groups, which have
// no other name.
var shortNames = map[string]string{
	"kubermatic":  provider.SourceClusterK8s,
	"cluster-api": provider.SourceClusterK8s,
	"gardener":    provider.SourceGardener,
	"openshift":   provider.SourceOpenShift,
}

// Systems are the words for systems that Source understands.
func Systems() []string {
	words := provider.Sources()
	for name := range shortNames {
		words = append(words, name)
	}
	slices.Sort(words)
	return words
}

// Source returns the API group of a system that a person names.
func Source(word string) (string, error) {
	if slices.Contains(provider.Sources(), word) {
		return word, nil
	}
	if group, known := shortNames[strings.ToLower(word)]; known {
		return group, nil
	}
	return "", fmt.Errorf("%q: must be one of %s", word, strings.Join(Systems(), ", "))
}
