package installer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

type steps struct {
	// DesiredObjects contains the rendered objects in the order of their creation.
	DesiredObjects []*unstructured.Unstructured
	// Apply contains the desired objects that are missing in the cluster or differ from it.
	Apply []application
	// Prune contains the objects to delete, because they are no longer desired, in reverse order of creation.
	Prune []*unstructured.Unstructured
	// Conflicts contains the desired objects that already exist and belong to another owner. If there are conflicts,
	// the operator changes nothing.
	Conflicts []*unstructured.Unstructured
}

type application struct {
	Object *unstructured.Unstructured
	// Force overwrites the fields of other field managers. If an object of this Provider exists already, Force is true.
	Force bool
}

// presentObjects contains the objects that exist in the cluster, if they are desired or the status lists them.
type presentObjects map[v1beta1.InstalledObject]*unstructured.Unstructured

// planOf compares the desired objects with the existing objects. The owner is the UID of the Provider.
func planOf(desired []*unstructured.Unstructured, existing presentObjects, installed []v1beta1.InstalledObject,
	owner types.UID) steps {
	s := steps{DesiredObjects: desired}
	isDesired := map[v1beta1.InstalledObject]bool{}
	for _, object := range desired {
		isDesired[refOf(object)] = true
		switch found := existing[refOf(object)]; {
		case found == nil:
			s.Apply = append(s.Apply, application{Object: object})
		case found.GetDeletionTimestamp() != nil:
			// The object is created again after its deletion. An event reports the end of the deletion.
		case !ownedBy(found, owner):
			s.Conflicts = append(s.Conflicts, found)
		case differs(object, found):
			s.Apply = append(s.Apply, application{Object: object, Force: true})
		}
	}
	for _, ref := range slices.Backward(installed) {
		if found := existing[ref]; found != nil && !isDesired[ref] && ownedBy(found, owner) {
			s.Prune = append(s.Prune, found)
		}
	}
	return s
}

func differs(desired, found *unstructured.Unstructured) bool {
	const hash = v1beta1.AnnotationAppliedHash
	return found.GetAnnotations()[hash] != desired.GetAnnotations()[hash] || !hasAllFields(found.Object, desired.Object)
}

// recordedObjects returns the objects that the status lists during the steps: the old and the new ones.
func (s steps) recordedObjects(installed []v1beta1.InstalledObject) []v1beta1.InstalledObject {
	all := slices.Clone(installed)
	for _, ref := range s.installedObjects() {
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	return all
}

// installedObjects returns the objects to list in the status when all steps are done.
func (s steps) installedObjects() []v1beta1.InstalledObject {
	refs := make([]v1beta1.InstalledObject, len(s.DesiredObjects))
	for i, object := range s.DesiredObjects {
		refs[i] = refOf(object)
	}
	return refs
}

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
	return "This Provider did not create these objects and does not change them: " + strings.Join(parts, ", ") +
		". Uninstall the release that created them, or delete them. Nothing is installed or changed until then."
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
