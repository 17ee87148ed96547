//go:build e2e && linux

package install

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	if !strings.Contains(joined, "\nkubectl apply -f examples/sim\n") {
		t.Error("README does not apply the fleet of examples/sim")
	}
}
