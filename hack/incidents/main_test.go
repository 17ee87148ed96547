package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machinist.dev/machinist/test/incidents"
)

func TestDocumentLinksTestsOfIncident(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := document(root, []incidents.Incident{{
		Reference: "owner/repository#7", Title: "All is lost", Theme: incidents.Quota, Happened: "It went wrong.",
		Here: "It does not.", Proofs: []incidents.Proof{{Scenario: "create"}, {Test: "test/e2e.TestCloudReadsLag"},
			{Test: "test/install.TestUpgradeOverManyMachines"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- [Quotas and limits](#quotas-and-limits): 1\n",
		"\n## Quotas and limits\n\n### All is lost\n\n" +
			"[owner/repository#7](https://github.com/owner/repository/issues/7)\n\nIt went wrong.\n\n" +
			"**Machinist:** It does not.\n\n",
		"- [scenario create](../test/simulation/scenario.go): `go run ./test/simulate --scenario create`\n",
		"- [TestCloudReadsLag](../test/e2e/read_lag_test.go): `make controlplane build && go test -tags e2e ./test/e2e" +
			" -run '^TestCloudReadsLag$'`\n",
		"- [TestUpgradeOverManyMachines](../test/install/scale_test.go): `make e2e-install FULL=1`\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "## Webhooks") {
		t.Error("the page has a heading for a theme without incidents")
	}
}

func TestMissingTestIsError(t *testing.T) {
	out := filepath.Join(t.TempDir(), "incidents.md")
	if err := run(t.TempDir(), out); err == nil {
		t.Error("run returned no error, want one about a missing test")
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the page was written")
	}
}
