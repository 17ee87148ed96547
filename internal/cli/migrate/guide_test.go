package migrate

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

func guideFleet(m *v1beta1.Migration) {
	m.Namespace, m.Spec.SourceNamespace = "kube-system", ""
	m.Status.Machines = v1beta1.MigrationCounts{Total: 3, Old: 3}
	m.Status.PlanTime = &metav1.Time{Time: now.Add(-12 * time.Second)}
	m.Status.Findings = []v1beta1.MigrationFinding{
		{Level: "Loss", Code: "UserData", Count: 1, Message: "MachineDeployment/workers " +
			"spec.template.spec.providerSpec.value.operatingSystem: The user data in the Secret " +
			"cloud-init-settings/workers-kube-system-bootstrap-config is copied, but its token expires. Name a " +
			"Secret with your own template in spec.userDataRef of the Migration."},
		{Level: "Note", Code: "Renamed", Count: 1, Message: "Machine/workers.old metadata.name: In Machinist, the name of a " +
			"machine must be a DNS label of at most 63 characters. The new name is workers-old-mzxw6ytb."},
	}
	set(m, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonBlocked, "the loss UserData is not accepted")
}

func TestGuideShowsOutputOfCommands(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := ReadPages([]corev1.ConfigMap{{Data: map[string]string{
		manifestsKey: "kind: MachineClass\nmetadata: {name: workers-k3vq2ejc}\n---\n" +
			"kind: MachineDeployment\nmetadata: {name: workers}\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	adopted := inPhase(v1beta1.MigrationAdopted, func(m *v1beta1.Migration) {
		guideFleet(m)
		m.Spec.Accept = []string{"UserData"}
		m.Status.Machines.Copied, m.Status.Machines.Adopted = 3, 3
		set(m, v1beta1.ConditionPlanned, metav1.ConditionTrue, v1beta1.ReasonPlanReady, "")
		set(m, v1beta1.ConditionAdopted, metav1.ConditionTrue, v1beta1.ReasonMigrated, "")
		set(m, v1beta1.ConditionCompleted, metav1.ConditionFalse, v1beta1.ReasonMigrating, "")
		set(m, v1beta1.ConditionStuck, metav1.ConditionFalse, v1beta1.ReasonNothingInTheWay, "")
	})
	plan := PlanOf(fleet(guideFleet), manifests)
	plan.Now = now
	for what, text := range map[string]func(*strings.Builder) error{
		"plan": func(w *strings.Builder) error { return plan.Text(w, printer.Style{}) },
		"error": func(w *strings.Builder) error {
			_, err := w.WriteString("Error: " + plan.Err().Error() + "\n")
			return err
		},
		"status": func(w *strings.Builder) error {
			return StatusOf(adopted, now, running()).Text(w, printer.Style{})
		},
	} {
		var out strings.Builder
		if err := text(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(guide), out.String()) {
			t.Errorf("docs/migrating.md does not contain the %s:\n%s", what, out.String())
		}
	}
	for phase, does := range phases {
		if !strings.Contains(string(guide), "| "+string(phase)+" | ") {
			t.Errorf("docs/migrating.md does not contain the phase %s: %s", phase, does)
		}
	}
}
