package why

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// The advice texts in this file end with a command that the user can paste into a shell. The user replaces only the
// word CLASS.

func (e *explanation) providerNotRunning() []Finding {
	findings := e.Provider.notRunning(e.about, "If the process does not run, the machine is not processed.")
	for i := range findings {
		f := &findings[i]
		if e.Machine.DeletionTimestamp != nil {
			f.Instructions += e.removeFinalizer("If the process will never run again")
			continue
		}
		if !e.Provider.IsKnown && e.Machine.Spec.ProviderID == "" {
			f.Instructions += " If there is no such provider, the class is wrong. " + e.useAnotherClass()
		}
	}
	return findings
}

// correctAdvice corrects the finding about the first obstacle of the machine. The general advice for a condition does
// not help in some cases, so correctAdvice replaces this advice.
func (e *explanation) correctAdvice(c *metav1.Condition, f Finding) Finding {
	deleted := e.Machine.DeletionTimestamp != nil
	switch c.Reason {
	case v1beta1.ReasonClassDeleting:
		if !deleted {
			f.Instructions = "Apply the class again when it is gone, or use another class. " + e.useAnotherClass()
		}
	case v1beta1.ReasonPending, v1beta1.ReasonDeletionStarted:
		if e.main > 0 {
			f.NextStep, f.Instructions = "", "" // The first finding already reports that the process is not running.
		}
	case v1beta1.ReasonCredentialsNotFound, v1beta1.ReasonSecretNotLabelled:
		if deleted {
			f.Instructions += forceDelete("If the Secret never existed, or the account is gone")
		}
	case v1beta1.ReasonCredentialsRefused, v1beta1.ReasonDeleteError, v1beta1.ReasonProviderUnavailable:
		if deleted {
			f.Instructions += forceDelete("If this can never be fixed")
		}
	case v1beta1.ReasonInstanceTerminating:
		if deleted && e.Now.Sub(e.Machine.DeletionTimestamp.Time) > time.Hour {
			f.Instructions += forceDelete("If the cloud never deletes the instance")
		}
	}
	return f
}

func (e *explanation) classDeleting() bool { return e.Class != nil && e.Class.DeletionTimestamp != nil }

// useAnotherClass returns advice for a machine without an instance that needs another class. After a change of the
// template, the deployment replaces the machine.
func (e *explanation) useAnotherClass() string {
	const patch = `--type=merge -p '{"spec":{"template":{"spec":{"classRef":{"name":"CLASS"}}}}}'`
	switch {
	case e.Deployment != nil:
		return fmt.Sprintf("To name another class in the template of the deployment: kubectl patch machinedeployments.machinist.dev %s -n %s %s", e.Deployment.Name,
			e.Deployment.Namespace, patch)
	case e.Set != nil:
		return fmt.Sprintf("To name another class in the template of the set, and delete the machine: kubectl patch machinesets.machinist.dev %s -n %s %s && kubectl delete machines.machinist.dev NAME",
			e.Set.Name, e.Set.Namespace, patch)
	}
	return "Create a machine with another class, and delete this one: kubectl delete machines.machinist.dev NAME"
}

// forceDelete returns advice for a deletion that the cloud does not complete. The advice starts with the given
// condition, such as "If the cloud never deletes the instance".
func forceDelete(condition string) string {
	return " " + condition + ", force-delete the machine. It is then gone within minutes, and machinist orphans lists what may remain in the cloud. " +
		"To force-delete the machine: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationForceDelete + "="
}

// removeFinalizer returns advice for a deletion that no process completes. The advice starts with the given condition,
// such as "If the process will never run again".
func (e *explanation) removeFinalizer(condition string) string {
	m := e.Machine
	if !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer) {
		return ""
	}
	gone := fmt.Sprintf("no instance has the tag %s=%s", provider.TagMachineUID, m.UID)
	if m.Spec.ProviderID != "" {
		gone = "the instance " + m.Spec.ProviderID + " is gone"
	}
	left, err := json.Marshal(e.otherFinalizers())
	if err != nil {
		return ""
	}
	return fmt.Sprintf(` %s, make sure in the cloud that %s. Then remove the finalizer from the machine: kubectl patch machines.machinist.dev NAME --type=merge -p '{"metadata":{"finalizers":%s}}'`, condition, gone, left)
}

func (e *explanation) otherFinalizers() (others []string) {
	for _, f := range e.Machine.Finalizers {
		if f != v1beta1.MachineFinalizer {
			others = append(others, f)
		}
	}
	return others
}
