package guide

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"machinist.dev/machinist/test/env"
)

// Terminal is a bash process that runs the shell blocks of a guide in order.
type Terminal struct {
	// Patience is the time limit for each block.
	Patience time.Duration

	t      *testing.T
	folder string
	cmd    *exec.Cmd
	in     io.Writer
	out    *bufio.Reader
	blocks int
}

// NewTerminal starts a bash process in a folder, with additional environment variables. The process ends with the test.
func NewTerminal(t *testing.T, folder string, environment ...string) *Terminal {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // The process group also contains commands that hang.
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
	return &Terminal{Patience: 5 * env.Patience, t: t, folder: t.TempDir(), cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// Run runs a block and returns its output. If a command of the block fails, Run ends the test.
func (s *Terminal) Run(block string) string {
	s.t.Helper()
	s.blocks++
	path := filepath.Join(s.folder, fmt.Sprintf("block-%d.sh", s.blocks))
	if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
		s.t.Fatal(err)
	}
	end := fmt.Sprintf("block %d has ended with ", s.blocks)
	// Each command of the block must succeed. Later blocks can use the exported variables.
	script := fmt.Sprintf("trap 'echo; echo \"%sfailure\"' EXIT; set -e; source '%s' </dev/null; set +e; trap - EXIT; printf '\\n%ssuccess\\n'\n", end, path, end)
	if _, err := io.WriteString(s.in, script); err != nil {
		s.t.Fatal(err)
	}
	hung := time.AfterFunc(s.Patience, func() {
		s.t.Errorf("the block has not ended after %s:\n%s", s.Patience, block)
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
			s.t.Fatalf("the block failed:\n%s\n%s", block, printed.String())
		}
	}
}
