//go:build e2e

package vm

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/class/bootstrap/profile"
	"machinist.dev/machinist/providers/libvirt/backend"
)

// The machine installs the kubelet from a signed package repository, and other packages from Debian through a proxy.
func TestMachineWithProfileDebianJoins(t *testing.T) {
	skipUnlessFull(t)
	v := start(t, stack.Options{})
	repository, key := v.servePackages()
	proxy := v.serveHTTP(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}})
	v.backend.UserData = func(string) ([]byte, error) {
		config, err := profile.Render(profile.Options{
			Profile: "debian", Runtime: profile.RuntimePreinstalled, HTTPProxy: proxy, NoProxy: v.backend.Address().String(),
			PackageRepository: repository + "/{minor}/", PackageRepositoryKey: key,
			Files: []profile.File{{Path: "/etc/cni/net.d/10-pods.conflist", Content: []byte(backend.PodNetwork)}},
		})
		return withBootHook(enableApt, config), err
	}
	v.Apply()
	m := v.RunningAre(1, examples.SmallClass)[0]
	v.checkNode(&m)
	v.runPod("web", m.Status.NodeRef.Name)
	v.Delete()
	v.WaitGone()
}

// enableApt enables cloud-init's apt module, which the disk image disables for a faster boot.
const enableApt = `#!/bin/sh
cat <<EOF >/etc/cloud/cloud.cfg.d/apt.cfg
cloud_config_modules: [apt-configure, runcmd]
apt: {preserve_sources_list: true}
EOF
`

// serveHTTP starts a server that machines can reach, and returns its URL.
func (v *vm) serveHTTP(handler http.Handler) string {
	v.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(v.backend.Address().String(), "0"))
	if err != nil {
		v.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }() // until Close
	v.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// servePackages serves the kubelet of backend.Version in a repository like that of Kubernetes. It returns the URL and
// the public key.
func (v *vm) servePackages() (url string, key []byte) {
	v.Helper()
	kubelet, err := controlplane.Locate("kubelet")
	if err != nil {
		v.Fatal(err)
	}
	root := v.TempDir()
	dir := filepath.Join(root, backend.Version[:strings.LastIndex(backend.Version, ".")])
	control := fmt.Sprintf("Package: kubelet\nVersion: %s-1.1\nArchitecture: amd64\n"+
		"Maintainer: nobody <nobody@example.com>\nDepends: iptables, ethtool, socat\nDescription: kubelet\n",
		strings.TrimPrefix(backend.Version, "v"))
	run := func(name string, args ...string) string {
		v.Helper()
		cmd := exec.CommandContext(v.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GNUPGHOME="+root)
		out, err := cmd.Output()
		if err != nil {
			v.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
		}
		return string(out)
	}
	write := func(name, content string) {
		v.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			v.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			v.Fatal(err)
		}
	}
	write("package/DEBIAN/control", control)
	run("install", "-D", "-m", "0755", kubelet, "package/usr/bin/kubelet")
	run("dpkg-deb", "-Znone", "--build", "package", "kubelet.deb")
	deb, err := os.ReadFile(filepath.Join(dir, "kubelet.deb"))
	if err != nil {
		v.Fatal(err)
	}
	packages := fmt.Sprintf("%sFilename: kubelet.deb\nSize: %d\nSHA256: %x\n", control, len(deb), sha256.Sum256(deb))
	write("Packages", packages)
	write("Release", fmt.Sprintf("Suite: stable\nDate: Sun, 01 Nov 2026 00:00:00 UTC\nSHA256:\n %x %d Packages\n",
		sha256.Sum256([]byte(packages)), len(packages)))
	run("gpg", "--batch", "--passphrase=", "--quick-generate-key", "packages@example.com", "default", "default", "never")
	run("gpg", "--batch", "--clearsign", "--output=InRelease", "Release")
	return v.serveHTTP(http.FileServer(http.Dir(root))), []byte(run("gpg", "--batch", "--armor", "--export"))
}
