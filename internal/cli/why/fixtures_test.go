package why

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func machine(changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	yes := true
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "web-1", UID: "u", Generation: 1, CreationTimestamp: ago(time.Hour),
			Finalizers:      []string{v1beta1.MachineFinalizer},
			Labels:          map[string]string{v1beta1.LabelProvider: "sim"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: "web", UID: "s", Controller: &yes}},
		},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}},
		Status: v1beta1.MachineStatus{
			ObservedGeneration: 1, Phase: v1beta1.MachineRunning, NodeRef: &v1beta1.NodeRef{Name: "node-1", UID: "n"},
		},
	}
	for kind, reason := range map[string]string{
		v1beta1.ConditionLaunched: v1beta1.ReasonInstanceLaunched, v1beta1.ConditionRegistered: v1beta1.ReasonNodeRegistered,
		v1beta1.ConditionNodeHealthy: v1beta1.ReasonNodeReady, v1beta1.ConditionUpToDate: v1beta1.ReasonUpToDate,
		v1beta1.ConditionReady: v1beta1.ReasonMachineReady,
	} {
		condition(kind, metav1.ConditionTrue, reason, "", 50*time.Minute)(m)
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func condition(kind string, status metav1.ConditionStatus, reason, message string,
	since time.Duration) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Conditions = set(m.Status.Conditions, kind, status, reason, message, since)
	}
}

func set(all []metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string,
	since time.Duration) []metav1.Condition {
	var left []metav1.Condition
	for _, c := range all {
		if c.Type != kind {
			left = append(left, c)
		}
	}
	if status == "" {
		return left
	}
	return append(left, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: ago(since)})
}

func no(kind, reason, message string, since time.Duration) func(*v1beta1.Machine) {
	return condition(kind, metav1.ConditionFalse, reason, message, since)
}

func yes(kind, reason, message string, since time.Duration) func(*v1beta1.Machine) {
	return condition(kind, metav1.ConditionTrue, reason, message, since)
}

func phase(p v1beta1.MachinePhase) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Status.Phase = p }
}

func starting(m *v1beta1.Machine) {
	m.Status.Conditions, m.Status.NodeRef, m.Status.Phase = nil, nil, v1beta1.MachinePending
	m.CreationTimestamp = ago(5 * time.Minute)
}

func beingDeleted(m *v1beta1.Machine) {
	at := ago(10 * time.Minute)
	m.DeletionTimestamp, m.Status.Phase = &at, v1beta1.MachineDeleting
}

func annotated(key, value string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[key] = value
	}
}

var running = Process{Name: "machinist-provider-sim", IsKnown: true, IsRunning: true, LastRenewal: inUTC(now)}

// checkGolden checks that the text of a view equals the content of a golden file. It also checks that the view can be
// encoded as JSON.
func checkGolden(t *testing.T, name string, view View, style printer.Style) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Text(file, style); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(view); err != nil {
		t.Error(err)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
