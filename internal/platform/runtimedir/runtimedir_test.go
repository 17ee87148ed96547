package runtimedir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFolderIsPrivate(t *testing.T) {
	name := fmt.Sprintf("machinist-%d", os.Getuid())
	for what, test := range map[string]struct {
		prepare func(t *testing.T, runtime, temporary string)
		// want is the expected folder, relative to the parent of runtime and temporary. refused is a part of the
		// expected error.
		want, refused string
	}{
		"a runtime folder":         {func(*testing.T, string, string) {}, "runtime/machinist", ""},
		"the folder exists":        {func(t *testing.T, r, _ string) { mkdir(t, r+"/machinist", 0o700) }, "runtime/machinist", ""},
		"no runtime folder":        {func(t *testing.T, r, _ string) { remove(t, r) }, "tmp/" + name, ""},
		"others may use runtime":   {func(t *testing.T, r, _ string) { chmod(t, r, 0o755) }, "tmp/" + name, ""},
		"others may use machinist": {func(t *testing.T, r, _ string) { mkdir(t, r+"/machinist", 0o777) }, "", "set mode 0700"},
		"a link": {func(t *testing.T, r, temporary string) {
			remove(t, r)
			mkdir(t, temporary+"/elsewhere", 0o700)
			if err := os.Symlink(temporary+"/elsewhere", filepath.Join(temporary, name)); err != nil {
				t.Fatal(err)
			}
		}, "", "is not a folder"},
		"of another user": {func(t *testing.T, r, _ string) {
			if os.Getuid() != 0 {
				t.Skip("only root can give a folder to another user")
			}
			mkdir(t, r+"/machinist", 0o700)
			if err := os.Chown(r+"/machinist", 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}, "", "belongs to another user"},
	} {
		t.Run(what, func(t *testing.T) {
			base := t.TempDir()
			runtime, temporary := filepath.Join(base, "runtime"), filepath.Join(base, "tmp")
			mkdir(t, runtime, 0o700)
			mkdir(t, temporary, 0o777)
			test.prepare(t, runtime, temporary)
			got, err := folder(runtime, temporary)
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("got %q, error %v; want an error with %q", got, err, test.refused)
				}
				return
			}
			if err != nil || got != filepath.Join(base, test.want) {
				t.Fatalf("got %q, error %v; want %s", got, err, test.want)
			}
			if info, err := os.Stat(got); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("got mode %v, error %v; want 0700", info.Mode(), err)
			}
		})
	}
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, path, mode)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
