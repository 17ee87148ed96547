package migration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/pkg/provider"
)

// mergeable is a group of deployments, or of sets without a deployment, whose machines differ only in their zone.
type mergeable struct {
	kind, firstObject string
	names, zones      []string
}

// suggestMerges adds a note about each group of deployments or sets that can become one deployment with a placement.
func (p *planner) suggestMerges() {
	classes := make(map[string]*v1beta1.MachineClass)
	for _, c := range p.plan.classes {
		if c.object != nil {
			classes[c.object.Name] = c.publishedClass
		}
	}
	groups := make(map[string]*mergeable)
	var keys []string
	add := func(kind, name, firstObject string, template *v1beta1.MachineTemplateSpec) {
		if template.Spec.ClassRef == nil || classes[template.Spec.ClassRef.Name] == nil {
			return
		}
		class := classes[template.Spec.ClassRef.Name]
		key, withZone := mergeKey(class, template)
		if key == "" {
			return
		}
		key = kind + " " + key
		g := groups[key]
		if g == nil {
			g = &mergeable{kind: kind, firstObject: firstObject}
			groups[key], keys = g, append(keys, key)
		}
		if !slices.Contains(g.zones, withZone) {
			g.names, g.zones = append(g.names, name), append(g.zones, withZone)
		}
	}
	for _, d := range p.plan.deployments {
		add("MachineDeployment", d.object.Name, p.plan.oldNames[d.object], &d.object.Spec.Template)
	}
	for _, s := range p.plan.sets {
		add("MachineSet", s.object.Name, p.plan.oldNames[s.object], &s.object.Spec.Template)
	}
	for _, key := range keys {
		if g := groups[key]; len(g.names) > 1 {
			p.plan.findings.addf(provider.FindingNote, CodeMergeable, g.firstObject, "", "%s", g.text())
		}
	}
}

// text describes the group and the command that merges it.
func (g *mergeable) text() string {
	before := "After the commit, when no rollout is in progress"
	if g.kind == "MachineSet" {
		before = "After the commit, create a MachineDeployment with the name, the selector and the template of each set. " +
			"The deployment adopts the set. When its rollout is complete"
	}
	return fmt.Sprintf("%ss %s differ only in their zone. They can become one MachineDeployment with spec.placement, "+
		"without a replacement of machines. %s, run: machinist placement merge --deployments %s --name %s", g.kind,
		strings.Join(g.names, ", "), before, strings.Join(g.names, ","), g.mergedName())
}

// mergedName returns the common prefix of the names, or another name if that is not possible.
func (g *mergeable) mergedName() string {
	prefix := g.names[0]
	for _, name := range g.names[1:] {
		for !strings.HasPrefix(name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	prefix = strings.TrimRight(prefix, "-.")
	if prefix == "" || slices.Contains(g.names, prefix) {
		return "merged"
	}
	return prefix
}

// mergeKey returns a key that is equal for templates whose machines differ only in their zone, and a key that differs
// if the zones differ. Both are empty if the class names no zone.
func mergeKey(class *v1beta1.MachineClass, template *v1beta1.MachineTemplateSpec) (key, withZone string) {
	var spec any
	if class.Spec.ProviderSpec == nil || json.Unmarshal(class.Spec.ProviderSpec.Raw, &spec) != nil {
		return "", ""
	}
	// Tags often contain the name of the old object.
	isTag := func(field string) bool { return field == "tags" || field == "metadata" }
	withZone = without(spec, isTag)
	common := without(spec, func(field string) bool { return isTag(field) || strings.Contains(field, "zone") })
	if common == withZone {
		return "", ""
	}
	rest := template.Spec.DeepCopy()
	rest.ClassRef = nil
	hash := machinedeployment.TemplateHash(machinedeployment.Template{Spec: rest}, time.Time{}, 0)
	return strings.Join([]string{class.Spec.Provider, hash, common}, " "), withZone
}

// without returns a text for a JSON value without the fields that drop selects. The names of fields are in lower case.
func without(value any, drop func(field string) bool) string {
	var b strings.Builder
	switch v := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(v)) {
			if !drop(strings.ToLower(field)) {
				fmt.Fprintf(&b, "%q:%s,", field, without(v[field], drop))
			}
		}
		return "{" + b.String() + "}"
	case []any:
		for _, item := range v {
			b.WriteString(without(item, drop) + ",")
		}
		return "[" + b.String() + "]"
	}
	return fmt.Sprintf("%#v", value)
}
