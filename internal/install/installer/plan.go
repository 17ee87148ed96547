package installer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// steps are what brings the cluster to what is rendered.
type steps struct {
	// Desired are the objects in the order in which to make them.
	Desired []*unstructured.Unstructured
	// Apply are those of them that are missing or differ.
	Apply []application
	// Prune are objects that are not desired any more, the last made first.
	Prune []*unstructured.Unstructured
	// Conflicts are desired objects that exist and are not this Provider's. Nothing is done while there are any.
	Conflicts []*unstructured.Unstructured
}

// application is an object that is applied.
type application struct {
	Object *unstructured.Unstructured
	// Force takes fields back that somebody else has changed: of an object that is known to be this Provider's.
	Force bool
}

// present are the objects in the cluster that are desired or recorded. One that does not exist has no entry.
type present map[v1beta1.InstalledObject]*unstructured.Unstructured

// planOf compares what is desired with what is there. owner is the UID of the Provider.
func planOf(desired []*unstructured.Unstructured, there present, installed []v1beta1.InstalledObject,
	owner types.UID) steps {
	s := steps{Desired: desired}
	wanted := map[v1beta1.InstalledObject]bool{}
	for _, object := range desired {
		wanted[refOf(object)] = true
		switch found := there[refOf(object)]; {
		case found == nil:
			s.Apply = append(s.Apply, application{Object: object})
		case found.GetDeletionTimestamp() != nil:
			// It is made again when it is gone, which an event reports.
		case !ownedBy(found, owner):
			s.Conflicts = append(s.Conflicts, found)
		case differs(object, found):
			s.Apply = append(s.Apply, application{Object: object, Force: true})
		}
	}
	for _, ref := range slices.Backward(installed) {
		if found := there[ref]; found != nil && !wanted[ref] && ownedBy(found, owner) {
			s.Prune = append(s.Prune, found)
		}
	}
	return s
}

// differs says whether an object has to be applied: what is desired has changed since it was applied last, or somebody
// has changed the object.
func differs(desired, found *unstructured.Unstructured) bool {
	const hash = v1beta1.AnnotationAppliedHash
	return found.GetAnnotations()[hash] != desired.GetAnnotations()[hash] || !covers(found.Object, desired.Object)
}

// recorded returns what the status has while the steps are carried out: all that was there, and what is added.
func (s steps) recorded(installed []v1beta1.InstalledObject) []v1beta1.InstalledObject {
	all := slices.Clone(installed)
	for _, ref := range s.installed() {
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	return all
}

// installed returns what the status has when the steps are carried out.
func (s steps) installed() []v1beta1.InstalledObject {
	refs := make([]v1beta1.InstalledObject, len(s.Desired))
	for i, object := range s.Desired {
		refs[i] = refOf(object)
	}
	return refs
}

// conflictMessage names the objects that are another's, and what made them where they say it.
func (s steps) conflictMessage() string {
	var parts []string
	for _, object := range s.Conflicts {
		part := nameOf(refOf(object))
		if release := object.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
			part += fmt.Sprintf(" (of the helm release %s/%s)", object.GetAnnotations()["meta.helm.sh/release-namespace"], release)
		} else if other := object.GetLabels()[v1beta1.LabelInstalledBy]; other != "" {
			part += fmt.Sprintf(" (of Provider %s)", other)
		} else if by := object.GetLabels()[managedByLabel]; by != "" {
			part += fmt.Sprintf(" (managed by %s)", by)
		}
		parts = append(parts, part)
	}
	return "This Provider did not make these objects, and does not touch them: " + strings.Join(parts, ", ") +
		". Remove what made them, or delete them; nothing is installed or changed until then."
}

func refOf(object *unstructured.Unstructured) v1beta1.InstalledObject {
	return v1beta1.InstalledObject{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(),
		Namespace: object.GetNamespace(), Name: object.GetName()}
}

func nameOf(ref v1beta1.InstalledObject) string {
	if ref.Namespace == "" {
		return ref.Kind + " " + ref.Name
	}
	return ref.Kind + " " + ref.Namespace + "/" + ref.Name
}

func ownedBy(object *unstructured.Unstructured, owner types.UID) bool {
	for _, ref := range object.GetOwnerReferences() {
		if ref.UID == owner {
			return true
		}
	}
	return false
}
