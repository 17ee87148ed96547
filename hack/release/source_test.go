package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	// The user's git configuration must not affect the tests.
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	os.Exit(m.Run())
}

func TestTagIsVersionOfModulesChartsAndImages(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.1.0":         "",
		"v1.2.3-rc.1":    "",
		"v10.20.30":      "",
		"":               `the tag "" is not a semantic version`,
		"0.1.0":          `the tag "0.1.0" is not a semantic version`,
		"v1.2.3.4":       "is not a semantic version",
		"v01.2.3":        "is not a semantic version",
		"v1.2.3-":        "is not a semantic version",
		"release-1":      "is not a semantic version: use a tag such as v1.2.3 or v1.2.3-rc.1",
		"v1.2":           "does not have three numbers: use v1.2.0",
		"v1":             "does not have three numbers: use v1.0.0",
		"v1.2.3+build.7": `remove "+build.7"`,
	} {
		expectError(t, tag, checkTag(tag), want)
	}
}

// expectError expects an error with a text, or no error if the text is empty.
func expectError(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got %v, want an error with %q", what, err, want)
	}
}

// repository creates a git repository with one commit. The commit has the tags of version 1.2.3.
func repository(t *testing.T) *project {
	t.Helper()
	root := t.TempDir()
	chart := "name: machinist\nversion: 1.2.3\nappVersion: v1.2.3\n"
	write(t, root, map[string]string{
		"go.work":                      "go 1.26.0\n\nuse (\n\t.\n\t./api\n\t./hack/controlplane\n\t./providers/acme\n)\n",
		"CHANGELOG.md":                 "# Changes\n\n## 1.2.3, 2026-01-31\n\nEverything.\n",
		"charts/machinist/Chart.yaml":  chart,
		"charts/machinist/values.yaml": "image:\n  registry: registry.example.com/machinist\n",
	})
	p := &project{root: root, log: io.Discard}
	gitIn(t, p, "init", "--quiet")
	commit(t, p)
	return p
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func gitIn(t *testing.T, p *project, args ...string) {
	t.Helper()
	if _, err := p.git(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// commit records all changes in a new git commit, and moves the tags of version 1.2.3 to it.
func commit(t *testing.T, p *project) {
	t.Helper()
	gitIn(t, p, "add", ".")
	gitIn(t, p, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "Change")
	for _, tag := range []string{"v1.2.3", "api/v1.2.3", "providers/acme/v1.2.3"} {
		gitIn(t, p, "tag", "--force", tag)
	}
}

func TestOnlyTaggedCommitIsReleased(t *testing.T) {
	for name, test := range map[string]struct {
		tag    string
		change func(t *testing.T, p *project)
		want   string
	}{
		"a tagged commit":          {"v1.2.3", nil, ""},
		"a tag that is no version": {"latest", nil, `the tag "latest" is not a semantic version`},
		"a changed file": {"v1.2.3", func(t *testing.T, p *project) {
			write(t, p.root, map[string]string{"CHANGELOG.md": "changed"})
		}, "the working tree has changes, but a release is built from a commit: commit or remove\n M CHANGELOG.md"},
		"a new file": {"v1.2.3", func(t *testing.T, p *project) {
			write(t, p.root, map[string]string{"new.go": ""})
		}, "?? new.go"},
		"a module without its tag": {"v1.2.3", func(t *testing.T, p *project) {
			gitIn(t, p, "tag", "--delete", "providers/acme/v1.2.3")
		}, "the tag providers/acme/v1.2.3 does not exist"},
		"a commit after the tag": {"v1.2.3", func(t *testing.T, p *project) {
			gitIn(t, p, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "-m", "More")
		}, "the tag v1.2.3 is on commit"},
		"a chart of another version": {"v1.2.3", func(t *testing.T, p *project) {
			write(t, p.root, map[string]string{"charts/other/Chart.yaml": "version: 1.2.2\nappVersion: v1.2.2\n",
				"charts/other/values.yaml": "image:\n  registry: registry.example.com/machinist\n"})
			commit(t, p)
		}, "charts/other/Chart.yaml has version 1.2.2 and appVersion v1.2.2, want 1.2.3 and v1.2.3"},
		"a chart with another registry": {"v1.2.3", func(t *testing.T, p *project) {
			write(t, p.root, map[string]string{"charts/machinist/values.yaml": "image:\n  registry: registry.example.org\n"})
			commit(t, p)
		}, "charts/machinist/values.yaml sets image.registry to registry.example.org, but the images are pushed to"},
	} {
		t.Run(name, func(t *testing.T) {
			p := repository(t)
			if test.change != nil {
				test.change(t, p)
			}
			r := &release{Tag: test.tag, Registry: "registry.example.com/machinist"}
			err := p.checkSource(t.Context(), r)
			expectError(t, "checkSource", err, test.want)
			if err == nil && (len(r.Commit) != 40 || r.Time.IsZero()) {
				t.Errorf("got the commit %q at %s", r.Commit, r.Time)
			}
		})
	}
}

// This test fails if an edit of the rehearsal no longer matches the files.
func TestPreparedCloneCanBeReleased(t *testing.T) {
	p := repository(t)
	write(t, p.root, map[string]string{"CHANGELOG.md": "# Changes\n\n## 1.2.3, not released yet\n\nEverything.\n"})
	commit(t, p)
	clone, r, err := p.prepare(t.Context(), filepath.Join(t.TempDir(), "clone"), "127.0.0.1:5000/machinist")
	if err != nil {
		t.Fatal(err)
	}
	if err := clone.checkSource(t.Context(), &r); err != nil {
		t.Error(err)
	}
	changelog, err := os.ReadFile(filepath.Join(clone.root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := notesOf(string(changelog), r.version(), ""); err != nil {
		t.Error(err)
	}
}

func TestReleaseReplacesOnlyReleases(t *testing.T) {
	r := &release{folder: t.TempDir(), Tag: "v1.2.3"}
	for range 2 {
		if err := r.create(); err != nil {
			t.Fatal(err)
		}
	}
	if loaded, err := load(r.folder); err != nil || *loaded != *r {
		t.Errorf("got %v and %v, want %v", loaded, err, r)
	}
	other := &release{folder: t.TempDir(), Tag: "v1.2.3"}
	write(t, other.folder, map[string]string{"precious": ""})
	expectError(t, "create", other.create(), "does not contain a release, and was not replaced")
	_, err := load(t.TempDir())
	expectError(t, "load", err, "run `release build` first")
}
