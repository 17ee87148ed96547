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

// The journey installs by the commands of README's section, with what only a test needs beside: tokens, and a node for
// the pods. The fleet that README applies is the one of examples/sim, which the journey creates.
func TestTheJourneyRunsTheCommandsOfREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	run := map[string][]string{
		cloudRelease:    {chart("simcloud"), "--namespace=" + system, "--create-namespace"},
		coreRelease:     append(coreValues(), chart("machinist")),
		providerRelease: append(providerValues(), chart("machinist-provider")),
	}
	// How long Helm waits changes nothing of what is installed, and the namespace is there after the first command.
	neutral := []string{"--wait", "--create-namespace"}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	found := 0
	for _, match := range regexp.MustCompile(`(?m)^helm install (\S+) charts/(\S+)(.*)$`).FindAllStringSubmatch(joined, -1) {
		release, flags := match[1], regexp.MustCompile(` +(--\S+) +([^- ]\S*)`).ReplaceAllString(match[3], " $1=$2")
		found++
		for _, arg := range append(strings.Fields(flags), chart(match[2])) {
			if !slices.Contains(neutral, arg) && !slices.Contains(run[release], arg) {
				t.Errorf("README installs %s with %s, the journey with %q", release, arg, run[release])
			}
		}
	}
	if found != len(run) {
		t.Errorf("README has %d commands of helm install, want %d", found, len(run))
	}
	appVersion, err := os.ReadFile("../../charts/machinist/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^appVersion: *(\S+)$`).FindSubmatch(appVersion)
	if version == nil || !strings.Contains(joined, "make images VERSION="+string(version[1])+" PUSH=") {
		t.Errorf("README does not build the images of the version that the charts ask for, %s", version)
	}
	if !strings.Contains(joined, "\nkubectl apply -f examples/sim\n") {
		t.Error("README does not apply the fleet of examples/sim")
	}
}

// A newcomer types the commands of README's section as they stand.
func TestREADMEInstallsAFleet(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Install\n")
	_, script, foundToo := strings.Cut(section, "\n```sh\n")
	script, _, closed := strings.Cut(script, "\n```")
	if !found || !foundToo || !closed || !strings.Contains(script, "helm install") {
		t.Fatal("README has no commands under Install")
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
	progress(t, "by the commands of README the fleet is Ready %.1f s after the first", time.Since(begun).Seconds())
	m.deleteFleet("default")
	m.uninstall(h)
	h.run(t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
}
