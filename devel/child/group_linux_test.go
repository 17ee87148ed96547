package child

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// programWithChild returns a shell that starts a background process and does not stop it. The shell writes the PID of
// the background process to the file "child".
func programWithChild(dir string) *Process {
	return &Process{
		Name: "family", Path: "/bin/sh", Dir: dir, Group: true, Env: []string{"SECONDS_TO_LIVE=3600"},
		Args: []string{"-c", `sleep "$SECONDS_TO_LIVE" & echo $! >child.new && mv child.new child; wait`},
	}
}

func TestChildrenOfAGroupEndWithTheProgram(t *testing.T) {
	for name, end := range map[string]func(*Process) error{
		"Kill": (*Process).Kill,
		"Stop": func(p *Process) error { return p.Stop(patience) },
	} {
		t.Run(name, func(t *testing.T) {
			p := programWithChild(t.TempDir())
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			pid := 0
			eventually(t, func(context.Context) error {
				content, err := os.ReadFile(filepath.Join(p.Dir, "child"))
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
				}
				return err
			})
			if lives, err := isAlive(pid); !lives || err != nil {
				t.Fatalf("the child with PID %d is alive: %t, %v, want true", pid, lives, err)
			}
			if err := end(p); err != nil {
				t.Fatal(err)
			}
			eventually(t, func(context.Context) error {
				lives, err := isAlive(pid)
				if lives {
					err = errors.New("the child is still alive")
				}
				return err
			})
		})
	}
}
