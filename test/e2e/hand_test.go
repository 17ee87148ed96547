//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
)

// The commands that `machinist-demo --bare` prints must work in a shell. The demo uses separate control and target
// clusters.
//
// Rule: metrics-need-authorization.
func TestCommandsOfBareDemoWork(t *testing.T) {
	t.Parallel()
	bare := newShell(t, "", filepath.Join(binDir(t), "machinist-demo")+" --bare --separate-target --dir "+
		filepath.Join(t.TempDir(), "bare"), nil)
	text := bare.until("Ctrl-C ends everything")

	commands := regexp.MustCompile(`(?s)  (/\S*bin/machinist-(?:manager|provider-sim) .*?)\n\n`).FindAllStringSubmatch(text, -1)
	if len(commands) != 2 {
		t.Fatalf("the demo printed %d commands, want those of the manager and the provider:\n%s", len(commands), text)
	}
	health, metrics := []string{freeAddress(t), freeAddress(t)}, []string{freeAddress(t), freeAddress(t)}
	var processes []*shell
	for i, c := range commands {
		// Add addresses to the commands, because the checks below need them.
		processes = append(processes,
			newShell(t, "", fmt.Sprintf("exec %s --health-probe-bind-address=%s --metrics-bind-address=%s --metrics-secure",
				c[1], health[i], metrics[i]), nil))
	}

	_, fleet, _ := strings.Cut(text, "and give them a fleet, in the folder of the repository:")
	fleet, rest, _ := strings.Cut(fleet, "\n\nThe nodes are in the target cluster: ")
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(fleet)[1]
	c := clientFor(t, kubeconfig)
	// An interactive shell expands aliases.
	script := "set -e\nshopt -s expand_aliases\ncd ../..\n" + fleet
	if out, err := exec.Command("bash", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("create the fleet: %v\n%s", err, out)
	}
	env.Await(t, c, &v1beta1.MachineList{}, "three running machines", func(l *v1beta1.MachineList) (bool, string) {
		running := 0
		for i := range l.Items {
			if l.Items[i].Status.Phase == v1beta1.MachineRunning {
				running++
			}
		}
		return running == 3 && len(l.Items) == 3, describe(l.Items)
	})
	listNodes, rest, _ := strings.Cut(rest, "\n")
	if out, err := exec.Command("bash", "-c",
		strings.Split(script, "  kubectl apply")[0]+listNodes).CombinedOutput(); err != nil ||
		strings.Count(string(out), " Ready ") != 3 {
		t.Errorf("%s: got error %v, want three Ready nodes:\n%s", listNodes, err, out)
	}
	if n := strings.Count(rest, ": curl http://127.0.0.1:"); n != 2 {
		t.Errorf("the demo printed %d addresses of metrics, want 2:\n%s", n, rest)
	}
	nodes := &corev1.NodeList{}
	if err := c.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 {
		t.Errorf("%d nodes registered in the control cluster", len(nodes.Items))
	}

	newAccount(t, c, "metrics-reader", true)
	token := newToken(t, c, "metrics-reader")
	for i := range processes {
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := get(t, "http://"+health[i]+path, ""); code != http.StatusOK {
				t.Errorf("%s: got status %d, want %d: %s", path, code, http.StatusOK, body)
			}
		}
		if code, _ := get(t, "https://"+metrics[i]+"/metrics", ""); code != http.StatusUnauthorized {
			t.Errorf("/metrics without a token: got status %d, want %d", code, http.StatusUnauthorized)
		}
		if code, body := get(t, "https://"+metrics[i]+"/metrics", token); code != http.StatusOK ||
			!strings.Contains(body, "workqueue_depth") {
			t.Errorf("/metrics with permission: got status %d, want %d with workqueue_depth: %.200s", code, http.StatusOK, body)
		}
	}
	for i, p := range processes {
		begun := time.Now()
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.wait(); err != nil {
			t.Errorf("%s ended with %v:\n%s", commands[i][1], err, p.output())
		}
		t.Logf("ended %s after SIGTERM", time.Since(begun).Round(10*time.Millisecond))
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(context.Background(), leases, client.InNamespace(stack.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			t.Errorf("the Lease %s is still held by %s after a graceful end", l.Name, *l.Spec.HolderIdentity)
		}
	}
}

// shell is a shell command that runs until the test stops it.
type shell struct {
	cmd   *exec.Cmd
	lines chan string
	done  chan error
	buf   bytes.Buffer
	t     *testing.T
}

// newShell runs a command with additional environment variables in a folder. The default is the folder of the test.
func newShell(t *testing.T, folder, command string, environment []string) *shell {
	t.Helper()
	s := &shell{cmd: exec.Command("bash", "-c", command), lines: make(chan string, 10000), done: make(chan error, 1), t: t}
	s.cmd.Dir, s.cmd.Env = folder, append(os.Environ(), environment...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
		close(s.lines)
		s.done <- s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.wait()
	})
	return s
}

// until reads lines of the command's output until a line contains the text.
func (s *shell) until(text string) string {
	s.t.Helper()
	deadline := time.After(env.Patience)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the command ended without %q:\n%s", text, s.buf.String())
			}
			s.buf.WriteString(line + "\n")
			if strings.Contains(line, text) {
				return s.buf.String()
			}
		case <-deadline:
			s.t.Fatalf("the command did not print %q:\n%s", text, s.buf.String())
		}
	}
}

// wait waits for the end of the command. Every call returns the same error.
func (s *shell) wait() error {
	for line := range s.lines {
		s.buf.WriteString(line + "\n")
	}
	err := <-s.done
	s.done <- err
	return err
}

func (s *shell) output() string { return s.buf.String() }

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func clientFor(t *testing.T, kubeconfig string) client.WithWatch {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := scheme.Scheme
	if err := v1beta1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	// The certificate is self-signed. This is safe, because the server runs on the same machine.
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout: 10 * time.Second}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := h.Do(req)
	if err != nil {
		t.Errorf("get %s: %v", url, err)
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("read %s: %v", url, err)
	}
	return res.StatusCode, string(body)
}

// kubectlPath returns the path of a kubectl with the version of the control plane.
func kubectlPath(t *testing.T) string {
	t.Helper()
	path, err := controlplane.Locate("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
