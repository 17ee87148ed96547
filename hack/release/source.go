package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// checkTag returns an error unless Go modules, charts and images all accept the tag as a version.
func checkTag(tag string) error {
	switch {
	case !semver.IsValid(tag):
		return fmt.Errorf("the tag %q is not a semantic version: use a tag such as v1.2.3 or v1.2.3-rc.1", tag)
	case semver.Build(tag) != "":
		return fmt.Errorf("the tag %q has build metadata, which the tag of an image cannot have: remove %q", tag,
			semver.Build(tag))
	case semver.Canonical(tag) != tag:
		return fmt.Errorf("the tag %q does not have three numbers: use %s", tag, semver.Canonical(tag))
	}
	return nil
}

// checkSource sets the commit and its time, or returns an error if the working tree cannot be released.
func (p *project) checkSource(ctx context.Context, r *release) error {
	if err := checkTag(r.Tag); err != nil {
		return err
	}
	changes, err := p.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the working tree has changes, but a release is built from a commit: commit or remove\n%s", changes)
	}
	if r.Commit, err = p.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := p.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.Time = time.Unix(epoch, 0).UTC()
	return errors.Join(p.checkTags(ctx, r), p.checkCharts(r))
}

// checkTags returns an error if the tag of a Go module is missing or on another commit.
func (p *project) checkTags(ctx context.Context, r *release) error {
	tags, err := p.tags(r.Tag)
	if err != nil {
		return err
	}
	var errs []error
	for _, tag := range tags {
		commit, err := p.git(ctx, "rev-parse", "--verify", "--quiet", "refs/tags/"+tag+"^{commit}")
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the tag %s does not exist: tag each Go module as docs/dev/release.md describes", tag))
		case commit != r.Commit:
			errs = append(errs, fmt.Errorf("the tag %s is on commit %s, but %s is checked out", tag, commit, r.Commit))
		}
	}
	return errors.Join(errs...)
}

// tags returns one tag for each Go module of the workspace, except tools.
func (p *project) tags(tag string) ([]string, error) {
	path := filepath.Join(p.root, "go.work")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	workspace, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, use := range workspace.Use {
		folder := strings.TrimPrefix(use.Path, "./")
		switch {
		case folder == ".":
			tags = append(tags, tag)
		case !strings.HasPrefix(folder, "hack/"):
			tags = append(tags, folder+"/"+tag)
		}
	}
	return tags, nil
}

// checkCharts returns an error if a chart has another version or another default registry.
func (p *project) checkCharts(r *release) error {
	charts, err := p.charts()
	if err != nil {
		return err
	}
	var errs []error
	for _, chart := range charts {
		var about struct{ Version, AppVersion string }
		var values struct{ Image struct{ Registry string } }
		for path, into := range map[string]any{"Chart.yaml": &about, "values.yaml": &values} {
			text, err := os.ReadFile(filepath.Join(p.root, "charts", chart, path))
			if err != nil {
				return err
			}
			if err := yaml.Unmarshal(text, into); err != nil {
				return fmt.Errorf("charts/%s/%s: %w", chart, path, err)
			}
		}
		if about.Version != r.version() || about.AppVersion != r.Tag {
			errs = append(errs, fmt.Errorf("charts/%s/Chart.yaml has version %s and appVersion %s, want %s and %s", chart,
				about.Version, about.AppVersion, r.version(), r.Tag))
		}
		if values.Image.Registry != r.Registry {
			errs = append(errs, fmt.Errorf("charts/%s/values.yaml sets image.registry to %s, but the images are pushed to %s",
				chart, values.Image.Registry, r.Registry))
		}
	}
	return errors.Join(errs...)
}

func (p *project) charts() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(p.root, "charts", "*", "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	var charts []string
	for _, path := range paths {
		charts = append(charts, filepath.Base(filepath.Dir(path)))
	}
	if len(charts) == 0 {
		return nil, fmt.Errorf("%s contains no charts", filepath.Join(p.root, "charts"))
	}
	return charts, nil
}
