package machineset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func hibernated(set *v1beta1.MachineSet) { set.Spec.Hibernated = true }

func powerState(state v1beta1.PowerState) machineOption {
	return func(m *v1beta1.Machine) { m.Spec.PowerState = state }
}

var markedHibernated = annotated(v1beta1.AnnotationHibernated, "")

// Rules: hibernation-stops-machines, hibernation-waits, hibernation-scale-down, hibernation-ends.
func TestHibernation(t *testing.T) {
	expiring := func(set *v1beta1.MachineSet) {
		set.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Minute}
	}
	for name, tc := range map[string]struct {
		set      *v1beta1.MachineSet
		machines []*v1beta1.Machine
		want     string
	}{
		"machines are stopped": {aSet(2, hibernated), several("m", 2, up), "update m0 m1"},
		"stopped machines stay": {aSet(2, hibernated), several("m", 2, up, powerState(v1beta1.PowerStopped), markedHibernated),
			"settled"},
		"a machine that a user starts is stopped again": {aSet(1, hibernated),
			several("m", 1, up, powerState(v1beta1.PowerRunning), markedHibernated), "update m0"},
		"a machine that a user has stopped is not marked": {aSet(1, hibernated),
			several("m", 1, up, powerState(v1beta1.PowerStopped)), "settled"},
		"no machine is created": {aSet(3, hibernated), several("m", 2, up, powerState(v1beta1.PowerStopped), markedHibernated),
			"settled"},
		"a machine too many is deleted": {aSet(1, hibernated),
			several("m", 2, up, powerState(v1beta1.PowerStopped), markedHibernated), "delete m0"},
		"failed machines stay": {aSet(1, hibernated),
			several("m", 1, broken, powerState(v1beta1.PowerStopped), markedHibernated), "settled"},
		"machines without an instance stay": {aSet(1, hibernated),
			several("m", 1, lost, powerState(v1beta1.PowerStopped), markedHibernated), "settled"},
		"machines do not expire": {aSet(1, hibernated, expiring),
			several("m", 1, up, powerState(v1beta1.PowerStopped), markedHibernated), "settled"},
		"the hibernation ends": {aSet(2), several("m", 2, up, powerState(v1beta1.PowerStopped), markedHibernated), "update m0 m1"},
		"the hibernation ends, and a user had stopped a machine": {aSet(1),
			several("m", 1, up, powerState(v1beta1.PowerStopped)), "settled"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range tc.machines {
				m.Spec.ExpireAfter = tc.set.Spec.Template.Spec.ExpireAfter
			}
			p := Decide(stateOf(tc.set, tc.machines...))
			p.FreezeReason, p.RequeueAfter = ConditionReason{}, 0
			if got := p.String(); got != tc.want {
				t.Errorf("the plan is %q, want %q", got, tc.want)
			}
			for _, u := range p.Update {
				_, marked := u.To.Annotations[v1beta1.AnnotationHibernated]
				want := v1beta1.PowerRunning
				if tc.set.Spec.Hibernated {
					want = v1beta1.PowerStopped
				}
				if u.To.Spec.PowerState != want || marked != tc.set.Spec.Hibernated {
					t.Errorf("powerState is %s, marked: %t", u.To.Spec.PowerState, marked)
				}
			}
		})
	}
	if p := Decide(stateOf(aSet(0, hibernated))); p.FreezeReason != hibernation {
		t.Errorf("Frozen reports %+v", p.FreezeReason)
	}
}

// Rule: power-not-remediated.
func TestStoppedMachinesAreNotReplaced(t *testing.T) {
	stopped := powerState(v1beta1.PowerStopped)
	expired := aSet(1)
	expired.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Minute}
	for name, tc := range map[string]struct {
		set     *v1beta1.MachineSet
		machine *v1beta1.Machine
		want    string
	}{
		"failed":           {aSet(1), newMachine("m", broken, stopped), "settled"},
		"marked before":    {aSet(1), newMachine("m", toRemediate, stopped), "settled"},
		"without instance": {aSet(1), newMachine("m", lost, stopped), "replace m"},
		"expired":          {expired, newMachine("m", up, stopped), "settled"},
		"expired, and on":  {expired, newMachine("m", up, powerState(v1beta1.PowerRunning)), "update m"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.Spec.ExpireAfter = tc.set.Spec.Template.Spec.ExpireAfter
			s := stateOf(tc.set, tc.machine)
			s.MaxReplacing = 1
			p := Decide(s)
			p.RequeueAfter = 0
			if got := p.String(); got != tc.want {
				t.Errorf("the plan is %q, want %q", got, tc.want)
			}
		})
	}
}
