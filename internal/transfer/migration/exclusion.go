package migration

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeExcluded: the object stays with the old system, because spec.exclude of the Migration covers it.
	CodeExcluded = "Excluded"
	// CodeInvalidExclude: spec.exclude names an object that does not exist, or that cannot stay without its owner.
	CodeInvalidExclude = "InvalidExclude"
)

// exclusion decides which old objects stay with the old system: the objects that spec.exclude of the Migration names,
// and the sets and machines of these objects.
type exclusion struct {
	entries []string
	found   map[string]bool    // by entry
	covered map[types.UID]bool // by the UID of an old object
	// withoutOwner maps entries to owners that are not excluded.
	withoutOwner map[string]string
}

func newExclusion(m *v1beta1.Migration) *exclusion {
	return &exclusion{entries: m.Spec.Exclude, found: map[string]bool{}, covered: map[types.UID]bool{},
		withoutOwner: map[string]string{}}
}

// covers reports whether an old object stays with the old system. Call it for owners before their sets and machines.
func (e *exclusion) covers(object *unstructured.Unstructured) bool {
	controller := metav1.GetControllerOf(object)
	covered := controller != nil && e.covered[controller.UID]
	if name := nameOf(object); slices.Contains(e.entries, name) {
		e.found[name] = true
		if controller != nil && !covered {
			e.withoutOwner[name] = controller.Kind + "/" + controller.Name
		}
		covered = true
	}
	if covered {
		e.covered[object.GetUID()] = true
	}
	return covered
}

// exclude records an old object that stays with the old system. Its class stays too, unless other objects use it.
func (p *planner) exclude(role source.Role, object *unstructured.Unstructured) {
	name := nameOf(object)
	p.plan.findings.addf(provider.FindingNote, CodeExcluded, name, "", "The object stays with the old system "+
		"(spec.exclude). While the migration runs, the fence stops its controllers.")
	c := p.system.Convert(role, object, p.flags)
	p.excludedClasses[c.ClassName] = true
	if role == source.RoleMachine {
		p.keepInstances(object, c.Machine)
	}
}

// keepInstances records that a machine stays with the old system, so that no other machine gets its instances.
func (p *planner) keepInstances(object *unstructured.Unstructured, m *source.Machine) {
	if m == nil {
		m = &source.Machine{}
	}
	p.stayingMachines = append(p.stayingMachines, candidate{conversion: conversion{old: identityOf(object),
		displayName: nameOf(object), Converted: source.Converted{Machine: m}}})
}

// finishExclusion reports invalid entries of spec.exclude, and removes the classes that only excluded objects use.
func (p *planner) finishExclusion(e *exclusion) {
	for i, entry := range e.entries {
		path, problem := fmt.Sprintf("spec.exclude[%d]", i), ""
		switch owner := e.withoutOwner[entry]; {
		case !e.found[entry]:
			problem = "The namespace " + p.migration.SourceNamespaceOrDefault() + " has no old object " + entry + "."
		case owner != "":
			problem = entry + " belongs to " + owner + ", which would replace it. Exclude " + owner + " instead."
		default:
			continue
		}
		p.blockf(CodeInvalidExclude, "Migration/"+p.migration.Name, path, "%s", problem)
	}
	p.plan.classes = slices.DeleteFunc(p.plan.classes, func(c *class) bool {
		unused := c.old.Name != "" && p.excludedClasses[c.name] && !p.usedClasses[c.name]
		if unused {
			delete(p.classes, c.name)
			p.plan.findings = slices.DeleteFunc(p.plan.findings, func(f objectFinding) bool {
				return f.object == c.firstObject
			})
		}
		return unused
	})
}
