package guide

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Trial is a guide whose first shell block starts an empty demo in the folder trialFolder. The other blocks create a
// fleet. One block installs Machinist in the reader's cluster. Some blocks may download files from the internet.
type Trial struct {
	// Root is the path of the repository. Page is the path of the guide, relative to Root.
	Root, Page string
	// Patience is how long the test waits for the start of the demo, and for each block.
	Patience time.Duration
}

const (
	trialFolder = "/tmp/machinist"
	// demoIsReady is a part of the last line that the demo prints before it waits for Ctrl-C.
	demoIsReady = "Ctrl-C ends everything"
)

// Run runs the blocks of the guide and returns their output and the terminal. Run works in a separate folder, not in
// the folder that the guide names. Run skips builds and downloads. Run renders charts instead of installing them.
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
	demo.WaitFor(demoIsReady, g.Patience)
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
