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

// hostPlatform is the one whose programs can be run here, if this is Linux.
func hostPlatform() string { return "linux/" + runtime.GOARCH }

func platformOf(t *testing.T, name string) v1.Platform {
	t.Helper()
	p, err := v1.ParsePlatform(name)
	if err != nil {
		t.Fatal(err)
	}
	return *p
}

func TestBadInputIsRejectedByItsName(t *testing.T) {
	root := repository(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "name a command"},
		{[]string{"bake"}, `"bake" is no command`},
		{[]string{"build", "--root", root, "all"}, `"all" is no flag`},
		{[]string{"build", "--root", root, "--platforms", "windows/amd64"}, `"windows/amd64" is no platform`},
		{[]string{"build", "--root", root, "--programs", "hello,nothing"}, `"nothing" is none of acme, hello`},
		{[]string{"build", "--root", root, "--version", "v1+2"}, `"v1+2" cannot be the tag`},
		{[]string{"build", "--root", root, "--push", "registry.example.com/Upper"}, `"registry.example.com/Upper" is no registry`},
		{[]string{"build", "--root", root, "--push", "//"}, `"//" is no registry`},
		{[]string{"build", "--root", t.TempDir()}, "not a git repository"},
		{[]string{"serve", "--listen", "0.0.0.0:0"}, "is no address of loopback"},
		{[]string{"serve", "--listen", "127.0.0.1"}, "missing port"},
		{[]string{"serve", "--layout", t.TempDir()}, "read the layout"},
	} {
		if err := run(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want an error with %q", test.args, err, test.want)
		}
	}
}

func TestOnlyALayoutIsReplaced(t *testing.T) {
	root := repository(t)
	b := newTestBuild(t, root, "linux/amd64")
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(t.Context(), precious); err == nil || !strings.Contains(err.Error(), "is no image layout") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Error(err)
	}
}

// A program without them works on its author's machine, and in its image reaches no cloud.
func TestAProgramWithoutRootCertificatesIsRejected(t *testing.T) {
	root := repository(t)
	b := newTestBuild(t, root, "linux/amd64")
	b.roots = publicRoots
	_, err := b.run(t.Context(), filepath.Join(root, "dist", "images"))
	if err == nil || !strings.Contains(err.Error(), "check the image of acme: linux/amd64: the program lacks root certificates") {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatReportsAnotherVersionIsRejected(t *testing.T) {
	root := repository(t)
	path := filepath.Join(root, "internal", "version", "version.go")
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

func TestAProgramThatNeedsALoaderIsRejected(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skip("there is no /bin/sh")
	}
	if err := checkStatic(shell, platformOf(t, hostPlatform())); err == nil {
		t.Error("/bin/sh passes as a static program")
	}
	if err := checkStatic([]byte("#!/bin/sh"), platformOf(t, hostPlatform())); err == nil {
		t.Error("a script passes as a program")
	}
}

// Every program of the project but those of a developer's machine has an image, and a sentence about it.
func TestEveryProgramOfTheProjectHasAnImage(t *testing.T) {
	programs, err := findPrograms("../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range programs {
		found[p.name] = p.description
	}
	for _, want := range []string{"machinist", "machinist-manager", "machinist-provider-azure",
		"machinist-provider-libvirt", "machinist-provider-openstack", "machinist-provider-sim", "simcloud"} {
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
