package process

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string // lines of the child's stdout; closed at the end
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startChild(t *testing.T, role, namespace string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 100_000)}
	c.cmd.Env = append(os.Environ(), childRole+"="+role, childKubeconfig+"="+planes.control.Kubeconfig(), childNamespace+
		"="+namespace)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		for range c.lines {
		}
		_ = c.cmd.Wait()
		if t.Failed() {
			t.Logf("logs of the child:\n%s", &c.stderr)
		}
	})
	return c
}

func (c *child) waitForLine(prefix string) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-c.lines:
			if strings.HasPrefix(line, prefix) {
				return
			}
			if !ok {
				c.t.Fatalf("the child ended before it printed %q", prefix)
			}
		case <-deadline:
			c.t.Fatalf("the child did not print %q", prefix)
		}
	}
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) remaining() ([]string, int) {
	c.t.Helper()
	var printed []string
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-c.lines:
			if ok {
				printed = append(printed, line)
				continue
			}
			err := c.cmd.Wait()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return printed, exit.ExitCode()
			}
			if err != nil {
				c.t.Fatal(err)
			}
			return printed, 0
		case <-deadline:
			c.t.Fatalf("the child did not end; logs:\n%s", &c.stderr)
		}
	}
}

func TestAStoppedProcessDoesNothingWhenItContinues(t *testing.T) {
	namespace := newNamespace(t)
	first := startChild(t, "leader", namespace)
	first.waitForLine("acting")
	first.signal(syscall.SIGSTOP)
	second := start(t, childConfig(planes.control.Kubeconfig(), namespace), testOptions(), nil)
	second.elected()
	for len(first.lines) > 0 { // Skip the lines that the child printed before it was stopped.
		<-first.lines
	}
	first.signal(syscall.SIGCONT)
	printed, code := first.remaining()
	if code != ExitFenced {
		t.Errorf("exit code %d, want %d", code, ExitFenced)
	}
	// The child process may act once after its resume, because it may have been stopped between the check of the fence
	// and the action.
	acts := 0
	for _, line := range printed {
		if line == "acting" {
			acts++
		}
	}
	if acts > 1 {
		t.Errorf("acted %d times after another process took over", acts)
	}
	if err := second.Fence().Check(); err != nil {
		t.Errorf("the new leader: %v", err)
	}
}

// Rule: sigterm-releases-lease.
func TestASignalEndsTheProcessAndReleasesTheLease(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			namespace := newNamespace(t)
			c := startChild(t, "leader", namespace)
			c.waitForLine("acting")
			c.signal(s)
			if printed, code := c.remaining(); code != 0 || len(printed) == 0 || printed[len(printed)-1] != "ended: <nil>" {
				t.Errorf("exit code %d after %q", code, printed)
			}
			if got := holder(readLease(t, childConfig("", namespace))); got != "" {
				t.Errorf("holder %q", got)
			}
		})
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	c := startChild(t, "deaf", newNamespace(t))
	c.waitForLine("acting")
	c.signal(syscall.SIGTERM)
	c.waitForLine("ended:")
	c.signal(syscall.SIGTERM)
	if _, code := c.remaining(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}
