package demo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

var update = flag.Bool("update", false, "write the screens in testdata again")

// If the picture were wider or higher than the terminal, the next picture would overwrite the wrong lines.
func TestScreens(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, terminal := range []size{{80, 24}, {200, 50}} {
		for _, machines := range []int{3, 60} {
			name := fmt.Sprintf("%dx%d-%d-machines.txt", terminal.columns, terminal.rows, machines)
			t.Run(name, func(t *testing.T) {
				got := strings.Join(aFleetOf(machines, now).table(terminal, now), "\n") + "\n"
				if n := strings.Count(got, "\n"); n >= terminal.rows {
					t.Errorf("the picture has %d lines, the terminal %d rows", n, terminal.rows)
				}
				for line := range strings.Lines(got) {
					if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > terminal.columns {
						t.Errorf("a line has %d characters, the terminal %d columns: %s", len(line)-1, terminal.columns, line)
					}
				}
				golden := filepath.Join("testdata", name)
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// aFleetOf returns a fleet in which every tenth machine is not Running and one machine is being deleted.
func aFleetOf(n int, now time.Time) snapshot {
	replicas := int32(n)
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	d.Spec.Replicas = &replicas
	d.Status.Replicas, d.Status.ReadyReplicas = replicas, replicas-1
	s := snapshot{deployment: d}
	for i := range n {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("workers-qdwlm5hg2-%05d", i),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(i) * time.Minute)),
		}}
		m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
		m.Status.Phase, m.Status.Version = v1beta1.MachineRunning, "v1.36.3"
		m.Status.NodeRef = &v1beta1.NodeRef{Name: m.Name}
		switch {
		case i == 1:
			deleted := metav1.NewTime(now)
			m.DeletionTimestamp, m.Status.Phase = &deleted, v1beta1.MachineDeleting
			m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue,
				Reason: v1beta1.ReasonWaitingForPreTerminateHook}}
		case i%10 == 2:
			m.Status.Phase, m.Status.NodeRef, m.Status.Version = v1beta1.MachineProvisioned, nil, ""
			m.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse,
				Reason: v1beta1.ReasonWaitingForNode}}
		}
		s.machines = append(s.machines, m)
	}
	return s
}
