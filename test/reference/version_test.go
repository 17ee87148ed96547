package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// All charts and modules of a release must have the same version. CONTRIBUTING.md explains how to set the version.
func TestChartsAndModulesHaveOneVersion(t *testing.T) {
	appVersion := regexp.MustCompile(`(?m)^appVersion: "?([^"\s]+)"?$`)
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	source := appVersion.FindStringSubmatch(read(filepath.Join(root, "charts/machinist/Chart.yaml")))
	if source == nil {
		t.Fatal("charts/machinist/Chart.yaml has no appVersion")
	}
	version := source[1]
	if !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$`).MatchString(version) {
		t.Errorf("got appVersion %s, want a tag of a Go module, such as v0.1.0", version)
	}
	charts, err := filepath.Glob(filepath.Join(root, "charts/*/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range charts {
		text := read(chart)
		if !strings.Contains(text, "\nappVersion: "+version+"\n") ||
			!strings.Contains(text, "\nversion: "+strings.TrimPrefix(version, "v")+"\n") {
			t.Errorf("the version or appVersion in %s is not %s", chart, version)
		}
	}
	required := regexp.MustCompile(`(?m)^\s*(machinist\.dev/machinist(?:/api)?) (v\S+)`)
	for _, mod := range []string{"go.mod", "providers/azure/go.mod", "providers/libvirt/go.mod",
		"providers/openstack/go.mod", "providers/vsphere/go.mod", "test/ui/go.mod"} {
		found := required.FindAllStringSubmatch(read(filepath.Join(root, mod)), -1)
		if len(found) == 0 {
			t.Errorf("%s requires no module of Machinist", mod)
		}
		for _, r := range found {
			if r[2] != version {
				t.Errorf("%s requires %s %s, want the version of the chart, %s", mod, r[1], r[2], version)
			}
		}
	}
	changes := read(filepath.Join(root, "CHANGELOG.md"))
	if !strings.Contains(changes, "\n## "+strings.TrimPrefix(version, "v")) {
		t.Errorf("CHANGELOG.md has no heading for %s", version)
	}
}
