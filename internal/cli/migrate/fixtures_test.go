package migrate

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// fleet returns the Migration of a fleet with 12 machines. The migrator has already computed its plan.
func fleet(change func(*v1beta1.Migration)) *v1beta1.Migration {
	m := &v1beta1.Migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "old-fleet", Generation: 1,
			CreationTimestamp: metav1.NewTime(now.Add(-10 * time.Minute))},
		Spec: v1beta1.MigrationSpec{Source: "cluster.k8s.io", SourceNamespace: "kube-system", Provider: "azure",
			Stage: v1beta1.MigrationPlan},
		Status: v1beta1.MigrationStatus{ObservedGeneration: 1, Phase: v1beta1.MigrationPlanning, PlanHash: "91bd20f7d6f2c1aa",
			Machines: v1beta1.MigrationCounts{Total: 12, Old: 13}},
	}
	set(m, v1beta1.ConditionPlanned, metav1.ConditionTrue, v1beta1.ReasonPlanReady, "")
	if change != nil {
		change(m)
	}
	return m
}

// inPhase returns a Migration in the stage Adopt and the given phase.
func inPhase(phase v1beta1.MigrationPhase, change func(*v1beta1.Migration)) *v1beta1.Migration {
	return fleet(func(m *v1beta1.Migration) {
		m.Spec.Stage, m.Spec.PlanHash, m.Status.Phase = v1beta1.MigrationAdopt, m.Status.PlanHash, phase
		m.Status.Machines.Copied = 12
		m.Status.Fence.Workloads = []v1beta1.StoppedWorkload{{Kind: "Deployment", Namespace: "kube-system",
			Name: "machine-controller", Replicas: 1}}
		set(m, v1beta1.ConditionFenced, metav1.ConditionTrue, v1beta1.ReasonOldControllersStopped, "")
		set(m, v1beta1.ConditionAdopted, metav1.ConditionFalse, v1beta1.ReasonMigrating, "")
		if change != nil {
			change(m)
		}
	})
}

func set(m *v1beta1.Migration, kind string, status metav1.ConditionStatus, reason, message string) {
	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; c.Type == kind {
			c.Status, c.Reason, c.Message = status, reason, message
			return
		}
	}
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: message, ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))})
}

func addFindings(m *v1beta1.Migration) {
	m.Status.Findings = []v1beta1.MigrationFinding{
		{Level: "Blocker", Code: "FromEnvironment", Count: 1, Message: "MachineDeployment/web " +
			"spec.template.spec.providerSpec.value.cloudProviderSpec.clientSecret: The value is taken from the environment of the " +
			"old controller."},
		{Level: "Loss", Code: "NoUserData", Count: 2, Message: "MachineClass/azure-a: The old system generated the bootstrap data."},
		{Level: "Loss", Code: "UnknownField", Count: 1, Message: "MachineDeployment/web spec.strategy.fast: There is no " +
			"such field.\x1b[2J"},
		{Level: "Note", Code: "Renamed", Count: 1, Message: "Machine/a.b metadata.name: It becomes a-b-mzxw6ytb."},
	}
	set(m, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonBlocked, "FromEnvironment is a Blocker.")
}

// pages returns the pages of a plan with the findings of addFindings. The ConfigMaps of the pages are in the wrong
// order, and the boundary between two ConfigMaps can be in the middle of a line.
func pages(t testing.TB) Pages {
	t.Helper()
	page := func(name, findings, manifests string) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			Data: map[string]string{findingsKey: findings, manifestsKey: manifests}}
	}
	read, err := ReadPages([]corev1.ConfigMap{
		page("machinist-migration-old-fleet-10", "Note Extra Machine/x: Only in a page.\n", ""),
		page("machinist-migration-old-fleet-2", "Loss UnknownField MachineDeployment/web spec.strategy.fast: There is no such field.\n"+
			"Note Renamed Machine/a.b metadata.name: It becomes a-b-mzxw6ytb.\n",
			"d: MachineDeployment\nmetadata: {name: web}\n---\nkind: MachineSet\nmetadata: {name: web-1}\n---\n---\n"),
		page("machinist-migration-old-fleet-1", "Blocker FromEnvironment MachineDeployment/web spec.x: From the environment.\n"+
			"Loss NoUserData MachineClass/azure-a: The old system generated the bootstrap data.\n"+
			"Loss NoUserData MachineClass/azure-b: The old system generated the bootstrap data.\nnonsense\n",
			"---\nkind: MachineClass\nmetadata: {name: azure-a}\n---\nkind: MachineClass\nmetadata: {name: azure-b}\n---\nkin"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func running() *why.Process {
	return &why.Process{Name: "machinist-migrator-azure", IsKnown: true, IsRunning: true}
}

func golden(t *testing.T, name string, write func(*strings.Builder) error) {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
