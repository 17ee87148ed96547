package demo

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func TestShellFileSetsVariablesAndPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	path, err := writeShellFile(dir, map[string]string{"tool": "/bin/echo"}, []string{"URL=http://a/<<VERSION>>?x=$y'z"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", `. "$1" && tool "$URL"`, "sh", path).CombinedOutput()
	if want := "http://a/<<VERSION>>?x=$y'z\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
