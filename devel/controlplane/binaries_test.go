package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocatePrefersAssetsToTheCacheForEachBinary(t *testing.T) {
	assets, cache := t.TempDir(), t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("MACHINIST_CACHE", cache)
	built := filepath.Join(cache, "controlplane", Version)
	executable(t, filepath.Join(assets, etcdBinary))
	executable(t, filepath.Join(built, etcdBinary))
	executable(t, filepath.Join(built, kubectlBinary))

	for name, want := range map[string]string{etcdBinary: assets, kubectlBinary: built} {
		got, err := Locate(name)
		if err != nil {
			t.Errorf("Locate(%q): %v", name, err)
		} else if got != filepath.Join(want, name) {
			t.Errorf("Locate(%q) = %q, want it in %q", name, got, want)
		}
	}
}

func TestLocateResolvesTheLinkOfTheCacheFolder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("MACHINIST_CACHE", cache)
	folder := filepath.Join(cache, "controlplane", Version+"-0123")
	executable(t, filepath.Join(folder, etcdBinary))
	if err := os.Symlink(filepath.Base(folder), filepath.Join(cache, "controlplane", Version)); err != nil {
		t.Fatal(err)
	}

	got, err := Locate(etcdBinary)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(folder, etcdBinary); got != want {
		t.Errorf("Locate = %q, want %q", got, want)
	}
}

func TestLocateUsesTheCacheVariablesOfTheBuildScripts(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"MACHINIST_CACHE": {"MACHINIST_CACHE": "ROOT", "XDG_CACHE_HOME": "/nowhere", "HOME": "/nowhere"},
		"XDG_CACHE_HOME":  {"XDG_CACHE_HOME": "ROOT", "HOME": "/nowhere"},
		"HOME":            {"HOME": "ROOT"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, key := range []string{"KUBEBUILDER_ASSETS", "MACHINIST_CACHE", "XDG_CACHE_HOME", "HOME"} {
				t.Setenv(key, strings.Replace(env[key], "ROOT", root, 1))
			}
			below := map[string]string{"MACHINIST_CACHE": "", "XDG_CACHE_HOME": "machinist", "HOME": ".cache/machinist"}[name]
			want := filepath.Join(root, below, "controlplane", Version, etcdBinary)
			executable(t, want)
			if got, err := Locate(etcdBinary); err != nil || got != want {
				t.Errorf("Locate = %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestLocateBinariesNamesMissingOnesAndHowToBuildThem(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("MACHINIST_CACHE", t.TempDir())

	_, err := locateBinaries(Options{WithScheduler: true})
	if err == nil {
		t.Fatal("locateBinaries() = nil although nothing is built")
	}
	for _, want := range []string{"make controlplane", etcdBinary, apiServerBinary, schedulerBinary} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), controllerManagerBinary) {
		t.Errorf("the error asks for a binary that these options do not need: %v", err)
	}
}

func TestVersionEqualsTheBuiltVersion(t *testing.T) {
	gomod, err := os.ReadFile("../../hack/controlplane/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, required, found := strings.Cut(string(gomod), "k8s.io/kubernetes v")
	if !found || "v"+strings.Fields(required)[0] != Version {
		t.Errorf("hack/controlplane/go.mod does not require k8s.io/kubernetes %s", Version)
	}
}

func executable(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
