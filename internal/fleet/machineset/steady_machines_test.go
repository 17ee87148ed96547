package machineset

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func TestSteadyMachines(t *testing.T) {
	all := map[string][]machineOption{
		"being deleted":               {up, leaving},
		"Pending":                     {},
		"failed":                      {broken},
		"unhealthy":                   {unhealthy},
		"not Ready":                   {notReady},
		"with a remediation request":  {toRemediate},
		"without labels of the set":   {up, otherLabels},
		"not launchable":              {misconfigured},
		"marked for deletion":         {up, annotated(v1beta1.AnnotationDeleteMachine, "")},
		"marked for replacement":      {up, annotated(v1beta1.AnnotationReplace, "")},
		"exempt from disruption":      {up, annotated(v1beta1.AnnotationDoNotDisrupt, "")},
		"to be preserved when failed": {up, annotated(v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)},
		"preserved":                   {up, annotated(v1beta1.AnnotationPreservedUntil, "2030-01-31T12:00:00Z")},
		"out of sync with the template": {up, func(m *v1beta1.Machine) {
			m.Spec.Timeouts.Drain = &metav1.Duration{Duration: time.Minute}
		}},
		"out of date": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending, time.Minute)
		}},
		"out of date since its spec changed": {up, func(m *v1beta1.Machine) { m.Generation = 2 }},
		"about to be interrupted": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionInterruptionNotice, true, v1beta1.ReasonPreemptionNotice, time.Minute)
		}},
		"with exhausted retries": {up, func(m *v1beta1.Machine) {
			setCondition(m, v1beta1.ConditionRemediationRequested, false, v1beta1.ReasonRetriesExhausted, time.Minute)
		}},
	}
	usual := newMachine("usual", up)
	machines := []*v1beta1.Machine{usual}
	for name, options := range all {
		machines = append(machines, newMachine(name, options...))
	}
	var sorter steadyMachines
	for _, step := range []string{"first pass", "second pass"} {
		steady, others := sorter.sort(aSet(3), machines, epoch)
		if len(steady) != 1 || steady[0] != usual {
			t.Errorf("%s: %s are steady, want only the usual one", step, namesOf(steady))
		}
		if len(others) != len(all) {
			t.Errorf("%s: %d machines are not steady, want %d", step, len(others), len(all))
		}
	}
}

func TestChangedSetChecksSteadyMachinesAgain(t *testing.T) {
	a, b := newMachine("a", up), newMachine("b", readyFor(time.Minute))
	for name, test := range map[string]struct {
		set  *v1beta1.MachineSet
		now  time.Time
		want int
	}{
		"nothing changed":     {aSet(3, minReady(30)), epoch, 2},
		"machines expire now": {aSet(3, minReady(30), expiring), epoch, 0},
		"the selector became invalid": {aSet(3, minReady(30),
			func(set *v1beta1.MachineSet) { set.Spec.Selector = metav1.LabelSelector{} }), epoch, 0},
		"replicas were raised":       {aSet(4, minReady(30)), epoch, 2},
		"minReadySeconds was raised": {aSet(3, minReady(90)), epoch, 1},
		"the template has another label": {aSet(3, minReady(30), func(set *v1beta1.MachineSet) {
			set.Spec.Template.ObjectMeta.Labels["more"] = ""
		}), epoch, 0},
		"the selector changed": {aSet(3, minReady(30), func(set *v1beta1.MachineSet) {
			set.Spec.Selector.MatchLabels["more"] = ""
			set.Spec.Template.ObjectMeta.Labels["more"] = ""
		}), epoch, 0},
		"the clock was set back": {aSet(3, minReady(30)), epoch.Add(-45 * time.Second), 1},
	} {
		var sorter steadyMachines
		sorter.sort(aSet(3, minReady(30)), []*v1beta1.Machine{a, b}, epoch)
		if steady, _ := sorter.sort(test.set, []*v1beta1.Machine{a, b}, test.now); len(steady) != test.want {
			t.Errorf("%s: %d machines are steady, want %d", name, len(steady), test.want)
		}
	}
}

func TestChangedMachineIsCheckedAgain(t *testing.T) {
	var sorter steadyMachines
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
		if steady, others := sorter.sort(aSet(1), []*v1beta1.Machine{m}, epoch); len(steady) != version.want ||
			len(steady)+len(others) != 1 {
			t.Errorf("version %s: %d machines are steady and %d are not, want %d steady", version.name, len(steady), len(others),
				version.want)
		}
	}
}

// Otherwise the memory would grow with every machine that the set ever had.
func TestSteadyMachinesThatAreGoneAreForgotten(t *testing.T) {
	var sorter steadyMachines
	for i := range 100 {
		sorter.sort(aSet(3), several(fmt.Sprintf("m%d-", i), 16, up), epoch)
	}
	if n := len(sorter.versions); n > 32 {
		t.Errorf("%d machines are remembered, but only 16 exist", n)
	}
}
