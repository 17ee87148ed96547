//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDemoTourSucceeds(t *testing.T) {
	t.Parallel()
	forms := [][]string{{"--once", "--separate-target"}}
	if isFull() {
		forms = append(forms, []string{"--once"})
	}
	for _, args := range forms {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			begun := time.Now()
			var out bytes.Buffer
			cmd := exec.Command(filepath.Join(binDir(t), "machinist-demo"), args...)
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			t.Logf("after %s:\n%s", time.Since(begun).Round(time.Second), out.String())
			if err != nil {
				t.Errorf("machinist-demo %s: %v", strings.Join(args, " "), err)
			}
			// The garbage collector discovers new kinds every 30 seconds. In the demo, the garbage collector knows the
			// kinds of Machinist from the start, so the deletion takes about a second.
			_, last, _ := strings.Cut(out.String(), "Delete the deployment.")
			took := regexp.MustCompile(`done after (\S+)\.\n`).FindStringSubmatch(last)
			if took == nil {
				t.Fatal("the tour did not print how long the deletion of the deployment took")
			}
			if d, err := time.ParseDuration(took[1]); err != nil || d > 10*time.Second {
				t.Errorf("the deletion of the deployment took %s, want at most 10s; error %v", took[1], err)
			}
		})
	}
}

// If Ctrl-C interrupts the demo while it starts, the resulting errors must not be printed.
func TestDemoIsInterruptedDuringStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flag, message string
		code          int
	}{
		{"--separate-target", "Stopped before everything was up.", 0},
		{"--once", "Error: interrupted before everything was up", 1},
	} {
		cmd := exec.Command(filepath.Join(binDir(t), "machinist-demo"), tc.flag)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var text []string
		for lines.Scan() {
			if text = append(text, lines.Text()); len(text) == 1 {
				if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Error(err)
				}
			}
		}
		err = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || len(text) > 5 || text[len(text)-1] != tc.message {
			t.Errorf("demo %s: got error %v, code %d, and output\n%s\nwant code %d and last line %q", tc.flag, err, code,
				strings.Join(text, "\n"), tc.code, tc.message)
		}
	}
}
