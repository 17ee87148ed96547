//go:build e2e

package e2e

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/guide"
)

const byHandPage = "docs/by-hand.md"

var longRunning = []string{"bin/simcloud ", "bin/machinist-manager ", "bin/machinist-provider-sim "}

// A real bash must be able to run every command of the page in order, as written. After the fleet is running, the same
// shell runs the console commands of README.md with the name of an existing machine. The test provides what a reader
// has: two clusters, their kubeconfigs, and a PATH with kubectl, helm and the built programs. Other tests run the helm
// commands of the guides and the make commands of the demo.
//
// Rule: namespace-error-names-flag.
func TestCommandsOfByHandPageWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../" + byHandPage)
	if err != nil {
		t.Fatal(err)
	}
	wantPortsFree(t, string(page))
	folder := checkout(t)
	control := controlPlane(t, filepath.Join(folder, "control.yaml"))
	controlPlane(t, filepath.Join(folder, "target.yaml"))
	c := clientFor(t, control.Kubeconfig())
	environment := []string{"PATH=" +
		strings.Join([]string{filepath.Join(folder, "bin"), filepath.Dir(kubectlPath(t)), filepath.Dir(helmPath(t)), os.Getenv("PATH")}, ":"),
		"KUBECONFIG="}
	terminal := guide.NewTerminal(t, folder, environment...)

	var processes []*guide.Program
	out := ""
	for _, block := range guide.Blocks(string(page), "sh") {
		switch {
		case slices.ContainsFunc(longRunning, func(program string) bool { return strings.HasPrefix(block, program) }):
			processes = append(processes, guide.Start(t, folder, block, environment...))
		default:
			out = terminal.Run(block)
		}
	}
	if len(processes) != len(longRunning) {
		t.Fatalf("%s starts %d processes, want %q", byHandPage, len(processes), longRunning)
	}
	// The last block of the page lists the nodes of the fleet and the health of the manager.
	if n := strings.Count(out, " Ready "); n != 3 || !strings.Contains(out, "[+]control ok") {
		t.Errorf("got %d Ready nodes, want 3 and a healthy manager:\n%s", n, out)
	}

	commands := 0
	name := regexp.MustCompile(`machine/workers-\S+`)
	if page, err = os.ReadFile("../../README.md"); err != nil {
		t.Fatal(err)
	}
	for _, block := range guide.Blocks(string(page), "console") {
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			commands++
			terminal.Run(name.ReplaceAllStringFunc(command, func(string) string { return "machine/" + someMachine(t, c) }))
		}
	}
	if commands == 0 {
		t.Error("README.md has no console command")
	}

	for _, page := range []struct{ path, prefix, output string }{
		{"docs/reference/metrics.md", "kubectl create serviceaccount metrics", "machinist_frozen{"},
		{"docs/admission.md", "kubectl annotate crd", "annotated"},
		{"docs/health-and-safety.md", "kubectl annotate machineclass small", "annotated"},
		{"docs/security.md", "kubectl label secret sim-credentials", "sim-credentials"},
	} {
		text, err := os.ReadFile(filepath.Join("../..", page.path))
		if err != nil {
			t.Fatal(err)
		}
		blocks := guide.Blocks(string(text), "sh")
		i := slices.IndexFunc(blocks, func(block string) bool { return strings.HasPrefix(block, page.prefix) })
		if i < 0 {
			t.Errorf("%s has no shell block that begins with %q", page.path, page.prefix)
			continue
		}
		if out := terminal.Run(blocks[i]); !strings.Contains(out, page.output) {
			t.Errorf("%s: want output %q of\n%s\ngot %.1000s", page.path, page.output, blocks[i], out)
		}
	}

	for _, p := range slices.Backward(processes) {
		if err := p.Terminate(); err != nil {
			t.Errorf("%q ended with %v:\n%s", p.Command, err, p.Output())
		}
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(t.Context(), leases, client.InNamespace(stack.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 2 {
		t.Errorf("got %d Leases in %s, want those of both processes", len(leases.Items), stack.SystemNamespace)
	}
}

func TestCommandsOfSimulatedCloudPageWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulated-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := guide.Blocks(string(page), "sh")
	if len(blocks) < 4 || blocks[0] != "bin/machinist-demo --dir /tmp/demo\n" {
		t.Fatalf("got unexpected shell blocks: %q", blocks)
	}
	dir, root := filepath.Join(t.TempDir(), "demo"), filepath.Dir(binDir(t))
	demo := guide.Start(t, root, "exec "+strings.ReplaceAll(blocks[0], "/tmp/demo", dir))
	demo.WaitFor("Ctrl-C ends everything", env.Patience)
	terminal := guide.NewTerminal(t, root, "PATH="+filepath.Dir(kubectlPath(t))+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(dir, "control", "admin.kubeconfig"))
	providerID := ""
	for _, block := range blocks[1:] {
		out := terminal.Run(strings.ReplaceAll(block, "/tmp/demo", dir))
		if strings.Contains(out, `"code"`) {
			t.Errorf("the cloud refused the request:\n%s\n%s", block, out)
		}
		if strings.Contains(block, "-X POST") && strings.Contains(block, "/v1/instances ") && providerID == "" {
			known := regexp.MustCompile(`sim://[a-z0-9/-]+`).FindAllString(out, -1)
			if len(known) == 0 {
				t.Fatalf("no instance was created:\n%s", out)
			}
			providerID = known[len(known)-1]
			adopt(t, terminal, providerID)
		}
	}
	if providerID == "" {
		t.Error("the page creates no instance")
	}
	settings := terminal.Run(`curl -s -H "Authorization: Bearer $ADMIN" $CLOUD/admin/v1/settings $CLOUD/admin/v1/faults`)
	for _, want := range []string{`"bootTime":"20s"`, `"getLag":"5s"`, `"InsufficientCapacity"`} {
		if !strings.Contains(settings, want) {
			t.Errorf("got settings and faults without %s:\n%s", want, settings)
		}
	}
}

func adopt(t *testing.T, terminal *guide.Terminal, providerID string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/keeping-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests := regexp.MustCompile("(?ms)^   ```yaml\n(.*?)^   ```$").FindAllStringSubmatch(string(page), -1)
	if len(manifests) != 2 {
		t.Fatalf("got %d manifests on the page, want a class and a machine", len(manifests))
	}
	for _, m := range manifests {
		manifest := regexp.MustCompile(`sim://\S+`).ReplaceAllString(strings.ReplaceAll("\n"+m[1], "\n   ", "\n"), providerID)
		terminal.Run("kubectl apply -f - <<'END'\n" + manifest + "END\n")
	}
	if reason := terminal.Run(`kubectl wait machine/db-1 --for=condition=Launched --timeout=60s
kubectl get machine db-1 -o jsonpath='{.status.conditions[?(@.type=="Launched")].reason}'`); !strings.Contains(reason, v1beta1.ReasonInstanceAdopted) {
		t.Errorf("condition Launched: got reason %q, want %s", reason, v1beta1.ReasonInstanceAdopted)
	}
}

// The commands of the provider guide must run the example provider. The test replaces the folder /tmp and skips the
// commands that build programs.
func TestCommandsOfProviderGuideWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Running it by hand\n")
	tmp, root := t.TempDir(), filepath.Dir(binDir(t))
	blocks := guide.Blocks(strings.NewReplacer("/tmp/bare", filepath.Join(tmp, "bare"), "/tmp/machines",
		filepath.Join(tmp, "machines")).Replace(section), "sh")
	if len(blocks) != 3 || !strings.HasPrefix(blocks[0], "make build controlplane ") {
		t.Fatalf("got unexpected shell blocks: %q", blocks)
	}
	_, demo, _ := strings.Cut(blocks[0], "\n")
	guide.Start(t, root, "exec "+demo).WaitFor("Ctrl-C ends everything", env.Patience)
	provider := guide.Start(t, root, "set -m; "+strings.TrimSpace(blocks[1])+" & trap 'kill -TERM -- -$!' TERM; wait")
	t.Cleanup(func() {
		if t.Failed() {
			_ = provider.Terminate()
			t.Logf("the provider printed:\n%s", provider.Output())
		}
	})
	terminal := guide.NewTerminal(t, root, "PATH="+filepath.Dir(kubectlPath(t))+":"+os.Getenv("PATH"))
	if out := terminal.Run(blocks[2]); !strings.Contains(out, `"first"`) ||
		!strings.Contains(out, `machine.machinist.dev "first" deleted`) {
		t.Errorf("want an instance \"first\" and its deletion, got\n%s", out)
	}
}

// The flag --version prints the name and the version of each program.
func TestProgramsPrintTheirVersion(t *testing.T) {
	t.Parallel()
	mains, err := filepath.Glob("../../cmd/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	others, err := filepath.Glob("../../providers/*/cmd/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, main := range append(mains, others...) {
		program := filepath.Base(filepath.Dir(main))
		path := filepath.Join(binDir(t), program)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s is not built (make build): %v", program, err)
			continue
		}
		out, err := exec.Command(path, "--version").CombinedOutput()
		if err != nil || !regexp.MustCompile(`^`+program+` version \S+ \(.*API machinist\.dev/v1beta1, go1\.`).Match(out) {
			t.Errorf("%s --version: %v: %s", program, err, out)
		}
	}
}

func wantPortsFree(t *testing.T, page string) {
	t.Helper()
	for _, address := range slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindAllString(page, -1)))) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the page uses %s, which another program on this host uses: %v", address, err)
		}
		_ = listener.Close()
	}
}

func helmPath(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../hack/tool.sh", "helm4", "helm.sh/helm/v4/cmd/helm").Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func checkout(t *testing.T) string {
	t.Helper()
	from, to := "../..", t.TempDir()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case name == ".git" || name == "bin":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm())
	})
	if err != nil {
		t.Fatalf("copy the repository: %v", err)
	}
	return to
}

func controlPlane(t *testing.T, kubeconfig string) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{WithControllerManager: true, WithScheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	content, err := os.ReadFile(cp.Kubeconfig())
	if err == nil {
		err = os.WriteFile(kubeconfig, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

func someMachine(t *testing.T, c client.Client) string {
	t.Helper()
	machines := &v1beta1.MachineList{}
	if err := c.List(t.Context(), machines); err != nil {
		t.Fatal(err)
	}
	for i := range machines.Items {
		if machines.Items[i].DeletionTimestamp.IsZero() {
			return machines.Items[i].Name
		}
	}
	t.Fatal("no machine exists")
	return ""
}
