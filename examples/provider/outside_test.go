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

// Whoever follows the guide in a repository of their own, without a checkout of Machinist, gets a provider that passes
// the conformance suite. The modules come from a proxy made of this tree, as they are once the version is tagged.
func TestAProviderOutsideOfThisRepositoryIsBuiltAsTheGuideSays(t *testing.T) {
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
	// The go command reads these below: read here too, they are known to the cache of test results.
	for _, name := range []string{"go.mod", "api/go.mod", "providers/azure/go.mod", "providers/libvirt/go.mod",
		"providers/openstack/go.mod", "hack/modules/main.go"} {
		if _, err := os.ReadFile(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	published, version := proxy(t, root)
	if !strings.Contains(commands[1], "machinist.dev/machinist@"+version+"\n") {
		t.Errorf("the modules require %s of each other; the guide says\n%s", version, commands[1])
	}
	outside := outside{folder: own, env: append(environment(t, published), "GOWORK=off", "GOSUMDB=off")}
	if help := outside.bash(t, commands[1]+"./machinist-provider-folder --help\n"); !strings.Contains(help, "--folder") {
		t.Errorf("the flag --folder is missing in\n%s", help)
	}
	outside.bash(t, "go test -vet=off .") // To vet all that it imports takes longer than to build it.

	// The providers of clouds are modules that can be required too, such as for their fields.
	for _, cloud := range []string{"azure", "libvirt", "openstack"} {
		driver := "machinist.dev/machinist/providers/" + cloud + "/driver"
		outside.bash(t, "go get "+driver+"@"+version+"\ngo list -deps "+driver+" >/dev/null\n")
	}
}

// outside is a folder that is in no module of this repository.
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

// proxy makes a module proxy of this tree and returns its folder and the version of the modules.
func proxy(t *testing.T, root string) (folder, version string) {
	t.Helper()
	folder = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", root, folder)
	cmd.Dir = filepath.Join(root, "hack", "modules")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("make the proxy: %v: %s", err, failed.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return folder, strings.TrimSpace(string(out))
}

// environment returns one in which the go command finds this project's modules at the proxy, and all others in the
// module cache or wherever it finds them otherwise.
//
// The cache of the test is a folder of its own, because a version is downloaded once only, and this tree changes. It
// has links to what the user's cache has of others: to unpack all that would take longer than the rest of the test.
// With -trimpath it does not matter to the build cache that they have other paths. Without cgo the cache has them from
// the programs already.
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
	// What is made in the cache is read-only otherwise, and could not be removed after the test.
	return append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(users, download))+
			","+goEnv("GOPROXY"))
}
