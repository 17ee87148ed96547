package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newRepository creates the files that newControlPlane reads, and changes to their folder. It returns the environment
// variables to pass to newControlPlane.
func newRepository(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, module), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod":        "module m\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.0\n\tk8s.io/kubernetes v1.37.2\n)\n",
		"go.sum":        "",
		"checksums.txt": "# none\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("PATH", "/nowhere") // without a go command and a kubectl
	return map[string]string{"MACHINIST_CACHE": filepath.Join(dir, "cache")}
}

func start(t *testing.T, env map[string]string) (*controlPlane, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	c, err := newControlPlane(func(name string) string { return env[name] }, &screen{out: &out})
	if err != nil {
		t.Fatal(err)
	}
	return c, &out
}

func TestProvideDownloadsPrograms(t *testing.T) {
	env := newRepository(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, filepath.Base(r.URL.Path))
	}))
	defer server.Close()
	env["CONTROLPLANE_MIRROR"], env["CONTROLPLANE_CHECKSUMS"] = server.URL, "pins"
	sum := sha256.Sum256([]byte("kubelet"))
	c, _ := start(t, map[string]string{"MACHINIST_CACHE": env["MACHINIST_CACHE"]})
	pin := hex.EncodeToString(sum[:]) + "  " + c.release("kubelet").url
	if err := os.WriteFile("pins", []byte(pin), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = start(t, env)
	if err := c.provide(t.Context(), []string{"kubelet"}); err != nil {
		t.Fatal(err)
	}
	if !isProgram(filepath.Join(env["MACHINIST_CACHE"], "controlplane", "v1.37.2", "kubelet")) {
		t.Error("the folder v1.37.2 has no kubelet")
	}
	server.Close()
	if err := c.provide(t.Context(), []string{"kubelet"}); err != nil {
		t.Errorf("an existing program was downloaded again: %v", err)
	}
}

func TestProvideWithoutChecksumFollowsMode(t *testing.T) {
	env := newRepository(t)
	env["CONTROLPLANE"] = "download"
	c, _ := start(t, env)
	err := c.provide(t.Context(), []string{"kubelet"})
	if err == nil || !strings.Contains(err.Error(), "has no checksum of kubelet; CONTROLPLANE=build builds") {
		t.Errorf("provide in mode download: %v", err)
	}
	env["CONTROLPLANE"] = "auto"
	c, out := start(t, env)
	err = c.provide(t.Context(), []string{"kubelet"})
	if err == nil || !strings.Contains(err.Error(), `"go": executable file not found`) ||
		!strings.Contains(out.String(), "has no checksum of kubelet; building it instead") {
		t.Errorf("provide in mode auto, without a go command: %v; output: %s", err, out)
	}
	env["CONTROLPLANE"] = "buidl"
	_, err = newControlPlane(func(name string) string { return env[name] }, &screen{out: out})
	if err == nil || err.Error() != `CONTROLPLANE is "buidl": it must be build, download or auto` {
		t.Errorf("newControlPlane: %v", err)
	}
}

func TestLockRemovesLeftoversOfInterruptedBuild(t *testing.T) {
	env := newRepository(t)
	c, _ := start(t, env)
	leftover := filepath.Join(c.folder, ".partial-build-1")
	if err := os.MkdirAll(leftover, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := c.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("lock did not remove the folder of an interrupted build: %v", err)
	}
	f, err := os.Open(filepath.Join(c.folder, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		t.Error("a second build could take the lock")
	}
	unlock()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("unlock did not release the lock: %v", err)
	}
}

func TestKubectlFits(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.35.9": false, "v1.36.0": true, "v1.37.5": true, "v1.38.1": true, "v1.39.0": false, "v2.37.0": false, "": false,
		"v1.37.0-gke.5": true,
	} {
		output := fmt.Sprintf(`{"clientVersion":{"gitVersion":%q}}`, version)
		if got := kubectlFits([]byte(output), "v1.37.2"); got != want {
			t.Errorf("kubectlFits(%s) = %t, want %t", output, got, want)
		}
	}
	if kubectlFits([]byte("Client Version: v1.37.2"), "v1.37.2") {
		t.Error("kubectlFits accepts output that is not JSON")
	}
}

func TestProvideLinksKubectlFromPath(t *testing.T) {
	env := newRepository(t)
	c, _ := start(t, env)
	bin := t.TempDir()
	script := "#!/bin/sh\necho '{\"clientVersion\":{\"gitVersion\":\"v1.36.1\"}}'\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if err := c.provide(t.Context(), []string{"kubectl"}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(c.folder, "kubectl")); err != nil || to != filepath.Join(bin, "kubectl") {
		t.Errorf("kubectl is linked to %q (%v), want the one in PATH", to, err)
	}
}

func TestNewControlPlaneSelectsVersion(t *testing.T) {
	env := newRepository(t)
	env["KUBERNETES"] = "v1.34.4"
	get := func(name string) string { return env[name] }
	if _, err := newControlPlane(get, &screen{}); err == nil || !strings.Contains(err.Error(), `KUBERNETES is "v1.34.4"`) {
		t.Errorf("newControlPlane for an unsupported version: %v", err)
	}
	if err := os.Mkdir(filepath.Join(module, "versions"), 0o755); err != nil {
		t.Fatal(err)
	}
	mod := "require go.etcd.io/etcd/server/v3 v3.6.4\nrequire k8s.io/kubernetes v1.34.4\n"
	for name, content := range map[string]string{"v1.34.4.mod": mod, "v1.34.4.sum": ""} {
		if err := os.WriteFile(filepath.Join(module, "versions", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := start(t, env)
	if c.version != "v1.34.4" || c.etcd != "v3.6.4" || !strings.HasPrefix(filepath.Base(c.folder), "v1.34.4-") {
		t.Errorf("got version %s with etcd %s in %s, want v1.34.4 with v3.6.4", c.version, c.etcd, c.folder)
	}
}

func TestProvideRejectsUnknownPrograms(t *testing.T) {
	c, _ := start(t, newRepository(t))
	for name, want := range map[string]string{
		"kubeadmm":        `unknown program "kubeadmm"`,
		"kubelet@v1.38.0": "use another patch release of v1.37.2",
	} {
		if err := c.provide(t.Context(), []string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("provide(%s): %v, want %q", name, err, want)
		}
	}
}

func TestVersionFlagsSetVersion(t *testing.T) {
	flags := versionFlags("v1.37.3")
	for _, want := range []string{
		"-s -w -X ", " -X k8s.io/client-go/pkg/version.gitVersion=v1.37.3", " -X k8s.io/component-base/version.gitMinor=37",
	} {
		if !strings.Contains(flags, want) {
			t.Errorf("versionFlags() = %q, want %q in it", flags, want)
		}
	}
}
