package overshoot

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: overshoot-freezes-owner.
func TestWhoFrozeTheFleet(t *testing.T) {
	labeled := func(value string) metav1.ObjectMeta {
		if value == "" {
			return metav1.ObjectMeta{}
		}
		return metav1.ObjectMeta{Labels: map[string]string{v1beta1.LabelFreeze: value}}
	}
	const ours, user = v1beta1.ReasonOvershoot, "user"
	for name, test := range map[string]struct {
		deployment, first, second string
		isFrozen, any             bool
	}{
		"nobody":                                {},
		"this package froze the deployment":     {deployment: ours, isFrozen: true, any: true},
		"this package froze all":                {deployment: ours, first: ours, second: ours, isFrozen: true, any: true},
		"this package froze only the last set":  {second: ours, any: true},
		"a user froze the deployment":           {deployment: user},
		"a user froze all":                      {deployment: user, first: user, second: user},
		"both froze, the first set shows it":    {deployment: user, first: ours, isFrozen: true, any: true},
		"both froze, the last set shows it":     {deployment: user, first: user, second: ours, isFrozen: true, any: true},
		"a user froze only a set":               {first: user},
		"a user froze the set, we the last one": {first: user, second: ours, any: true},
	} {
		f := &fleet{deployment: &v1beta1.MachineDeployment{ObjectMeta: labeled(test.deployment)},
			sets: []*v1beta1.MachineSet{{ObjectMeta: labeled(test.first)}, {ObjectMeta: labeled(test.second)}}}
		if f.isFrozen() != test.isFrozen || f.anyFrozenByUs() != test.any {
			t.Errorf("%s: frozen is %t, want %t; any member is %t, want %t", name, f.isFrozen(), test.isFrozen,
				f.anyFrozenByUs(), test.any)
		}
	}
	for value, want := range map[string]bool{"": false, ours: true, user: false} {
		f := &fleet{sets: []*v1beta1.MachineSet{{ObjectMeta: labeled(value)}}}
		if f.isFrozen() != want || f.anyFrozenByUs() != want {
			t.Errorf("standalone set with label %q: frozen is %t, any member is %t", value, f.isFrozen(), f.anyFrozenByUs())
		}
	}
}
