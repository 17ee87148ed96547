package source

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// CodeToolKeys: a tool such as Argo CD recognizes its objects by labels or annotations, which are not copied.
const CodeToolKeys = "ToolKeys"

const (
	helmRelease      = "meta.helm.sh/release-name"
	instanceLabel    = "app.kubernetes.io/instance"
	managedByLabel   = "app.kubernetes.io/managed-by"
	managedByHelm    = "Helm"
	hiveManagedLabel = "hive.openshift.io/managed"
)

// toolDomains maps the domains of labels and annotations to the tools that recognize their objects by these keys.
// Some of these tools delete objects with their keys that are not in their source.
var toolDomains = map[string]string{
	"addonmanager.kubernetes.io":  "the addon manager",
	"applyset.kubernetes.io":      "kubectl apply --prune",
	"argocd.argoproj.io":          "Argo CD",
	"fluxcd.io":                   "Flux",
	"helm.toolkit.fluxcd.io":      "Flux",
	"hive.openshift.io":           "Hive",
	"kapp.k14s.io":                "kapp",
	"kustomize.toolkit.fluxcd.io": "Flux",
	"meta.helm.sh":                "Helm",
	"objectset.rio.cattle.io":     "Rancher Fleet",
}

// toolOf returns the tool that recognizes its objects by a label or annotation, or "". The label
// app.kubernetes.io/instance is a key by which Argo CD can track objects. If the object belongs to a Helm release, the
// chart sets the label, and no tool acts on it.
func (m *metadata) toolOf(key, value string) string {
	domain, _, _ := strings.Cut(key, "/")
	switch {
	case key == instanceLabel && m.oldAnnotations[helmRelease] == "":
		return "Argo CD"
	case key == managedByLabel && value == managedByHelm:
		return "Helm"
	}
	return toolDomains[domain]
}

// dropToolKeys removes the labels and annotations by which tools recognize their objects. An object with a
// controlling owner keeps its labels, because such tools ignore the object, and the selector of its owner may need
// the labels.
func (m *metadata) dropToolKeys(role Role) {
	keys := map[string][]string{} // by tool
	drop := func(from map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(from)) {
			if tool := m.toolOf(key, from[key]); tool != "" {
				delete(from, key)
				keys[tool] = append(keys[tool], key)
			}
		}
	}
	drop(m.annotations)
	if m.controller != nil {
		return // The old controllers copy annotations from the owner, which has the Note.
	}
	drop(m.labels)
	for _, tool := range slices.Sorted(maps.Keys(keys)) {
		selectors := ""
		if role == RoleMachine {
			selectors = " Health checks that select by one of these labels do not select the Machine."
		}
		m.report(provider.FindingNote, CodeToolKeys, "", "Keys by which %s recognizes its objects are not copied, because "+
			"%[1]s could delete Machinist's object: %s.%s", tool, strings.Join(keys[tool], ", "), selectors)
	}
}
