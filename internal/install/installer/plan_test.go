package installer

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func object(name, hash string, owner types.UID) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("ServiceAccount")
	o.SetNamespace("machinist-system")
	o.SetName(name)
	o.SetAnnotations(map[string]string{v1beta1.AnnotationAppliedHash: hash})
	if owner != "" {
		o.SetOwnerReferences([]metav1.OwnerReference{{UID: owner}})
	}
	return o
}

func list(objects ...*unstructured.Unstructured) []*unstructured.Unstructured { return objects }

func refs(objects []*unstructured.Unstructured) []v1beta1.InstalledObject {
	var all []v1beta1.InstalledObject
	for _, o := range objects {
		all = append(all, refOf(o))
	}
	return all
}

// Rules: nothing-written-when-as-desired, pruned-when-not-rendered, objects-of-others-untouched.
func TestPlanOf(t *testing.T) {
	changed := object("a", "1", "me")
	changed.SetLabels(map[string]string{"x": "changed"})
	desired := object("a", "1", "me")
	desired.SetLabels(map[string]string{"x": "desired"})
	beingDeleted := object("a", "1", "former")
	now := metav1.Now()
	beingDeleted.SetDeletionTimestamp(&now)
	for name, test := range map[string]struct {
		desired, existing []*unstructured.Unstructured
		installed         []v1beta1.InstalledObject
		want              string
	}{
		"nothing exists": {desired: list(object("a", "1", "me"), object("b", "1", "me")), want: "apply a, apply b"},
		"everything exists": {desired: list(object("a", "1", "me")), existing: list(object("a", "1", "me")),
			installed: refs(list(object("a", "", ""))), want: ""},
		"another hash":    {desired: list(object("a", "2", "me")), existing: list(object("a", "1", "me")), want: "force a"},
		"a manual change": {desired: list(desired), existing: list(changed), want: "force a"},
		"no longer rendered: the last one is pruned first": {desired: list(object("a", "1", "me")),
			existing:  list(object("a", "1", "me"), object("b", "1", "me"), object("c", "1", "me")),
			installed: refs(list(object("a", "", ""), object("b", "", ""), object("c", "", ""))), want: "prune c, prune b"},
		"no longer rendered, but adopted by another owner": {existing: list(object("b", "1", "other")),
			installed: refs(list(object("b", "", ""))), want: ""},
		"no longer rendered, and gone": {installed: refs(list(object("b", "", ""))), want: ""},
		"without an owner":             {desired: list(object("a", "1", "me")), existing: list(object("a", "1", "")), want: "conflict a"},
		"of another owner":             {desired: list(object("a", "1", "me")), existing: list(object("a", "1", "other")), want: "conflict a"},
		"being deleted":                {desired: list(object("a", "1", "me")), existing: list(beingDeleted), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			existing := presentObjects{}
			for _, o := range test.existing {
				existing[refOf(o)] = o
			}
			steps := planOf(test.desired, existing, test.installed, "me")
			var got []string
			for _, a := range steps.Apply {
				if a.Force {
					got = append(got, "force "+a.Object.GetName())
				} else {
					got = append(got, "apply "+a.Object.GetName())
				}
			}
			for _, o := range steps.Prune {
				got = append(got, "prune "+o.GetName())
			}
			for _, o := range steps.Conflicts {
				got = append(got, "conflict "+o.GetName())
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %q, want %q", strings.Join(got, ", "), test.want)
			}
			// During the steps, the status must list every object that may exist.
			recorded := steps.recordedObjects(test.installed)
			for _, ref := range slices.Concat(test.installed, refs(test.desired)) {
				if !slices.Contains(recorded, ref) {
					t.Errorf("%v is not recorded", ref)
				}
			}
		})
	}
}

// Rule: objects-of-others-untouched.
func TestConflictMessageNamesOwners(t *testing.T) {
	helm, unlabelled, other := object("helm", "", ""), object("bare", "", ""), object("other", "", "")
	helm.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "sim",
		"meta.helm.sh/release-namespace": "machinist-system"})
	other.SetLabels(map[string]string{v1beta1.LabelInstalledBy: "azure"})
	message := steps{Conflicts: list(helm, unlabelled, other)}.conflictMessage()
	for _, part := range []string{
		"ServiceAccount machinist-system/helm (of the helm release machinist-system/sim)",
		"ServiceAccount machinist-system/bare, ", "ServiceAccount machinist-system/other (of Provider azure)",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not contain %q", message, part)
		}
	}
}
