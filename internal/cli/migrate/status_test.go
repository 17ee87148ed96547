package migrate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
)

func stuck(m *v1beta1.Migration) {
	m.Status.Machines.Adopted = 7
	m.Status.Troubles = []string{"machine kube-system/a: the instance has the tags of another installation\x1b[2J"}
	set(m, v1beta1.ConditionStuck, metav1.ConditionTrue, v1beta1.ReasonTroubles, "The cloud is down.")
}

func committed(m *v1beta1.Migration) { m.Spec.Stage = v1beta1.MigrationCommit }

func scenes() map[string]*v1beta1.Migration {
	return map[string]*v1beta1.Migration{
		"unobserved": fleet(func(m *v1beta1.Migration) { m.Status = v1beta1.MigrationStatus{} }),
		"planned":    fleet(nil),
		"blocked":    fleet(addFindings),
		"losses": fleet(func(m *v1beta1.Migration) {
			addFindings(m)
			m.Status.Findings = m.Status.Findings[1:]
		}),
		"another-plan": inPhase(v1beta1.MigrationSettling, func(m *v1beta1.Migration) {
			m.Spec.PlanHash = "0000000000000000"
			set(m, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonBlocked, "The plan is another one.")
		}),
		"begun-too-early": inPhase(v1beta1.MigrationPlanning, addFindings),
		"fencing": inPhase(v1beta1.MigrationFencing, func(m *v1beta1.Migration) {
			set(m, v1beta1.ConditionFenced, metav1.ConditionFalse, v1beta1.ReasonStoppingOldControllers,
				"1 pod of deployment kube-system/machine-controller is left.")
		}),
		"copying": inPhase(v1beta1.MigrationCopying, func(m *v1beta1.Migration) { m.Status.Machines.Copied = 3 }),
		"stuck":   inPhase(v1beta1.MigrationAdopting, stuck),
		"fence-broken": inPhase(v1beta1.MigrationAdopting, func(m *v1beta1.Migration) {
			set(m, v1beta1.ConditionFenced, metav1.ConditionFalse, v1beta1.ReasonStoppingOldControllers,
				"The deployment kube-system/machine-controller was scaled to 1.")
		}),
		"adopted": inPhase(v1beta1.MigrationAdopted, func(m *v1beta1.Migration) {
			m.Status.Machines.Adopted = 12
			set(m, v1beta1.ConditionAdopted, metav1.ConditionTrue, v1beta1.ReasonMigrated, "")
		}),
		"will-commit": inPhase(v1beta1.MigrationAdopting, committed),
		"committing":  inPhase(v1beta1.MigrationCommitting, committed),
		"removing": inPhase(v1beta1.MigrationRemoving, func(m *v1beta1.Migration) {
			committed(m)
			m.Status.Machines.Old = 4
		}),
		"cleaning": inPhase(v1beta1.MigrationCleaning, committed),
		"completed": inPhase(v1beta1.MigrationCompleted, func(m *v1beta1.Migration) {
			committed(m)
			m.Status.Machines = v1beta1.MigrationCounts{Total: 12, Copied: 12, Adopted: 12}
		}),
		"completed-partly": inPhase(v1beta1.MigrationCompleted, func(m *v1beta1.Migration) {
			committed(m)
			m.Spec.Exclude = []string{"MachineDeployment/windows"}
			m.Status.Findings = []v1beta1.MigrationFinding{{Level: "Note", Code: "Excluded", Count: 3,
				Message: "MachineDeployment/windows: The object stays with the old system."}}
		}),
		"aborting": inPhase(v1beta1.MigrationAborting, func(m *v1beta1.Migration) {
			m.Spec.Stage, m.Status.Machines.Adopted = v1beta1.MigrationAbort, 2
			set(m, v1beta1.ConditionAdopted, metav1.ConditionFalse, v1beta1.ReasonAborted, "Waiting for 2 instances.")
		}),
		"aborted": inPhase(v1beta1.MigrationAborted, func(m *v1beta1.Migration) { m.Spec.Stage = v1beta1.MigrationAbort }),
		"deleted": inPhase(v1beta1.MigrationAdopted, func(m *v1beta1.Migration) {
			m.DeletionTimestamp = &metav1.Time{Time: now}
		}),
	}
}

func TestStatusText(t *testing.T) {
	for name, m := range scenes() {
		golden(t, "status-"+name, func(w *strings.Builder) error {
			return StatusOf(m, now, running()).Text(w, printer.Style{})
		})
	}
	absent := &why.Process{Name: "machinist-migrator-azure", Searched: []string{"machinist-system", "prod"}}
	stopped := &why.Process{Name: "machinist-migrator-azure", IsKnown: true}
	for name, process := range map[string]*why.Process{"absent": absent, "stopped": stopped} {
		golden(t, "status-migrator-"+name, func(w *strings.Builder) error {
			return StatusOf(scenes()["unobserved"], now, process).Text(w, printer.Style{})
		})
	}
	golden(t, "status-colour", func(w *strings.Builder) error {
		return StatusOf(scenes()["stuck"], now, nil).Text(w, printer.Style{Colour: true})
	})
}

func TestListText(t *testing.T) {
	items := []Status{StatusOf(scenes()["completed"], now, nil), StatusOf(scenes()["stuck"], now, nil)}
	for name, list := range map[string]List{"namespace": ListOf("prod", items), "all": ListOf("", items),
		"none": ListOf("prod", nil), "none-anywhere": ListOf("", nil)} {
		golden(t, "list-"+name, func(w *strings.Builder) error { return list.Text(w, printer.Style{}) })
	}
}

// Users rely on these field names.
func TestJSON(t *testing.T) {
	golden(t, "json", func(w *strings.Builder) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		stuck := StatusOf(scenes()["stuck"], now, running())
		return encoder.Encode(ListOf("prod", []Status{stuck, StatusOf(scenes()["blocked"], now, running())}))
	})
}

func TestProgress(t *testing.T) {
	golden(t, "progress", func(w *strings.Builder) error {
		for _, name := range []string{"unobserved", "planned", "blocked", "another-plan", "fencing", "copying", "stuck",
			"fence-broken", "adopted", "will-commit", "committing", "removing", "cleaning", "completed", "aborting", "aborted"} {
			m := scenes()[name]
			fmt.Fprintf(w, "%s\n  %s\n", name, Line(m))
			for _, trouble := range Problems(m) {
				fmt.Fprintf(w, "  trouble: %s\n", trouble)
			}
			for _, line := range Picture(m, printer.Style{ASCII: true}, 60) {
				fmt.Fprintf(w, "  | %s\n", line)
			}
		}
		return nil
	})
}

func TestTroublesIgnoreAnEarlierSpecification(t *testing.T) {
	m := inPhase(v1beta1.MigrationPlanning, addFindings)
	if got := Problems(m); len(got) != 1 {
		t.Errorf("got %v, want one trouble", got)
	}
	m.Generation++
	if got := Problems(m); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestExplain(t *testing.T) {
	golden(t, "why", func(w *strings.Builder) error {
		for _, name := range []string{"unobserved", "losses", "another-plan", "fencing", "stuck", "adopted", "completed",
			"aborting"} {
			process := running()
			process.IsRunning = name != "unobserved"
			s := StatusOf(scenes()[name], now, process)
			view := why.View{Now: now, Object: "migration/old-fleet", Namespace: "prod", State: string(s.Phase),
				Findings: Explain(scenes()[name], s)}
			if err := view.Text(w, printer.Style{}); err != nil {
				return err
			}
			w.WriteString("\n")
		}
		return nil
	})
}
