//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/pkg/provider"
)

// What the commands wait for and agree to is what a real migrator writes.
func TestMigrationByTheCommandLine(t *testing.T) {
	t.Parallel()
	const machines = 3
	f := start(t, stack.Options{}).oldFleet(provider.SourceClusterK8s, machines)
	m := f.migrate()
	plan, err := f.tryCommand("migrate", "plan", m.name)
	_, accept, found := strings.Cut(plan, "--accept ")
	if err == nil || !found {
		t.Fatalf("a plan with losses ended with %v:\n%s", err, plan)
	}
	manifests, _ := f.tryCommand("migrate", "plan", m.name, "-o", "yaml")
	if !strings.Contains(manifests, "kind: MachineDeployment") || strings.Contains(manifests, v1beta1.LabelFreeze) {
		t.Errorf("the manifests are\n%s", manifests)
	}
	f.wantWritten("Next: The migration waits for you.", "migrate", "run", m.name, "--accept", strings.TrimSpace(accept))
	if out, err := f.tryCommand("migrate", "commit", m.name); err == nil {
		t.Fatalf("it was committed without a confirmation:\n%s", out)
	}
	f.wantWritten("Adopted: Machinist manages all instances", "migrate", "status", m.name)
	f.wantWritten("Machinist alone manages the fleet", "migrate", "commit", m.name, "--yes")
	if out, err := f.tryCommand("migrate", "abort", m.name); err == nil || !strings.Contains(out, "past the point of no return") {
		t.Errorf("after the end an abort says %v:\n%s", err, out)
	}
	m.wantNoOldKinds()
	m.running(machines)
}

// wantWritten runs the command line, which has to succeed and to write these words.
func (f *oldFleet) wantWritten(words string, args ...string) {
	f.t.Helper()
	if out := f.command(args...); !strings.Contains(out, words) {
		f.t.Errorf("machinist %v wrote\n%s\nwhich lacks %q", args, out, words)
	}
}
