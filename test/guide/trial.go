package guide

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Trial is a guide whose first shell block starts a demo without a fleet, in the folder trialFolder. The reader creates
// a fleet with the other blocks. The guide also has a block that installs Machinist in a cluster of the reader, and may
// have downloads that need the internet.
type Trial struct {
	// Root is the path of the repository. Page is the path of the guide in the repository.
	Root, Page string
	// Patience is how long the start of the demo and each block may take. It matters only for failing tests.
	Patience time.Duration
}

const (
	trialFolder = "/tmp/machinist"
	// demoIsReady is in the last line that the demo prints before it waits for Ctrl-C.
	demoIsReady = "Ctrl-C ends everything"
)

// Run runs the blocks of the guide with another folder, and without building programs again. It skips downloads, and
// renders the charts that the guide installs. It returns the output of the blocks, and the terminal that ran them.
func (g Trial) Run(t *testing.T) (output string, terminal *Terminal) {
	t.Helper()
	root, err := filepath.Abs(g.Root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, g.Page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := Blocks(strings.ReplaceAll(string(page), trialFolder, filepath.Join(t.TempDir(), "trial")), "sh")
	if len(blocks) < 5 {
		t.Fatalf("%s has %d shell blocks, want at least 5", g.Page, len(blocks))
	}
	_, arguments, begins := strings.Cut(blocks[0], `make demo ARGS="`)
	arguments, _, ends := strings.Cut(arguments, `"`)
	if !begins || !ends {
		t.Fatalf("the first shell block of %s does not start the demo:\n%s", g.Page, blocks[0])
	}
	demo := Start(t, root, "exec bin/machinist-demo "+arguments)
	t.Cleanup(func() {
		if t.Failed() {
			_ = demo.Terminate()
			t.Logf("the demo printed:\n%s", demo.Output())
		}
	})
	demo.Until(demoIsReady, g.Patience)
	terminal = NewTerminal(t, root)
	terminal.Patience = g.Patience
	installs := false
	for _, block := range blocks[1:] {
		switch {
		case strings.Contains(block, "helm install"):
			renderCharts(t, root, block)
			installs = true
		case strings.Contains(block, "https://"):
		default:
			output += terminal.Run(block)
		}
	}
	if !installs {
		t.Errorf("%s does not install Machinist", g.Page)
	}
	return output, terminal
}

// renderCharts renders the charts that a block installs. Helm fails if the charts do not have a value of the block.
func renderCharts(t *testing.T, root, block string) {
	t.Helper()
	helm, err := exec.Command(filepath.Join(root, "hack/tool.sh"), "helm4", "helm.sh/helm/v4/cmd/helm").Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	script := strings.ReplaceAll(block, "helm install", strings.TrimSpace(string(helm))+" template")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("render the charts of\n%s\n%v: %s", block, err, out)
	}
}
