package why

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// deletingOwner explains why a deleted deployment or set still exists, and what happens to its machines. A foreground
// deletion deletes the machines before the owner, and a background deletion deletes the machines after the owner. A
// background deletion does not delete the machines while the owner has a finalizer of another controller.
func deletingOwner(about string, owner client.Object) Finding {
	f := Finding{Object: about, Reason: OwnerDeleting, StartTime: inUTC(owner.GetDeletionTimestamp().Time)}
	all := owner.GetFinalizers()
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name == metav1.FinalizerDeleteDependents || name == metav1.FinalizerOrphanDependents
	})
	kind := kindOf(about)
	switch {
	case slices.Contains(all, metav1.FinalizerOrphanDependents):
		f.Description = "The " + kind + " is being deleted without its machines. The machines stay, and have no owner afterwards."
		f.NextStep = "The " + kind + " is gone when Kubernetes has removed the owner references."
	case slices.Contains(all, metav1.FinalizerDeleteDependents):
		f.Description = "The " + kind + " is being deleted. Kubernetes deletes its machines first."
		f.NextStep = "The " + kind + " is gone when all its machines are gone."
	case len(others) > 0:
		f.Description = "The " + kind + " is marked for deletion, but finalizers of other controllers keep it, and its machines with it: " +
			finalizerNames(owner, others) + "."
		f.Reason, others = OtherFinalizers, nil
		f.NextStep = "When the owners of these finalizers have removed them, Kubernetes deletes the " + kind + ", and then its machines."
		f.Instructions = "Find out why the owner of the finalizer does not remove it. To delete the machines now: kubectl delete " +
			dependents(about, owner)
	default:
		f.Description = "The " + kind + " is being deleted. Kubernetes deletes its machines afterwards."
	}
	if len(others) > 0 {
		f.NextStep += " Finalizers of other controllers also keep it: " + finalizerNames(owner, others) + "."
	}
	return f
}

// dependents returns the kubectl arguments that select all sets of a deployment, or all machines of a set. Deleting
// these objects is safe, because a deleted owner creates no new objects.
func dependents(about string, owner client.Object) string {
	kind, label := "machinesets.machinist.dev", v1beta1.LabelMachineDeployment
	if strings.HasPrefix(about, "machineset/") {
		kind, label = "machines.machinist.dev", v1beta1.LabelMachineSet
	}
	return fmt.Sprintf("%s -l %s=%s -n %s", kind, label, owner.GetName(), owner.GetNamespace())
}

// finalizerNames joins the names of finalizers, with the clients that wrote them if known.
func finalizerNames(o client.Object, finalizers []string) string {
	named := make([]string, len(finalizers))
	for i, f := range finalizers {
		if named[i] = f; writerOf(o, f) != "" {
			named[i] += " (written by " + writerOf(o, f) + ")"
		}
	}
	return strings.Join(named, ", ")
}

func writerOf(o client.Object, finalizer string) string {
	for _, entry := range o.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ok := fields.Metadata.Finalizers[fmt.Sprintf("v:%q", finalizer)]; ok {
			return entry.Manager
		}
	}
	return ""
}
