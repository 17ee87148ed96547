package invariants

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func powerMachine(state v1beta1.PowerState, step v1beta1.PowerStep, reboot string) *v1beta1.Machine {
	m := &v1beta1.Machine{}
	m.Spec.PowerState = state
	if step != "" {
		m.Status.Power = &v1beta1.PowerStatus{Step: step}
	}
	if reboot != "" {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta1.AnnotationReboot, reboot)
	}
	return m
}

func TestStopsAreRequestedAndRecorded(t *testing.T) {
	running, asked := powerMachine("", "", ""), powerMachine(v1beta1.PowerStopped, "", "")
	recorded := powerMachine(v1beta1.PowerStopped, v1beta1.PowerStepShuttingDown, "")
	startedAgain := powerMachine(v1beta1.PowerRunning, v1beta1.PowerStepShuttingDown, "")
	for name, test := range map[string]struct {
		versions, believed []*v1beta1.Machine
		want               string
	}{
		"recorded":                   {[]*v1beta1.Machine{running, asked, recorded}, []*v1beta1.Machine{recorded}, ""},
		"completed before the start": {[]*v1beta1.Machine{recorded, startedAgain}, []*v1beta1.Machine{startedAgain}, ""},
		"reboot": {[]*v1beta1.Machine{powerMachine("", "", "a")},
			[]*v1beta1.Machine{powerMachine("", v1beta1.PowerStepShuttingDown, "a")}, ""},
		"not recorded": {[]*v1beta1.Machine{asked}, []*v1beta1.Machine{asked, nil}, "the status does not record this"},
		"not requested": {[]*v1beta1.Machine{running, nil}, []*v1beta1.Machine{powerMachine("", v1beta1.PowerStepShuttingDown,
			"")}, "this was not requested"},
	} {
		if got := WrongStop(test.versions, test.believed); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestForcedStops(t *testing.T) {
	first := at("2030-01-01 00:00:00")
	shuttingDown := powerMachine(v1beta1.PowerStopped, v1beta1.PowerStepShuttingDown, "")
	shuttingDown.Status.Power.Since = metav1.NewTime(first)
	for name, test := range map[string]struct {
		believed *v1beta1.Machine
		after    time.Duration
		silent   bool
		wrong    bool
	}{
		"after the timeout":  {shuttingDown, 5 * time.Minute, false, false},
		"before the timeout": {shuttingDown, 4 * time.Minute, false, true},
		"never asked":        {powerMachine(v1beta1.PowerStopped, "", ""), time.Hour, false, true},
		"a silent kubelet":   {nil, 0, true, false},
	} {
		got := WrongForcedStop([]*v1beta1.Machine{test.believed}, first.Add(test.after), test.silent)
		if (got != "") != test.wrong {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestRebootsAreCountedByTheirValues(t *testing.T) {
	versions := []*v1beta1.Machine{powerMachine("", "", "a"), powerMachine("", "", ""), nil, powerMachine("", "", "a"),
		powerMachine("", "", "b")}
	if got := Reboots(versions); got != 2 || WasSwitched(versions) {
		t.Errorf("got %d reboots, switched %t", got, WasSwitched(versions))
	}
	if !WasSwitched(append(versions, powerMachine(v1beta1.PowerRunning, "", ""))) {
		t.Error("a machine with a power state was not switched")
	}
}
