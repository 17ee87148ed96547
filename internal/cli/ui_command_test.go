package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// All users of a computer can read the arguments of a process.
func TestBrowserIsStartedWithoutTheLink(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the browser of Linux is replaced")
	}
	folder, private := t.TempDir(), t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	arguments := filepath.Join(folder, "arguments")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + arguments + ".new && mv " + arguments + ".new " + arguments + "\n"
	if err := os.WriteFile(filepath.Join(folder, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	t.Setenv("XDG_RUNTIME_DIR", private)

	const link = "http://127.0.0.1:1/?token=secret"
	page := &linkPage{}
	if err := page.open(link); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for deadline := time.Now().Add(10 * time.Second); len(got) == 0; {
		if got, _ = os.ReadFile(arguments); time.Now().After(deadline) {
			t.Fatal("the browser was not started")
		}
	}
	file := strings.TrimSpace(string(got))
	if strings.Contains(file, "secret") || filepath.Dir(file) != filepath.Join(private, "machinist") {
		t.Fatalf("the browser was started with %q, want a file in %s", file, private)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got mode %v, error %v; want 0600", info, err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "url="+link) {
		t.Errorf("the file contains %q, error %v", text, err)
	}
	page.remove()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file still exists: %v", err)
	}
	page.remove()
}
