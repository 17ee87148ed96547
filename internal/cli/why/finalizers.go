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

// deletingOwner says why an owner of machines that is being deleted still exists, and what becomes of its machines. The
// garbage collector deletes them: in a foreground deletion before the owner, in a background deletion after it. So a
// finalizer of another controller on the owner keeps the machines as well.
func deletingOwner(about string, owner client.Object) Finding {
	f := Finding{About: about, Reason: OwnerDeleting, Since: at(owner.GetDeletionTimestamp().Time)}
	all := owner.GetFinalizers()
	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name == metav1.FinalizerDeleteDependents || name == metav1.FinalizerOrphanDependents
	})
	switch {
	case slices.Contains(all, metav1.FinalizerOrphanDependents):
		f.What = "It is being deleted without its machines: they stay, without an owner."
		f.Ends = "The object is deleted when Kubernetes has removed the owner references."
	case slices.Contains(all, metav1.FinalizerDeleteDependents):
		f.What = "It is being deleted; Kubernetes deletes its machines first."
		f.Ends = "The object is deleted when its machines are."
	case len(others) > 0:
		f.What = "It is marked for deletion, but its machines stay until the object is deleted, and finalizers of other controllers hold it: " +
			finalizerNames(owner, others) + "."
		f.Reason, others = OtherFinalizers, nil
		f.Ends = "When the owner of each finalizer has removed it, Kubernetes deletes the object, and then its machines."
		f.Do = "Find out why the owner of the finalizer does not remove it. To delete the machines now: kubectl delete " +
			dependents(about, owner)
	default:
		f.What = "It is being deleted; Kubernetes deletes its machines afterwards."
	}
	if len(others) > 0 {
		f.Ends += " Finalizers of other controllers hold it, too: " + finalizerNames(owner, others) + "."
	}
	return f
}

// dependents names what an owner of machines owns to kubectl. Neither a deployment nor a set creates anything while it
// is being deleted.
func dependents(about string, owner client.Object) string {
	kind, label := "machinesets.machinist.dev", v1beta1.LabelMachineDeployment
	if strings.HasPrefix(about, "machineset/") {
		kind, label = "machines.machinist.dev", v1beta1.LabelMachineSet
	}
	return fmt.Sprintf("%s -l %s=%s -n %s", kind, label, owner.GetName(), owner.GetNamespace())
}

// finalizerNames names finalizers, each with the client that wrote it where managedFields name it.
func finalizerNames(o client.Object, finalizers []string) string {
	named := make([]string, len(finalizers))
	for i, f := range finalizers {
		if named[i] = f; writerOf(o, f) != "" {
			named[i] += " (written by " + writerOf(o, f) + ")"
		}
	}
	return strings.Join(named, ", ")
}

// writerOf returns the field manager of a finalizer, or an empty string.
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
