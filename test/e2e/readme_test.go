//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
)

// byHand is the page of which the test below runs every block for a shell.
const byHand = "docs/by-hand.md"

// whileRunning are the programs whose blocks the page gives terminals of their own: they run until somebody ends them.
var whileRunning = []string{"bin/simcloud ", "bin/machinist-manager ", "bin/machinist-provider-sim "}

// Every command of the page is run by a real bash, as it is written and in its order, all on this host; then those of
// README.md's consoles, on the fleet that is there now, with the name of a machine that exists. What a reader brings is
// there: two clusters and their kubeconfigs in the folder of the repository, which is a copy of this one, and a PATH
// with kubectl, helm and the bin/ that `make build` fills. README.md's block for helm is run by test/install, and the
// one for make by the tests of the demo.
//
// Rule: namespace-error-names-flag.
func TestRunningByHandAsThePageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../" + byHand)
	if err != nil {
		t.Fatal(err)
	}
	portsAreFree(t, string(page))
	folder := checkout(t)
	control := controlPlane(t, filepath.Join(folder, "control.yaml"))
	controlPlane(t, filepath.Join(folder, "target.yaml"))
	c := clientFor(t, control.Kubeconfig())
	environment := []string{"PATH=" +
		strings.Join([]string{filepath.Join(folder, "bin"), filepath.Dir(kubectlPath(t)), filepath.Dir(helmPath(t)), os.Getenv("PATH")}, ":"),
		"KUBECONFIG="}
	terminal := newTerminal(t, folder, environment)

	var processes []*shell
	out := ""
	for _, block := range fenced(string(page), "sh") {
		switch {
		case slices.ContainsFunc(whileRunning, func(program string) bool { return strings.HasPrefix(block, program) }):
			processes = append(processes, newShell(t, folder, block, environment))
		default:
			out = terminal.run(block)
		}
	}
	if len(processes) != len(whileRunning) {
		t.Fatalf("%s starts %d processes, want %q", byHand, len(processes), whileRunning)
	}
	// The last block lists the nodes of the fleet and asks the manager how it is.
	if n := strings.Count(out, " Ready "); n != 3 || !strings.Contains(out, "[+]control ok") {
		t.Errorf("%d nodes are Ready, want 3, and the manager has to be:\n%s", n, out)
	}

	commands := 0
	name := regexp.MustCompile(`machine/workers-\S+`)
	if page, err = os.ReadFile("../../README.md"); err != nil {
		t.Fatal(err)
	}
	for _, block := range fenced(string(page), "console") {
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			commands++
			terminal.run(name.ReplaceAllStringFunc(command, func(string) string { return "machine/" + someMachine(t, c) }))
		}
	}
	if commands == 0 {
		t.Error("README.md shows no command of a console")
	}

	for _, page := range []struct{ path, begins, message string }{
		{"docs/reference/metrics.md", "kubectl create serviceaccount metrics", "machinist_frozen{"},
		{"docs/admission.md", "kubectl annotate crd", "annotated"},
		{"docs/health-and-safety.md", "kubectl annotate machineclass small", "annotated"},
		{"docs/security.md", "kubectl label secret sim-credentials", "sim-credentials"},
	} {
		text, err := os.ReadFile(filepath.Join("../..", page.path))
		if err != nil {
			t.Fatal(err)
		}
		blocks := fenced(string(text), "sh")
		i := slices.IndexFunc(blocks, func(block string) bool { return strings.HasPrefix(block, page.begins) })
		if i < 0 {
			t.Errorf("%s has no block for a shell that begins with %q", page.path, page.begins)
			continue
		}
		if out := terminal.run(blocks[i]); !strings.Contains(out, page.message) {
			t.Errorf("%s: %q is not printed by\n%s\n%.1000s", page.path, page.message, blocks[i], out)
		}
	}

	for _, p := range slices.Backward(processes) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.wait(); err != nil {
			t.Errorf("%q ended with %v:\n%s", p.cmd.Args, err, p.output())
		}
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(t.Context(), leases, client.InNamespace(stack.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 2 {
		t.Errorf("%d leases in %s, want those of both processes", len(leases.Items), stack.SystemNamespace)
	}
}

// The simulated cloud answers as its page says, in the demo, whose folder only is another one; and an instance that
// somebody asks it for is adopted as the page on existing instances says.
func TestTheDemosCloudIsUsedAsItsPageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulated-cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fenced(string(page), "sh")
	if len(blocks) < 4 || blocks[0] != "bin/machinist-demo --dir /tmp/demo\n" {
		t.Fatalf("the page's blocks for a shell are %q", blocks)
	}
	dir, root := filepath.Join(t.TempDir(), "demo"), filepath.Dir(binDir(t))
	demo := newShell(t, root, "exec "+strings.ReplaceAll(blocks[0], "/tmp/demo", dir), nil)
	demo.until("Ctrl-C ends everything")
	terminal := newTerminal(t, root, []string{
		"PATH=" + filepath.Dir(kubectlPath(t)) + ":" + os.Getenv("PATH"), "KUBECONFIG=" +
			filepath.Join(dir, "control", "admin.kubeconfig"),
	})
	providerID := ""
	for _, block := range blocks[1:] {
		out := terminal.run(strings.ReplaceAll(block, "/tmp/demo", dir))
		if strings.Contains(out, `"code"`) {
			t.Errorf("the cloud refused:\n%s\n%s", block, out)
		}
		if strings.Contains(block, "-X POST") && strings.Contains(block, "/v1/instances ") && providerID == "" {
			known := regexp.MustCompile(`sim://[a-z0-9/-]+`).FindAllString(out, -1)
			if len(known) == 0 {
				t.Fatalf("no instance was made:\n%s", out)
			}
			providerID = known[len(known)-1]
			adopt(t, terminal, providerID)
		}
	}
	if providerID == "" {
		t.Error("the page asks for no instance")
	}
	settings := terminal.run(`curl -s -H "Authorization: Bearer $ADMIN" $CLOUD/admin/v1/settings $CLOUD/admin/v1/faults`)
	for _, want := range []string{`"bootTime":"20s"`, `"getLag":"5s"`, `"InsufficientCapacity"`} {
		if !strings.Contains(settings, want) {
			t.Errorf("%s is not among the settings and faults:\n%s", want, settings)
		}
	}
}

// adopt brings an instance along as the page says that is about it.
func adopt(t *testing.T, terminal *terminal, providerID string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/keeping-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests := regexp.MustCompile("(?ms)^   ```yaml\n(.*?)^   ```$").FindAllStringSubmatch(string(page), -1)
	if len(manifests) != 2 {
		t.Fatalf("the page shows %d manifests, want a class and a machine", len(manifests))
	}
	for _, m := range manifests {
		manifest := regexp.MustCompile(`sim://\S+`).ReplaceAllString(strings.ReplaceAll("\n"+m[1], "\n   ", "\n"), providerID)
		terminal.run("kubectl apply -f - <<'END'\n" + manifest + "END\n")
	}
	if reason := terminal.run(`kubectl wait machine/db-1 --for=condition=Launched --timeout=60s
kubectl get machine db-1 -o jsonpath='{.status.conditions[?(@.type=="Launched")].reason}'`); !strings.Contains(reason, v1beta1.ReasonInstanceAdopted) {
		t.Errorf("Launched is because of %q, want %s", reason, v1beta1.ReasonInstanceAdopted)
	}
}

// The example of a provider runs as the guide for authors says; only the folders below /tmp are others, and the
// programs have been built.
func TestTheExampleProviderIsRunAsTheGuideSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/provider-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Running it by hand\n")
	tmp, root := t.TempDir(), filepath.Dir(binDir(t))
	blocks := fenced(strings.NewReplacer("/tmp/bare", filepath.Join(tmp, "bare"), "/tmp/machines",
		filepath.Join(tmp, "machines")).Replace(section), "sh")
	if len(blocks) != 3 || !strings.HasPrefix(blocks[0], "make build controlplane ") {
		t.Fatalf("the section's blocks for a shell are %q", blocks)
	}
	_, demo, _ := strings.Cut(blocks[0], "\n")
	newShell(t, root, "exec "+demo, nil).until("Ctrl-C ends everything")
	provider := newShell(t, root, "set -m; "+strings.TrimSpace(blocks[1])+" & trap 'kill -TERM -- -$!' TERM; wait", nil)
	t.Cleanup(func() {
		if t.Failed() {
			_ = provider.cmd.Process.Signal(syscall.SIGTERM)
			_ = provider.wait()
			t.Logf("the provider printed:\n%s", provider.output())
		}
	})
	terminal := newTerminal(t, root, []string{"PATH=" + filepath.Dir(kubectlPath(t)) + ":" + os.Getenv("PATH")})
	if out := terminal.run(blocks[2]); !strings.Contains(out, `"first"`) ||
		!strings.Contains(out, `machine.machinist.dev "first" deleted`) {
		t.Errorf("no instance was shown, or the machine is not gone:\n%s", out)
	}
}

// Each program says which one it is.
func TestEveryProgramTellsItsVersion(t *testing.T) {
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

// portsAreFree fails the test where a port that the page names is taken.
func portsAreFree(t *testing.T, page string) {
	t.Helper()
	for _, address := range slices.Compact(slices.Sorted(slices.Values(regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindAllString(page, -1)))) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the page names %s, which something else on this host has taken: %v", address, err)
		}
		_ = listener.Close()
	}
}

// fenced returns the blocks of a language in a page.
func fenced(page, language string) []string {
	var all []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}

// helmPath returns the path of the pinned helm, which is built if it is not there.
func helmPath(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../hack/tool.sh", "helm4", "helm.sh/helm/v4/cmd/helm").Output()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// checkout copies the repository, without what is built in it, into a folder of the test's.
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

// controlPlane starts a cluster of the reader's, and writes its administrator's kubeconfig.
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
	t.Fatal("there is no machine")
	return ""
}

// terminal is a bash into which blocks are pasted, one after the other.
type terminal struct {
	t      *testing.T
	folder string
	cmd    *exec.Cmd
	in     io.Writer
	out    *bufio.Reader
	blocks int
}

func newTerminal(t *testing.T, folder string, environment []string) *terminal {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A command that hangs is ended with it.
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &terminal{t: t, folder: t.TempDir(), cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// run runs a block and returns what it printed. A command that fails ends the test.
func (s *terminal) run(block string) string {
	s.t.Helper()
	s.blocks++
	path := filepath.Join(s.folder, fmt.Sprintf("block-%d.sh", s.blocks))
	if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
		s.t.Fatal(err)
	}
	end := fmt.Sprintf("block %d has ended with ", s.blocks)
	// Each command of it has to succeed; what it exports stays.
	script := fmt.Sprintf("trap 'echo; echo \"%sfailure\"' EXIT; set -e; source '%s' </dev/null; set +e; trap - EXIT; printf '\\n%ssuccess\\n'\n", end, path, end)
	if _, err := io.WriteString(s.in, script); err != nil {
		s.t.Fatal(err)
	}
	hung := time.AfterFunc(5*env.Patience, func() {
		s.t.Errorf("it has not ended after %s:\n%s", 5*env.Patience, block)
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	})
	defer hung.Stop()
	var printed strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if strings.HasPrefix(line, end+"success") {
			return printed.String()
		}
		printed.WriteString(line)
		if err != nil {
			s.t.Fatalf("it failed:\n%s\n%s", block, printed.String())
		}
	}
}
