//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/pkg/provider"
)

// The subcommands of `machinist migrate` must work with a real migrator.
func TestMigrationByCommandLine(t *testing.T) {
	t.Parallel()
	const machines = 3
	f := start(t, stack.Options{}).oldFleet(provider.SourceClusterK8s, machines)
	m := f.migrate()
	plan, err := f.tryCommand("migrate", "plan", m.Key.Name)
	_, accept, found := strings.Cut(plan, "--accept ")
	if err == nil || !found {
		t.Fatalf("plan with losses: got error %v, want one with --accept:\n%s", err, plan)
	}
	manifests, _ := f.tryCommand("migrate", "plan", m.Key.Name, "-o", "yaml")
	if !strings.Contains(manifests, "kind: MachineDeployment") || strings.Contains(manifests, v1beta1.LabelFreeze) {
		t.Errorf("got manifests\n%s\nwant a MachineDeployment and no label %s", manifests, v1beta1.LabelFreeze)
	}
	f.wantOutput("Next: The migration waits for you.", "migrate", "run", m.Key.Name, "--accept", strings.TrimSpace(accept))
	if out, err := f.tryCommand("migrate", "commit", m.Key.Name); err == nil {
		t.Fatalf("the migration was committed without a confirmation:\n%s", out)
	}
	f.wantOutput("Adopted: Machinist manages all instances", "migrate", "status", m.Key.Name)
	f.wantOutput("Machinist alone manages the fleet", "migrate", "commit", m.Key.Name, "--yes")
	if out, err := f.tryCommand("migrate", "abort", m.Key.Name); err == nil || !strings.Contains(out, "past the point of no return") {
		t.Errorf("abort after the end: got error %v, want a refusal:\n%s", err, out)
	}
	m.wantNoOldKinds()
	m.awaitRunning(machines)
}

func (f *oldFleet) wantOutput(text string, args ...string) {
	f.t.Helper()
	if out := f.command(args...); !strings.Contains(out, text) {
		f.t.Errorf("machinist %v: got\n%s\nwant %q", args, out, text)
	}
}
