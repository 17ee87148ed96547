package machine

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

// reportMissingOwner reports that no MachineSet carries out the requests on a Machine. A MachineSet releases a Machine
// whose labels no longer match. The requests stay on the Machine, because a MachineSet may adopt the Machine again.
func (p *pass) reportMissingOwner() {
	requests := requestsWithoutOwner(p.machine)
	if len(requests) == 0 {
		dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionOwned)
		return
	}
	p.reportProblem(v1beta1.ConditionOwned, false, v1beta1.ReasonNoMachineSet, "Replace", fmt.Sprintf(
		"No MachineSet owns the machine, so these requests have no effect: %s.",
		strings.Join(requests, ", ")))
}

// requestsWithoutOwner returns the requests on a Machine that only a MachineSet carries out, if no MachineSet owns the
// Machine. Preserved Machines are kept, so requests on them are not open.
func requestsWithoutOwner(m *v1beta1.Machine) (requests []string) {
	if metav1.GetControllerOfNoCopy(m) != nil || !machinestate.IsLive(m) || machinestate.IsUnchangeable(m) ||
		preservation.IsPreserved(m) {
		return nil
	}
	for _, key := range []string{v1beta1.AnnotationReplace, v1beta1.AnnotationRemediate, v1beta1.AnnotationDeleteMachine} {
		if _, has := m.Annotations[key]; has {
			requests = append(requests, "annotation "+key)
		}
	}
	marked := meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch reason := machinestate.RemediationReason(m); {
	case !marked || machinestate.ReplacementExempt(m):
	case reason == v1beta1.ReasonRebootRequested:
	case !machinestate.IsExternalRemediation(reason) && reason != v1beta1.ReasonRemediateAnnotation:
		requests = append(requests, "condition "+v1beta1.ConditionRemediationRequested)
	}
	return requests
}
