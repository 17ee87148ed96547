package config

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

func TestAllKindsAreEmbedded(t *testing.T) {
	var kinds []string
	for _, crd := range CRDs() {
		kinds = append(kinds, crd.Spec.Names.Kind)
	}
	slices.Sort(kinds)
	want := []string{"Machine", "MachineClass", "MachineDeployment", "MachineHealthCheck", "MachineSet"}
	if !slices.Equal(kinds, want) {
		t.Errorf("CRDs are of %v, want %v", kinds, want)
	}
}

// A policy without a binding that denies does nothing.
func TestEveryPolicyIsBound(t *testing.T) {
	bound := map[string]bool{}
	var policies []string
	for _, object := range Policies() {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, o.Name)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound[o.Spec.PolicyName] = slices.Contains(o.Spec.ValidationActions, admissionv1.Deny)
		}
	}
	if len(policies) == 0 {
		t.Error("no policies")
	}
	for _, name := range policies {
		if !bound[name] {
			t.Errorf("policy %s has no binding that denies", name)
		}
	}
}

// A FlowSchema of a priority level that is not there gets its requests treated as nobody's.
func TestFlowSchemasAreOfALevelThatExists(t *testing.T) {
	// One that every API server has by itself.
	levels := map[string]bool{"leader-election": true}
	schemas := 0
	for _, object := range FlowControl() {
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			levels[o.Name] = true
		case *flowcontrolv1.FlowSchema:
			schemas++
			if level := o.Spec.PriorityLevelConfiguration.Name; !levels[level] {
				t.Errorf("flow schema %s is of the priority level %s, which is not made before it", o.Name, level)
			}
		}
	}
	if schemas != 2 {
		t.Errorf("%d flow schemas, want one for leases and one for the rest", schemas)
	}
}

// A caller may change what it got.
func TestCallersGetTheirOwnCopy(t *testing.T) {
	CRDs()[0].Name = "changed"
	if CRDs()[0].Name == "changed" {
		t.Error("a change of one caller's definition shows in another's")
	}
}
