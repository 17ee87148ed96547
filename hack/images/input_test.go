package main

import (
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func quiet() registry.Option { return registry.Logger(log.New(io.Discard, "", 0)) }

// hostPlatform returns the platform of programs that a Linux machine like this one can run.
func hostPlatform() string { return "linux/" + runtime.GOARCH }

func platformOf(t *testing.T, name string) v1.Platform {
	t.Helper()
	p, err := v1.ParsePlatform(name)
	if err != nil {
		t.Fatal(err)
	}
	return *p
}

func TestErrorsNameInvalidInput(t *testing.T) {
	root := repository(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "name a command"},
		{[]string{"bake"}, `unknown command "bake"`},
		{[]string{"build", "--root", root, "all"}, `does not accept the argument "all"`},
		{[]string{"build", "--root", root, "--platforms", "windows/amd64"}, `"windows/amd64" is not a platform`},
		{[]string{"build", "--root", root, "--programs", "hello,nothing"}, `"nothing" is not one of acme, hello`},
		{[]string{"build", "--root", root, "--version", "v1+2"}, `"v1+2" cannot be the tag`},
		{[]string{"build", "--root", root, "--push", "registry.example.com/Upper"}, `"registry.example.com/Upper" is not a registry`},
		{[]string{"build", "--root", root, "--push", "//"}, `"//" is not a registry`},
		{[]string{"build", "--root", t.TempDir()}, "not a git repository"},
		{[]string{"push"}, "name one registry and prefix"},
		{[]string{"push", "registry.example.com/Upper"}, `"registry.example.com/Upper" is not a registry`},
		{[]string{"push", "--layout", t.TempDir(), "registry.example.com/machinist"}, "read the layout"},
		{[]string{"binaries", "--root", root, "--platforms", "plan9/amd64"}, `"plan9/amd64" is not a platform`},
		{[]string{"serve", "--listen", "0.0.0.0:0"}, "is not a loopback address"},
		{[]string{"serve", "--listen", "127.0.0.1"}, "missing port"},
		{[]string{"serve", "--layout", t.TempDir()}, "read the layout"},
	} {
		if err := run(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want an error with %q", test.args, err, test.want)
		}
	}
}

func TestRunReplacesOnlyLayouts(t *testing.T) {
	root := repository(t)
	b := newTestBuild(t, root, "linux/amd64")
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(t.Context(), precious); err == nil || !strings.Contains(err.Error(), "is not an image layout") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Error(err)
	}
}

// A program that relies on the root certificates of the build machine cannot connect to a cloud from its image.
func TestCheckRejectsProgramWithoutRootCertificates(t *testing.T) {
	root := repository(t)
	b := newTestBuild(t, root, "linux/amd64")
	b.roots = publicRoots
	_, err := b.run(t.Context(), filepath.Join(root, "dist", "images"))
	if err == nil || !strings.Contains(err.Error(), "check the image of acme: linux/amd64: the program lacks root certificates") {
		t.Errorf("got %v", err)
	}
}

func TestCheckRejectsProgramWithWrongVersion(t *testing.T) {
	root := repository(t)
	path := filepath.Join(root, "internal", "platform", "version", "version.go")
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(source), "return release", `return "other"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newTestBuild(t, root, hostPlatform())
	_, err = b.run(t.Context(), filepath.Join(root, "dist", "images"))
	if err == nil || !strings.Contains(err.Error(), `--version prints "acme version other (commit`) {
		t.Errorf("got %v", err)
	}
}

func TestCheckRejectsProgramThatNeedsLoader(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skip("there is no /bin/sh")
	}
	if err := checkStatic(shell, platformOf(t, hostPlatform())); err == nil {
		t.Error("/bin/sh was accepted as a static program")
	}
	if err := checkStatic([]byte("#!/bin/sh"), platformOf(t, hostPlatform())); err == nil {
		t.Error("a script was accepted as a program")
	}
}

// Programs that run only on the machines of developers need no image.
func TestEveryProgramHasImage(t *testing.T) {
	programs, err := findPrograms("../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range programs {
		found[p.name] = p.description
	}
	for _, want := range []string{"machinist", "machinist-manager", "machinist-provider-azure",
		"machinist-provider-libvirt", "machinist-provider-openstack", "machinist-provider-sim", "machinist-provider-vsphere", "simcloud"} {
		if found[want] == "" {
			t.Errorf("%s has no image, or no description: %v", want, found)
		}
	}
	for name := range withoutImage {
		if _, ok := found[name]; ok {
			t.Errorf("%s has an image", name)
		}
	}
}
