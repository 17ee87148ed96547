package source

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// machineK8s is the first API of Kubermatic's machine-controller. machineK8s has cluster-scoped Machines and no sets,
// and was served under two API groups.
type machineK8s struct{ group string }

func (s machineK8s) Group() string { return s.group }

func (s machineK8s) Kinds() []Kind {
	return []Kind{{
		Role:             RoleMachine,
		GroupVersionKind: schema.GroupVersionKind{Group: s.group, Version: "v1alpha1", Kind: "Machine"},
		Resource:         "machines",
		ClusterScoped:    true,
	}}
}

func (machineK8s) Leases(string) []types.NamespacedName { return kubermaticLeases() }

func (s machineK8s) NodeTraces() NodeTraces {
	return NodeTraces{Labels: []string{kubermaticOwnedBy}, OwnerGroups: []string{s.group}}
}

func (machineK8s) Flags() []string { return []string{kubermaticEvictionFlag} }

func (s machineK8s) dialect() *dialect {
	return &dialect{groups: []string{s.group}, finalizers: kubermaticFinalizers, annotations: kubermaticInternalKeys}
}

func (s machineK8s) Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted {
	return convert(old, func(f *fields, c *Converted) {
		if role != RoleMachine {
			f.report(provider.FindingBlocker, CodeNotSupported, "kind", "The old system only has machines, not objects of "+
				"the kind %s.", role)
			f.ignoreAll()
			return
		}
		d := s.dialect()
		m := d.metadata(f, RoleMachine)
		machine := &v1beta1.Machine{}
		m.apply(machine)
		spec := f.child("spec")
		nodeName := kubermaticMachine(d, spec, &machine.Spec)
		for _, name := range spec.texts("roles") {
			if name != "Node" { // Every machine has the role Node.
				spec.report(provider.FindingLoss, CodeNotSupported, "roles", "Machinist's machines run only worker Nodes. "+
					"Machinist does not create control planes.")
				break
			}
		}
		machine.Spec.Timeouts = kubermaticTimeouts(f, flags, m.oldAnnotations)
		f.report(provider.FindingNote, CodeCreationTimeout, "spec", "The old controller waited for the Node without a "+
			"limit. Machinist waits for %s.", noCreationLimit)
		if !spec.has("providerConfig") {
			spec.report(provider.FindingBlocker, CodeMissingField, "providerConfig", "There is no description of the "+
				"instance.")
		} else {
			c.Class = providerConfig(spec.child("providerConfig"), nil, false)
		}
		pauseForInitializers(&m)
		c.Object, c.Machine, c.LaterAnnotations = machine, statusWithNodeRef(f, &m, nodeName), m.later
	})
}

// pauseForInitializers pauses the new Machine if the old machine has the annotation for initializers. The old
// controller does not manage a machine with this annotation.
func pauseForInitializers(m *metadata) {
	if m.oldAnnotations[kubermaticInitializers] != "" {
		m.later[v1beta1.AnnotationPaused] = "true"
		m.report(provider.FindingNote, CodeInitializer, "annotations."+kubermaticInitializers, "The old controller "+
			"ignores the machine because of this annotation. Machinist pauses it. To manage the machine, remove %s.",
			v1beta1.AnnotationPaused)
	}
}
