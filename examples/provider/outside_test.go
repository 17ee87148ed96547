//go:build outside

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands in the guide must work in another repository, and the provider that they build must pass the conformance
// suite. The test gets the modules from a proxy that serves this source tree like a tagged version.
func TestProviderOutsideThisRepositoryIsBuiltAsInGuide(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cloud.go", "driver.go", "main.go", "spec.go", "conformance_test.go"} {
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
	// The go command below reads these files in another process. The test also reads these files, so that go test does
	// not use a cached result after a change of the files.
	for _, name := range []string{"go.mod", "api/go.mod", "providers/azure/go.mod", "providers/libvirt/go.mod",
		"providers/openstack/go.mod", "hack/modules/main.go"} {
		if _, err := os.ReadFile(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	published, version := proxy(t, root)
	if !strings.Contains(commands[1], "machinist.dev/machinist@"+version+"\n") {
		t.Errorf("the modules require version %s of each other, but the commands in the guide are\n%s", version, commands[1])
	}
	outside := outside{folder: own, env: append(environment(t, published), "GOWORK=off", "GOSUMDB=off")}
	if help := outside.bash(t, commands[1]+"./machinist-provider-folder --help\n"); !strings.Contains(help, "--folder") {
		t.Errorf("the flag --folder is missing in\n%s", help)
	}
	outside.bash(t, "go test -vet=off .") // Vetting all imports would take longer than the build.

	// Other programs must be able to import the modules of the cloud providers, for example for the types of their
	// providerSpecs.
	for _, cloud := range []string{"azure", "libvirt", "openstack"} {
		driver := "machinist.dev/machinist/providers/" + cloud + "/driver"
		outside.bash(t, "go get "+driver+"@"+version+"\ngo list -deps "+driver+" >/dev/null\n")
	}
}

type outside struct {
	folder string
	env    []string
}

func (o outside) bash(t *testing.T, commands string) string {
	t.Helper()
	bash := exec.CommandContext(t.Context(), "bash", "-e", "-c", commands)
	bash.Dir, bash.Env = o.folder, o.env
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
	return string(out)
}

// proxy creates a module proxy for this source tree. It returns the folder of the proxy and the version of the modules.
func proxy(t *testing.T, root string) (folder, version string) {
	t.Helper()
	folder = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", root, folder)
	cmd.Dir = filepath.Join(root, "hack", "modules")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("create the proxy: %v: %s", err, failed.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return folder, strings.TrimSpace(string(out))
}

// environment returns environment variables for the go command. With them, the go command downloads the modules of this
// project from the given proxy, and other modules from the user's module cache or proxy.
//
// The test has its own module cache. The go command would not download the changed source tree again into the user's
// cache, because the version stays the same. The cache links to the other modules in the user's cache, because
// unpacking them would take longer than the rest of the test. With -trimpath and CGO_ENABLED=0, the build cache already
// contains the packages.
func environment(t *testing.T, proxy string) []string {
	t.Helper()
	goEnv := func(name string) string {
		out, err := exec.CommandContext(context.Background(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	users := goEnv("GOMODCACHE")
	cache := filepath.Join(t.TempDir(), "cache")
	download := filepath.Join("cache", "download")
	if err := os.MkdirAll(filepath.Join(cache, download), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{".", download} {
		entries, err := os.ReadDir(filepath.Join(users, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() || e.Name() == "cache" || e.Name() == "machinist.dev" {
				continue
			}
			if err := os.Symlink(filepath.Join(users, folder, e.Name()), filepath.Join(cache, folder, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	// With -modcacherw, the test can remove the files of the module cache at the end.
	return append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(users, download))+
			","+goEnv("GOPROXY"))
}
