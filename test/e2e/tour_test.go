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

// The demo's tour is the shortest proof that everything works together.
func TestTheDemoTour(t *testing.T) {
	t.Parallel()
	forms := [][]string{{"--once", "--separate-target"}}
	if full() {
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
			// Kubernetes' garbage collector looks for kinds that it does not know every 30 seconds. Here it knows ours from the
			// beginning: the deletion takes a second or so, and never as long as that.
			_, last, _ := strings.Cut(out.String(), "Delete the deployment.")
			took := regexp.MustCompile(`done after (\S+)\.\n`).FindStringSubmatch(last)
			if took == nil {
				t.Fatal("the tour does not say how long the deletion of the deployment took")
			}
			if d, err := time.ParseDuration(took[1]); err != nil || d > 10*time.Second {
				t.Errorf("the deletion of the deployment took %s, error %v", took[1], err)
			}
		})
	}
}

// Whoever presses Ctrl-C while everything is being started is not shown what that broke.
func TestTheDemoIsInterruptedAsItStarts(t *testing.T) {
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
			t.Errorf("demo %s ends with %v, code %d, and shows\n%s", tc.flag, err, code, strings.Join(text, "\n"))
		}
	}
}
