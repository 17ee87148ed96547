package migration

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/internal/transfer/migration/source"
)

var update = flag.Bool("update", false, "write the golden files again")

// The golden files show that copied machines are paused, sets and deployments are frozen, and health checks replace no
// machine.
func TestPlansMatchGoldenFiles(t *testing.T) {
	for group := range source.Systems() {
		for _, sample := range []string{"healthy", "in-flight"} {
			t.Run(group+"/"+sample, func(t *testing.T) {
				f := fleetOf(t, group, sample)
				plan := f.plan()
				got := "# Findings\n" + comment(plan.findings.text()) + manifest(t, plan.objects(f.migration, group))
				compare(t, filepath.Join("testdata", group, sample+".yaml"), got)
			})
		}
	}
}

func comment(text string) (out string) {
	for _, line := range lines(text) {
		out += "#   " + line + "\n"
	}
	return out
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
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
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-%s +got (go test -update writes the files again):\n%s", path, diff)
	}
}
