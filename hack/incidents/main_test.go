package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machinist.dev/machinist/test/incidents"
)

func TestPagesLinkTestsOfIncident(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := documents(root, []incidents.Incident{{
		Reference: "owner/repository#7", Title: "All is lost", Theme: incidents.Quota, Report: "It went wrong.",
		Behavior: "It does not.", Proofs: []incidents.Proof{{Scenario: "create"}, {Test: "test/e2e.TestCloudReadsLag"},
			{Test: "test/install.TestUpgradeOverManyMachines"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	index := "\n## Quotas and limits\n\n" +
		"- [All is lost](incidents/quotas-and-limits.md#all-is-lost) (owner/repository#7)\n"
	if !strings.HasSuffix(pages["incidents.md"], index) {
		t.Errorf("the index does not end with %q:\n%s", index, pages["incidents.md"])
	}
	text := pages["incidents/quotas-and-limits.md"]
	for _, want := range []string{
		"\n# Quotas and limits\n\n[All incidents](../incidents.md)\n\n## All is lost\n\n" +
			"[owner/repository#7](https://github.com/owner/repository/issues/7)\n\nIt went wrong.\n\n" +
			"**Machinist:** It does not.\n\n",
		"- [scenario create](../../test/simulation/scenario.go): `go run ./test/simulate --scenario create`\n",
		"- [TestCloudReadsLag](../../test/e2e/read_lag_test.go): `make controlplane build && go test -tags e2e ./test/e2e" +
			" -run '^TestCloudReadsLag$'`\n",
		"- [TestUpgradeOverManyMachines](../../test/install/scale_test.go): `make e2e-install FULL=1`\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if len(pages) != 2 {
		t.Errorf("got %d pages, want the index and the page of one theme", len(pages))
	}
}

func TestMissingTestIsError(t *testing.T) {
	out := t.TempDir()
	if err := run(t.TempDir(), out); err == nil {
		t.Error("run returned no error, want one about a missing test")
	}
	if files, err := os.ReadDir(out); err != nil || len(files) > 0 {
		t.Errorf("got the files %v and error %v, want none", files, err)
	}
}
