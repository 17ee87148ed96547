package guide

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Program is a command that runs in the background during a test, as in a separate terminal.
type Program struct {
	// Command is the shell command.
	Command string

	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string
	done   chan error
	output strings.Builder
}

// Start starts a command with additional environment variables. An empty folder means the folder of the test. The
// command ends with the test at the latest.
func Start(t *testing.T, folder, command string, environment ...string) *Program {
	t.Helper()
	p := &Program{Command: command, t: t, cmd: exec.Command("bash", "-c", command), lines: make(chan string, 10000),
		done: make(chan error, 1)}
	p.cmd.Dir, p.cmd.Env = folder, append(os.Environ(), environment...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
		close(p.lines)
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.Terminate() })
	return p
}

// WaitFor waits for a line with the given text in the output of the command, and returns the output up to this line.
func (p *Program) WaitFor(text string, patience time.Duration) string {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the command ended without %q:\n%s", text, p.output.String())
			}
			p.output.WriteString(line + "\n")
			if strings.Contains(line, text) {
				return p.output.String()
			}
		case <-deadline:
			p.t.Fatalf("the command did not print %q within %s:\n%s", text, patience, p.output.String())
		}
	}
}

// Terminate sends SIGTERM to the command and waits until it has ended. Every call returns the same error.
func (p *Program) Terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // The command may already have ended.
	for line := range p.lines {
		p.output.WriteString(line + "\n")
	}
	err := <-p.done
	p.done <- err
	return err
}

// Output returns the output that WaitFor and Terminate have read.
func (p *Program) Output() string { return p.output.String() }
