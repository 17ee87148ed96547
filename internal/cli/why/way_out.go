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

// Advice in this file ends with the command to run, as it can be pasted into a shell. CLASS is for the reader to fill
// in.

// unserved is the finding that no process serves the machine, if that is known.
func (e *explanation) unserved() []Finding {
	findings := e.Provider.absent(e.about, "If none runs, nothing is done about the machine.")
	for i := range findings {
		f := &findings[i]
		if e.Machine.DeletionTimestamp != nil {
			f.Do += e.release("If it never runs again")
			continue
		}
		if !e.Provider.Known && e.Machine.Spec.ProviderID == "" {
			f.Do += " If there is no such provider, the class is wrong. " + e.otherClass()
		}
	}
	return findings
}

// wayOut corrects what the finding about the machine's first obstacle says where its usual advice does not help.
func (e *explanation) wayOut(c *metav1.Condition, f Finding) Finding {
	deleted := e.Machine.DeletionTimestamp != nil
	switch c.Reason {
	case v1beta1.ReasonClassDeleting:
		if !deleted {
			f.Do = "Apply the class again when it is gone. Or: " + e.otherClass()
		}
	case v1beta1.ReasonPending, v1beta1.ReasonDeletionStarted:
		if e.main > 0 {
			f.Ends, f.Do = "", "" // Nobody is there to take it up, which was said.
		}
	case v1beta1.ReasonCredentialsNotFound, v1beta1.ReasonSecretNotLabelled:
		if deleted {
			f.Do += byForce("If the Secret never existed, or the account is gone")
		}
	case v1beta1.ReasonCredentialsRefused, v1beta1.ReasonDeleteError, v1beta1.ReasonProviderUnavailable:
		if deleted {
			f.Do += byForce("If that can never be fixed")
		}
	case v1beta1.ReasonInstanceTerminating:
		if deleted && e.Now.Sub(e.Machine.DeletionTimestamp.Time) > time.Hour {
			f.Do += byForce("If the cloud never ends it")
		}
	}
	return f
}

// classLeaves reports whether the machine's class is being deleted, which the machines that refer to it hold up.
func (e *explanation) classLeaves() bool { return e.Class != nil && e.Class.DeletionTimestamp != nil }

// otherClass is how a machine that was not launched gets another class: its deployment makes another machine, and
// deletes it.
func (e *explanation) otherClass() string {
	const patch = `--type=merge -p '{"spec":{"template":{"spec":{"classRef":{"name":"CLASS"}}}}}'`
	switch {
	case e.Deployment != nil:
		return fmt.Sprintf("Name another class in the deployment's template: kubectl patch machinedeployments.machinist.dev %s -n %s %s", e.Deployment.Name,
			e.Deployment.Namespace, patch)
	case e.Set != nil:
		return fmt.Sprintf("Name another class in the set's template, and delete the machine: kubectl patch machinesets.machinist.dev %s -n %s %s && kubectl delete machines.machinist.dev NAME",
			e.Set.Name, e.Set.Namespace, patch)
	}
	return "Make a machine of another class, and delete this one: kubectl delete machines.machinist.dev NAME"
}

// byForce is how a person ends a deletion that the cloud does not let end.
func byForce(when string) string {
	return " " + when + ", delete the machine by force. It goes within minutes, and machinist orphans names what may remain, " +
		"until it is removed: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationForceDelete + "="
}

// release is how a person ends a deletion that no process carries out: by seeing to the instance, and taking the
// finalizer off.
func (e *explanation) release(when string) string {
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
	return fmt.Sprintf(` %s: see to it at the cloud that %s, and let the machine go: kubectl patch machines.machinist.dev NAME --type=merge -p '{"metadata":{"finalizers":%s}}'`, when, gone, left)
}

// otherFinalizers are those of others, nil if there are none.
func (e *explanation) otherFinalizers() (others []string) {
	for _, f := range e.Machine.Finalizers {
		if f != v1beta1.MachineFinalizer {
			others = append(others, f)
		}
	}
	return others
}
