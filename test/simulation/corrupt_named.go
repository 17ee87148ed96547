package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// problems contains what the corrupted object, its owners and its children report, but only because of the corruption.
// The run without the corruption has none of these reports.
type problems struct{ conditions, events []string }

func (p problems) String() string { return strings.Join(slices.Concat(p.conditions, p.events), ", ") }

func (p problems) any() bool { return len(p.conditions)+len(p.events) > 0 }

// reportedProblems compares the reports at the end of a run with those at the end of the run without the corruption.
func (w *World) reportedProblems(end *World) (p problems) {
	all, err := w.storedObjects()
	if err != nil {
		return p
	}
	related := relatedTo(all, w.corrupted.Field.objectName())
	maps.Copy(related, w.corrupted.related)
	added := func(now, before map[string]bool) (out []string) {
		for _, report := range slices.Sorted(maps.Keys(now)) {
			if object, _, _ := strings.Cut(report, " "); related[object] && !before[report] {
				out = append(out, report)
			}
		}
		return out
	}
	p.conditions, p.events = added(w.failingConditions(), end.failingConditions()), added(w.warnings, end.warnings)
	return p
}

// relatedTo returns the names of an object, its owners and its children. A machine is also a child of its class, and
// machines and classes are children of their Secrets.
func relatedTo(all []stored, object string) map[string]bool {
	out := map[string]bool{}
	for _, follow := range []func(child, owner stored) (from, to stored){
		func(child, owner stored) (from, to stored) { return child, owner },
		func(child, owner stored) (from, to stored) { return owner, child },
	} {
		reached := map[string]bool{object: true}
		for n := 0; n != len(reached); {
			n = len(reached)
			for _, child := range all {
				for _, owner := range all {
					if from, to := follow(child, owner); reached[from.objectName()] && isChild(child, owner) {
						reached[to.objectName()] = true
					}
				}
			}
		}
		maps.Copy(out, reached)
	}
	return out
}

func isChild(child, owner stored) bool {
	text := func(path ...string) string {
		value, _ := valueAt(child.content, path)
		out, _ := value.(string)
		return out
	}
	names := func(property string) bool {
		return owner.Namespace == child.Namespace && slices.Contains([]string{text("spec", property, "name"),
			text("spec", "template", "spec", property, "name")}, owner.Name)
	}
	switch owner.Kind {
	case "MachineClass":
		return names("classRef")
	case "Secret":
		return names("credentialsRef") || names("userDataRef")
	}
	if child.Kind == "Secret" && child.Cluster == InTarget {
		return owner.Kind == "Machine" && child.object.GetAnnotations()[tokenMachine] == owner.Namespace+"/"+owner.Name
	}
	return child.object != nil && owner.object != nil &&
		slices.ContainsFunc(child.object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == owner.object.GetUID()
		})
}

const tokenMachine = "machinist.dev/bootstrap-token-machine"

// objectName returns the kind, namespace and name of the object that contains the field.
func (f Field) objectName() string { return f.Kind + "/" + f.Namespace + "/" + f.Name }

// objectName returns the kind, namespace and name of an object without a known kind.
func objectName(o runtime.Object) string {
	named, ok := o.(client.Object)
	if !ok {
		return ""
	}
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
	return Field{Kind: kind, Namespace: named.GetNamespace(), Name: named.GetName()}.objectName()
}

func (w *World) failingConditions() map[string]bool {
	out := map[string]bool{}
	for _, gvk := range corruptible[InControl] {
		for _, o := range w.control.Snapshot(gvk) {
			with, ok := o.(interface{ GetConditions() []metav1.Condition })
			if !ok {
				continue
			}
			for _, c := range with.GetConditions() {
				if c.Status != goodStatus(c.Type) && c.Status != "" {
					out[fmt.Sprintf("%s %s=%s (%s)", objectName(o), c.Type, c.Status, c.Reason)] = true
				}
			}
		}
	}
	return out
}

func goodStatus(condition string) metav1.ConditionStatus {
	switch condition {
	case v1beta1.ConditionReplicaFailure, v1beta1.ConditionPaused, v1beta1.ConditionFrozen, v1beta1.ConditionStalled,
		v1beta1.ConditionDeleting, v1beta1.ConditionOrphanRemovalBlocked, v1beta1.ConditionStuck:
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}
