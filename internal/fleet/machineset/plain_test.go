package machineset

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// A machine that is not plain is checked in each pass.
func TestPlainMachines(t *testing.T) {
	all := map[string][]machineOption{
		"being deleted":               {up, leaving},
		"Pending":                     {},
		"failed":                      {broken},
		"unhealthy":                   {unhealthy},
		"not Ready":                   {notReady},
		"to be remediated":            {toRemediate},
		"without labels of the set":   {up, otherLabels},
		"that cannot be launched":     {misconfigured},
		"to be deleted first":         {up, annotated(v1beta1.AnnotationDeleteMachine, "")},
		"to be replaced":              {up, annotated(v1beta1.AnnotationReplace, "")},
		"not to be disrupted":         {up, annotated(v1beta1.AnnotationDoNotDisrupt, "")},
		"to be preserved when failed": {up, annotated(v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)},
		"preserved":                   {up, annotated(v1beta1.AnnotationPreservedUntil, "2030-01-31T12:00:00Z")},
		"with another template": {up, func(m *v1beta1.Machine) {
			m.Spec.Timeouts.Drain = &metav1.Duration{Duration: time.Minute}
		}},
		"out of date": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending, time.Minute)
		}},
		"out of date since it changed": {up, func(m *v1beta1.Machine) { m.Generation = 2 }},
		"about to be interrupted": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionInterruptionNotice, true, v1beta1.ReasonPreemptionNotice, time.Minute)
		}},
		"that was replaced too often": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, false, v1beta1.ReasonRetriesExhausted, time.Minute)
		}},
	}
	usual := newMachine("usual", up)
	machines := []*v1beta1.Machine{usual}
	for name, options := range all {
		machines = append(machines, newMachine(name, options...))
	}
	var sorter plainMachines
	for _, step := range []string{"at first", "once more"} {
		plain, others := sorter.sort(aSet(3), machines, epoch)
		if len(plain) != 1 || plain[0] != usual {
			t.Errorf("%s: %s are plain, want the usual one only", step, namesOf(plain))
		}
		if len(others) != len(all) {
			t.Errorf("%s: %d machines are not plain, want %d", step, len(others), len(all))
		}
	}
}

func TestPlainMachinesAreForgotten(t *testing.T) {
	a, b := newMachine("a", up), newMachine("b", readyFor(time.Minute))
	for name, test := range map[string]struct {
		set  *v1beta1.MachineSet
		now  time.Time
		want int
	}{
		"nothing changed":               {aSet(3, minReady(30)), epoch, 2},
		"machines expire now":           {aSet(3, minReady(30), expiring), epoch, 0},
		"the selector is invalid now":   {aSet(3, minReady(30), func(set *v1beta1.MachineSet) { set.Spec.Selector = metav1.LabelSelector{} }), epoch, 0},
		"more are wanted":               {aSet(4, minReady(30)), epoch, 2},
		"they must be Ready for longer": {aSet(3, minReady(90)), epoch, 1},
		"the template has another label": {aSet(3, minReady(30), func(set *v1beta1.MachineSet) {
			set.Spec.Template.ObjectMeta.Labels["more"] = ""
		}), epoch, 0},
		"the selector selects others": {aSet(3, minReady(30), func(set *v1beta1.MachineSet) {
			set.Spec.Selector.MatchLabels["more"] = ""
			set.Spec.Template.ObjectMeta.Labels["more"] = ""
		}), epoch, 0},
		"the clock was set back": {aSet(3, minReady(30)), epoch.Add(-45 * time.Second), 1},
	} {
		var sorter plainMachines
		sorter.sort(aSet(3, minReady(30)), []*v1beta1.Machine{a, b}, epoch)
		if plain, _ := sorter.sort(test.set, []*v1beta1.Machine{a, b}, test.now); len(plain) != test.want {
			t.Errorf("%s: %d machines are plain, want %d", name, len(plain), test.want)
		}
	}
}

func TestANewVersionIsCheckedAnew(t *testing.T) {
	var sorter plainMachines
	for _, version := range []struct {
		name    string
		options []machineOption
		want    int
	}{
		{"51", []machineOption{up}, 1},
		{"52", []machineOption{broken}, 0},
		{"53", []machineOption{up}, 1},
		{"54", []machineOption{up, leaving}, 0},
	} {
		m := newMachine("m", version.options...)
		m.ResourceVersion = version.name
		if plain, others := sorter.sort(aSet(1), []*v1beta1.Machine{m}, epoch); len(plain) != version.want ||
			len(plain)+len(others) != 1 {
			t.Errorf("version %s: %d machines are plain and %d are not, want %d plain", version.name, len(plain), len(others),
				version.want)
		}
	}
}

// Otherwise a set would remember every machine that it ever had.
func TestMachinesThatAreGoneAreForgotten(t *testing.T) {
	var sorter plainMachines
	for i := range 100 {
		sorter.sort(aSet(3), several(fmt.Sprintf("m%d-", i), 16, up), epoch)
	}
	if n := len(sorter.known); n > 32 {
		t.Errorf("%d are remembered of 16 machines", n)
	}
}
