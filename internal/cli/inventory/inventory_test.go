package inventory

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func meta(name, owner string) metav1.ObjectMeta {
	o := metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("uid-" + name)}
	if owner != "" {
		controls := true
		o.OwnerReferences = []metav1.OwnerReference{{Name: owner, UID: types.UID("uid-" + owner), Controller: &controls}}
	}
	return o
}

func TestJoin(t *testing.T) {
	deployments := []v1beta1.MachineDeployment{{ObjectMeta: meta("web", "")}, {ObjectMeta: meta("api", "")}}
	sets := []v1beta1.MachineSet{{ObjectMeta: meta("web-2", "web")}, {ObjectMeta: meta("web-1", "web")},
		{ObjectMeta: meta("lone", "")}, {ObjectMeta: meta("of-another", "gone")}}
	machines := []v1beta1.Machine{{ObjectMeta: meta("c", "web-1")}, {ObjectMeta: meta("a", "web-1")},
		{ObjectMeta: meta("b", "web-2")}, {ObjectMeta: meta("d", "lone")}, {ObjectMeta: meta("e", "")},
		{ObjectMeta: meta("f", "gone")}}
	inv := Join(deployments, sets, machines)
	for what, test := range map[string]struct{ got, want string }{
		"sets of web":           {names(inv.Sets(&deployments[0])), "[web-2 web-1]"},
		"sets of api":           {names(inv.Sets(&deployments[1])), "[]"},
		"machines of web":       {names(inv.AllMachines(&deployments[0])), "[b a c]"},
		"machines of web-1":     {names(inv.Machines(&sets[1])), "[a c]"},
		"machines of lone":      {names(inv.Machines(&sets[2])), "[d]"},
		"sets without owner":    {names(inv.LooseSets), "[lone of-another]"},
		"machines without":      {names(inv.LooseMachines), "[e f]"},
		"sets of a deployment":  {names(inv.OwnedSets()), "[web-1 web-2]"},
		"of an empty inventory": {names(Join(nil, nil, nil).LooseMachines), "[]"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", what, test.got, test.want)
		}
	}
}

func names[P metav1.Object](objects []P) string {
	all := make([]string, len(objects))
	for i, o := range objects {
		all[i] = o.GetName()
	}
	return fmt.Sprint(all)
}
