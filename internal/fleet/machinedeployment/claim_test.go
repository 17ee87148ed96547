package machinedeployment

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: adopts-sets-by-labels-and-template.
func TestAdoptable(t *testing.T) {
	web, other := map[string]string{"app": "web"}, map[string]string{"app": "other"}
	selector := labels.SelectorFromSet(web)
	for name, test := range map[string]struct {
		labels, template map[string]string
		change           func(*v1beta1.MachineSet)
		want             bool
	}{
		"a set of the deployment":               {labels: web, template: web, want: true},
		"a set of other machines":               {labels: web, template: other},
		"a set without the labels of its own":   {labels: other, template: web},
		"a set without any labels":              {},
		"a set of another owner":                {labels: web, template: web, change: ownedByOther},
		"a set that is being deleted":           {labels: web, template: web, change: deletedSet},
		"a set of other machines with an owner": {labels: web, template: other, change: ownedByOther},
	} {
		set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
		set.Spec.Template.ObjectMeta.Labels = test.template
		if test.change != nil {
			test.change(set)
		}
		if got := adoptable(set, selector); got != test.want {
			t.Errorf("%s: adoptable is %t", name, got)
		}
	}
}

func ownedByOther(set *v1beta1.MachineSet) {
	controller := true
	set.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "other", UID: "other",
		Controller: &controller}}
}

func deletedSet(set *v1beta1.MachineSet) { set.DeletionTimestamp = &metav1.Time{Time: noon} }

// Rule: labels-of-owned-set-restored.
func TestTemplateLabelsReplaceChangedLabels(t *testing.T) {
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "other", "team": "a"}}}
	set.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web", v1beta1.LabelTemplateHash: "x"}
	want := map[string]string{"app": "web", "team": "a", v1beta1.LabelTemplateHash: "x"}
	if got := withTemplateLabels(set).Labels; !maps.Equal(got, want) {
		t.Errorf("got the labels %v, want %v", got, want)
	}
	if set.Labels["app"] != "other" {
		t.Error("the set in the cache was changed")
	}
}
