package simulation

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/remediator"
)

// The rules of remediations by other operators. A machine never has two remediations. A remediation is created only
// for an unhealthy machine, and is deleted only if the machine is healthy, is being deleted, or no longer left to
// the operator. A machine is replaced only after its remediation has failed or exceeded its timeout.

// mayRemediateByOperator checks each write of a remediation by the manager.
func (o *oracle) mayRemediateByOperator(c apiserver.Change) {
	custom, ok := c.New.(*apiserver.Custom)
	if !ok || !slices.Contains(remediator.Kinds(), c.GVK) {
		return
	}
	w := o.world
	machineUID := uid(custom.Labels[v1beta1.RemediationLabelMachineUID])
	m := o.machines[machineUID]
	before, _ := c.Old.(*apiserver.Custom)
	switch {
	case before == nil:
		o.judged["remediation"]++
		n := 0
		for _, other := range w.remediations() {
			if other.GetLabels()[v1beta1.RemediationLabelMachineUID] == string(machineUID) {
				n++
			}
		}
		if n > 1 {
			o.breach("remediation", "machine %s has %d remediations", machineUID, n)
		}
		if c.Actor != Manager || m == nil {
			return // A request of the former leader arrived late, or the machine was deleted a moment ago.
		}
		if custom.Name != m.Status.NodeRef.Name || custom.Annotations["remediation.medik8s.io/node-name"] != custom.Name ||
			custom.Annotations["remediation.medik8s.io/template-name"] != remediator.TemplateName {
			o.breach("remediation", "the remediation %s of machine %s has the wrong name or annotations %v", custom.Name,
				m.Name,
				custom.Annotations)
		}
		if health, exists := w.healthOfNode(m.Status.NodeRef); exists && health.healthy &&
			health.since.Before(o.passBegan()) {
			o.breach("remediation", "the remediation of machine %s is created, but its node is healthy since %s", m.Name,
				health.since.Sub(epoch))
		}
	case c.Actor == Manager && before.Annotations[v1beta1.RemediationAnnotationTimedOut] == "" &&
		custom.Annotations[v1beta1.RemediationAnnotationTimedOut] != "":
		if age := w.clock.Since(custom.CreationTimestamp.Time); age < remediationTimeout-time.Second {
			o.breach("remediation", "machine %s is replaced %s after its remediation began, want %s", machineUID, age,
				remediationTimeout)
		}
	case c.Actor == Manager && before.DeletionTimestamp.IsZero() &&
		(c.Type == watch.Deleted || !custom.DeletionTimestamp.IsZero()):
		o.judged["remediation"]++
		if m == nil || !m.DeletionTimestamp.IsZero() || !w.leavesTo(c.GVK.Kind) {
			return
		}
		_, exempt := m.Annotations[v1beta1.AnnotationSkipRemediation]
		health, exists := w.healthOfNode(m.Status.NodeRef)
		if exists && !health.healthy && health.since.Before(o.passBegan()) && !exempt {
			o.breach("remediation", "the remediation of machine %s is deleted, but its node is unhealthy since %s", m.Name,
				health.since.Sub(epoch))
		}
	}
}

// leavesTo reports whether a health check names the template of a kind.
func (w *World) leavesTo(kind string) bool {
	return slices.ContainsFunc(w.healthChecks(), func(c *v1beta1.MachineHealthCheck) bool {
		t := c.Spec.Remediation.TemplateRef
		return t != nil && t.Kind == kind+"Template"
	})
}

// mayReplaceAfterRemediation checks that the replacement of a machine is requested only after its remediation has
// failed or exceeded its timeout. There is nothing to wait for if the Node is gone.
func (o *oracle) mayReplaceAfterRemediation(before, after *v1beta1.Machine) {
	const reason = v1beta1.ReasonReplaceAfterRemediation
	if reasonOfRequest(after) != reason || before != nil && reasonOfRequest(before) == reason {
		return
	}
	o.judged["remediation"]++
	w := o.world
	if _, exists := w.healthOfNode(after.Status.NodeRef); !exists {
		return
	}
	for _, r := range w.remediations() {
		if r.GetLabels()[v1beta1.RemediationLabelMachineUID] != string(after.UID) {
			continue
		}
		age := w.clock.Since(r.GetCreationTimestamp().Time)
		switch {
		case remediator.Status(&r) == metav1.ConditionFalse:
		case age < remediationTimeout-time.Second:
			o.breach("remediation", "machine %s is replaced %s after its remediation began, want %s", after.Name, age,
				remediationTimeout)
		case !remediator.IsToldToStop(&r):
			o.breach("remediation", "machine %s is replaced, but the operator was not told to stop", after.Name)
		}
		return
	}
	o.breach("remediation", "machine %s is replaced without a remediation", after.Name)
}

func reasonOfRequest(m *v1beta1.Machine) string {
	if c := findCondition(m, v1beta1.ConditionRemediationRequested); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// leftToOperator reports whether an unhealthy machine must not be replaced, because its remediation is up to an
// operator.
func leftToOperator(m *v1beta1.Machine) bool {
	switch reasonOfRequest(m) {
	case v1beta1.ReasonExternalRemediation, v1beta1.ReasonExternalRemediationFailed:
		return true
	}
	return false
}
