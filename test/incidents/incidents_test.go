package incidents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/test/simulation"
)

const minIncidents = 60

var reference = regexp.MustCompile(`^(gardener/machine-controller-manager(-provider-[a-z]+)?|` +
	`kubermatic/(machine-controller|kubermatic)|(kubernetes-sigs|aws)/karpenter(-provider-aws)?|` +
	`kubernetes-sigs/cluster-api(-provider-[a-z]+)?|openshift/[a-z-]+)#[1-9][0-9]*$`)

func TestIncidentsAreDescribed(t *testing.T) {
	all := Incidents()
	if len(all) < minIncidents {
		t.Errorf("got %d incidents, want at least %d", len(all), minIncidents)
	}
	known, titles := map[string]bool{}, map[string]string{}
	for _, i := range all {
		switch {
		case !reference.MatchString(i.Reference):
			t.Errorf("%q is not an issue of a known tracker", i.Reference)
		case known[i.Reference]:
			t.Errorf("%s: the reference is not unique", i.Reference)
		case titles[i.Title] != "":
			t.Errorf("%s: the title is the same as that of %s", i.Reference, titles[i.Title])
		case !slices.Contains(Themes(), i.Theme):
			t.Errorf("%s: the theme %q is unknown", i.Reference, i.Theme)
		case len(i.Proofs) == 0:
			t.Errorf("%s: Proofs is empty", i.Reference)
		}
		known[i.Reference], titles[i.Title] = true, i.Reference
		for what, text := range map[string]struct {
			text        string
			least, most int
		}{"title": {i.Title, 25, 90}, "happened": {i.Report, 150, 900}, "here": {i.Behavior, 80, 600}} {
			if n := len(text.text); n < text.least || n > text.most || strings.TrimSpace(text.text) != text.text ||
				strings.ContainsAny(text.text, "\n|<>") {
				t.Errorf("%s: %s has %d bytes, want one line of %d to %d bytes without |, <, > and outer spaces: %s",
					i.Reference, what, n, text.least, text.most, text.text)
			}
		}
		for j, p := range i.Proofs {
			if slices.Contains(i.Proofs[:j], p) {
				t.Errorf("%s: the proof %+v is not unique", i.Reference, p)
			}
		}
	}
}

func TestTrackersHaveEnoughIncidents(t *testing.T) {
	for prefix, least := range map[string]int{"gardener/": 15, "kubermatic/": 10, "aws/karpenter": 5,
		"kubernetes-sigs/karpenter": 5} {
		n := 0
		for _, i := range Incidents() {
			if strings.HasPrefix(i.Reference, prefix) {
				n++
			}
		}
		if n < least {
			t.Errorf("got %d incidents of %s, want at least %d", n, prefix, least)
		}
	}
}

func TestProofsExist(t *testing.T) {
	all := Incidents()
	if _, err := Files(filepath.Join("..", ".."), all); err != nil {
		t.Error(err)
	}
	var names []string
	for _, s := range simulation.Scenarios() {
		names = append(names, s.Name)
	}
	for _, i := range all {
		for _, p := range i.Proofs {
			if p.Scenario != "" && !slices.Contains(names, p.Scenario) {
				t.Errorf("%s: the scenario %s does not exist", i.Reference, p.Scenario)
			}
		}
	}
}

func TestScenariosForIncidentsAreUsed(t *testing.T) {
	named := map[string]bool{}
	for _, i := range Incidents() {
		for _, p := range i.Proofs {
			named[p.Scenario] = true
		}
	}
	for _, s := range simulation.Scenarios() {
		if s.Group == simulation.Incidents && !named[s.Name] {
			t.Errorf("no incident uses the scenario %s", s.Name)
		}
	}
}

func TestFilesRejectsMissingProofs(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"test/simulation/a.go": "package simulation\n\nvar x = []Scenario{{Name: \"present\"}}\n",
		"test/e2e/a_test.go":   "package e2e\n\nfunc TestPresent(t *T) {}\n\nfunc helper() {}\n",
		"test/e2e/b.go":        "package e2e\n\nfunc TestOutsideOfTestFile(t *T) {}\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		proof Proof
		file  string
	}{
		{Proof{Scenario: "present"}, "test/simulation/a.go"},
		{Proof{Test: "test/e2e.TestPresent"}, "test/e2e/a_test.go"},
		{Proof{Scenario: "missing"}, ""},
		{Proof{Test: "test/e2e.TestMissing"}, ""},
		{Proof{Test: "test/e2e.TestOutsideOfTestFile"}, ""},
		{Proof{Test: "test/e2e.helper"}, ""},
		{Proof{Test: "test/missing.TestPresent"}, ""},
		{Proof{Test: "TestPresent"}, ""},
		{Proof{Scenario: "present", Test: "test/e2e.TestPresent"}, ""},
		{Proof{}, ""},
	} {
		files, err := Files(root, []Incident{{Reference: "r", Proofs: []Proof{tc.proof}}})
		if files[tc.proof] != tc.file || (err == nil) != (tc.file != "") {
			t.Errorf("%+v: got file %q and error %v, want file %q", tc.proof, files[tc.proof], err, tc.file)
		}
	}
}
