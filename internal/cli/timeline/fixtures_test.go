package timeline

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
)

var update = flag.Bool("update", false, "write the golden files")

// noon is the creation time of the test machines. Each test case has its own current time.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

func machine(changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "web-1", UID: "u", CreationTimestamp: after(0),
		Finalizers: []string{v1beta1.MachineFinalizer},
	}}
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	for _, change := range changes {
		change(m)
	}
	return m
}

func is(kind string, status metav1.ConditionStatus, reason, message string, seconds int) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		meta.RemoveStatusCondition(&m.Status.Conditions, kind)
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message: message, LastTransitionTime: after(seconds)})
	}
}

func yes(kind, reason string, seconds int) func(*v1beta1.Machine) {
	return is(kind, metav1.ConditionTrue, reason, "", seconds)
}

func no(kind, reason, message string, seconds int) func(*v1beta1.Machine) {
	return is(kind, metav1.ConditionFalse, reason, message, seconds)
}

// launched returns a function that gives the machine an instance. Both times are in seconds after noon: the start of
// the creation in the cloud, and the time when the condition Launched became True.
func launched(cloudStart, seconds int) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		at := after(cloudStart)
		m.Spec.ProviderID, m.Status.Phase = "sim:///1", v1beta1.MachineProvisioned
		m.Status.Instance = &v1beta1.InstanceStatus{LaunchTime: &at}
		yes(v1beta1.ConditionLaunched, v1beta1.ReasonInstanceLaunched, seconds)(m)
		yes(v1beta1.ConditionUpToDate, v1beta1.ReasonUpToDate, seconds)(m)
	}
}

// withReadyNode returns a function that adds a Ready Node to the machine. The machine has been Running since the
// given number of seconds after noon.
func withReadyNode(seconds int) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Phase, m.Status.NodeRef = v1beta1.MachineRunning, &v1beta1.NodeRef{Name: "node-1", UID: "n"}
		yes(v1beta1.ConditionRegistered, v1beta1.ReasonNodeRegistered, seconds)(m)
		yes(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeReady, seconds)(m)
		yes(v1beta1.ConditionReady, v1beta1.ReasonMachineReady, seconds)(m)
		last(v1beta1.OperationCreate, v1beta1.OperationSucceeded, seconds)(m)
	}
}

func last(kind v1beta1.OperationType, state v1beta1.OperationState, seconds int) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		at := after(seconds)
		m.Status.LastOperation = &v1beta1.LastOperation{Type: kind, State: state, LastUpdateTime: &at}
	}
}

func failing(code string, attempts int32) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.LastOperation.Code, m.Status.LastOperation.Attempts = code, attempts
		m.Status.LastOperation.Description = code + ": try again later"
	}
}

func deleted(seconds int) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		at := after(seconds)
		m.DeletionTimestamp, m.Status.Phase = &at, v1beta1.MachineDeleting
	}
}

func deleting(reason, message string, seconds int) func(*v1beta1.Machine) {
	return is(v1beta1.ConditionDeleting, metav1.ConditionTrue, reason, message, seconds)
}

func attempt(n int32, step v1beta1.LaunchStep) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Launch = &v1beta1.LaunchStatus{Attempt: n, Step: step, OldProviderID: "sim:///0"}
	}
}

func node(created, ready int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", CreationTimestamp: after(created)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastTransitionTime: after(ready)}}
	return n
}

func event(seconds int, count int32, reason, message string) why.Event {
	return why.Event{First: after(seconds).Time, Last: after(seconds).Time, Count: count, Reason: reason, Message: message}
}

// rollout adds a deployment and its newest set. The rollout started the given number of seconds after noon.
func rollout(o Facts, status metav1.ConditionStatus, seconds int) Facts {
	o.Deployment = &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	o.Deployment.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionRollingOut, Status: status,
		Reason: v1beta1.ReasonRolloutBlocked, Message: "Waiting for 1 machine of web-2 to become available.",
		LastTransitionTime: after(seconds)}}
	o.Newest = &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web-2", CreationTimestamp: after(seconds)}}
	return o
}

// checkGolden compares a timeline with golden files, and checks its steps.
func checkGolden(t *testing.T, name string, o Facts, s printer.Style) {
	t.Helper()
	line := New(o)
	checkSteps(t, line)
	var text strings.Builder
	if err := line.Text(&text, s); err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(line, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, name+".golden", text.String())
	compare(t, name+".json", string(data)+"\n")
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// checkSteps checks that the steps of each operation have no gaps and add up to its duration.
func checkSteps(t *testing.T, line Timeline) {
	t.Helper()
	for _, o := range line.Operations {
		at, end, shares := o.Start, line.Now, 0.0
		if o.End != nil {
			end = *o.End
		}
		if len(o.Steps) == 0 {
			t.Errorf("%s has no step", o.Kind)
		}
		for i, s := range o.Steps {
			if !s.Start.Equal(at) {
				t.Errorf("%s: step %s starts at %s, and the previous step ended at %s", o.Kind, s.Name, s.Start, at)
			}
			shares += s.Share
			switch {
			case s.End != nil:
				at = *s.End
			case i < len(o.Steps)-1 || o.End != nil:
				t.Errorf("%s: step %s has no end", o.Kind, s.Name)
			default:
				at = line.Now
			}
			if at.Before(s.Start) {
				t.Errorf("%s: step %s ends before it starts", o.Kind, s.Name)
			}
		}
		if !at.Equal(end) {
			t.Errorf("%s: the steps end at %s, the operation at %s", o.Kind, at, end)
		}
		if o.Seconds > 0 && math.Abs(shares-1) > 1e-9 {
			t.Errorf("%s: the shares add up to %g", o.Kind, shares)
		}
	}
}
