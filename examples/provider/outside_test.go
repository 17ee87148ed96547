package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever follows the guide in a repository of their own gets a provider. What the network would give comes from the
// cache of modules here.
func TestAProviderOutsideOfThisRepositoryIsBuiltAsTheGuideSays(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(root, filepath.Join(folder, "machinist")); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(folder, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cloud.go", "driver.go", "main.go", "spec.go"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(own, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commands := regexp.MustCompile("(?s)```sh\n(go mod init .*?)```").FindStringSubmatch(guide(t))
	if commands == nil {
		t.Fatal("the guide has no commands that begin with go mod init")
	}
	bash := exec.CommandContext(t.Context(), "bash", "-e", "-c", commands[1]+"./machinist-provider-folder --help\n")
	bash.Dir = own
	bash.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off", "GOSUMDB=off")
	out, err := bash.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--folder") {
		t.Errorf("%v\n%s", err, out)
	}
}
