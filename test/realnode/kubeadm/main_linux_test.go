package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The command runs in another working folder later, so relative paths must become absolute.
func TestLayoutsAreAbsolute(t *testing.T) {
	folder, before := t.TempDir(), os.Args
	t.Chdir(folder)
	t.Cleanup(func() { os.Args = before })
	if err := os.MkdirAll("dist/images", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := parse([]string{"-layout", "dist/images"}); err == nil || !strings.Contains(err.Error(), "make images") {
		t.Errorf("an empty folder: got %v, want an error that names make images", err)
	}
	if err := os.WriteFile("dist/images/index.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parse([]string{"-check", "-layout", "dist/images"})
	want := filepath.Join(folder, "dist", "images")
	if err != nil || !c.checkOnly || !slices.Equal(c.layouts, []string{want}) ||
		!slices.Equal(os.Args[1:], []string{"-layout=" + want}) {
		t.Errorf("got %+v, %v and the arguments %q, want the layout %s", c, err, os.Args, want)
	}
	if _, err := parse([]string{"dist/images"}); err == nil {
		t.Error("an argument without a flag: got no error")
	}
}
