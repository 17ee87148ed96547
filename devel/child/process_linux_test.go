package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentDir is the name of an environment variable. If the variable contains the path of a folder, the test binary
// starts a child in this folder, prints the child's PID and waits to be killed.
const parentDir = "PROCESS_TEST_PARENT_DIR"

func TestChildrenDieWithTheirParent(t *testing.T) {
	if dir := os.Getenv(parentDir); dir != "" {
		child := sleeper(dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pid:", child.life.os.Pid)
		<-child.life.done
		t.Fatal("the child ended first")
	}

	parent := exec.Command(os.Args[0], "-test.run=^TestChildrenDieWithTheirParent$")
	parent.Env = append(os.Environ(), parentDir+"="+t.TempDir())
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(output); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid: "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if alive, err := isAlive(pid); pid == 0 || !alive || err != nil {
		t.Fatalf("the child with PID %d is alive: %v, %v, want true", pid, alive, err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var killed *exec.ExitError
	if err := parent.Wait(); !errors.As(err, &killed) {
		t.Fatalf("the parent ended with %v, want that it was killed", err)
	}
	eventually(t, func(context.Context) error {
		alive, err := isAlive(pid)
		if alive {
			err = errors.New("the child is still alive")
		}
		return err
	})
}

func TestAProcessThatIgnoresSignalsIsKilled(t *testing.T) {
	if dir := os.Getenv(parentDir); dir != "" { // This process is the child.
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		<-t.Context().Done()
	}

	t.Setenv(parentDir, t.TempDir())
	deaf := &Process{
		Name: "deaf", Path: os.Args[0], Dir: t.TempDir(),
		Args: []string{"-test.run=^TestAProcessThatIgnoresSignalsIsKilled$"},
	}
	if err := deaf.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error {
		if !deaf.logged("deaf") {
			return errors.New("the child does not ignore signals yet")
		}
		return nil
	})
	if err := deaf.Stop(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if status := deaf.life.err.(*exec.ExitError).Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended by signal %v, want SIGKILL", status.Signal())
	}
}

func TestAnUnexpectedEndIsReported(t *testing.T) {
	reports := make(chan string, 1)
	report := func(p *Process, _ error) { reports <- p.Name }

	asked := sleeper(t.TempDir())
	asked.OnExit = report
	unasked := sleeper(t.TempDir())
	unasked.Name, unasked.OnExit = "unasked", report
	for _, p := range []*Process{asked, unasked} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Await(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := asked.Stop(patience); err != nil {
		t.Fatal(err)
	}
	if err := unasked.life.os.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-reports:
		if name != "unasked" {
			t.Errorf("the end of %q was reported", name)
		}
	case <-time.After(patience):
		t.Error("Ended was not called")
	}
}

func sleeper(dir string) *Process {
	return &Process{Name: "asked", Path: "/bin/sleep", Args: []string{"3600"}, Dir: dir}
}

// patience is how long a test waits for an expected event on a busy machine.
const patience = 90 * time.Second

func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still not after %v: %v", patience, err)
		case <-ticker.C:
		}
	}
}

// isAlive reports whether a process is running, child or not. It returns false for a zombie process.
func isAlive(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The file contains "PID (name) state ...". The name may contain parentheses, so look for the state after the last
	// closing parenthesis.
	rest := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]
	state := strings.Fields(rest)[0]
	return state != "Z" && state != "X", nil
}
