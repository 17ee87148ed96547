//go:build e2e && linux

package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests of this package must use the commands in README.md. They may add only flags for tokens and for the node of
// the pods. The fleet in README.md is examples/sim, which the tests also create.
func TestCommandsOfTestsMatchREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string][]string{
		cloudRelease:    {chart("simcloud"), "--namespace=" + system, "--create-namespace"},
		coreRelease:     append(coreValues(), chart("machinist")),
		providerRelease: append(providerValues(), chart("machinist-provider")),
	}
	// The tests may omit these flags. The flags do not change what is installed, and the namespace exists after the first
	// command.
	ignored := []string{"--wait", "--create-namespace"}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	found := 0
	for _, match := range regexp.MustCompile(`(?m)^helm install (\S+) charts/(\S+)(.*)$`).FindAllStringSubmatch(joined,
		-1) {
		release, flags := match[1], regexp.MustCompile(` +(--\S+) +([^- ]\S*)`).ReplaceAllString(match[3], " $1=$2")
		found++
		for _, arg := range append(strings.Fields(flags), chart(match[2])) {
			if !slices.Contains(ignored, arg) && !slices.Contains(tested[release], arg) {
				t.Errorf("README.md installs %s with %s, the tests with %q", release, arg, tested[release])
			}
		}
	}
	if found != len(tested) {
		t.Errorf("README.md has %d helm install commands, want %d", found, len(tested))
	}
	appVersion, err := os.ReadFile("../../charts/machinist/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^appVersion: *(\S+)$`).FindSubmatch(appVersion)
	if version == nil || !strings.Contains(joined, "make images VERSION="+string(version[1])+" PUSH=") {
		t.Errorf("README.md does not build the images for the appVersion of the charts, %s", version)
	}
	if !strings.Contains(joined, "\nkubectl apply -f examples/sim\n") {
		t.Error("README.md does not apply examples/sim")
	}
}

// Users copy the commands from README.md, so this test runs them unchanged.
func TestCommandsInREADMEInstallFleet(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Install\n")
	_, script, hasScript := strings.Cut(section, "\n```sh\n")
	script, _, closed := strings.Cut(script, "\n```")
	if !found || !hasScript || !closed || !strings.Contains(script, "helm install") {
		t.Fatal("README.md has no commands in the section Install")
	}
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	bin := t.TempDir()
	for name, program := range map[string]string{"helm": h.path, "kubectl": m.cluster.Kubectl()} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	command := exec.Command("bash", "-euo", "pipefail", "-c", script)
	command.Dir = "../.."
	command.Env = append(slices.Clone(h.environment), "PATH="+bin+":"+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	m.ready("default", fleetSize)
	progress(t, "with the commands in README.md, the fleet is Ready after %.1f s", time.Since(begun).Seconds())
	m.deleteFleet("default")
	m.uninstall(h)
	h.run(t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
}
