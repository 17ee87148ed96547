package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

type source struct {
	// version is the version that the programs report. The version is also the tag of the images.
	version string
	commit  string
	// time is the time of the commit, or SOURCE_DATE_EPOCH if that variable is set. This time is the creation time of
	// the images and the modification time of their files.
	time time.Time
	// modified is true if the working tree has changes.
	modified bool
}

// stamp returns the commit as the programs report it.
func (s source) stamp() string {
	if s.modified {
		return s.commit + "-dirty"
	}
	return s.commit
}

var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func readSource(ctx context.Context, root, version string) (source, error) {
	var s source
	var err error
	if s.commit, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	s.modified = changes != ""
	seconds, where := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if seconds == "" {
		where = "time of the commit"
		if seconds, err = git(ctx, root, "log", "-1", "--format=%ct"); err != nil {
			return s, err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("%s: %q is not a number of seconds since 1970", where, seconds)
	}
	s.time = time.Unix(epoch, 0).UTC()
	if s.version = version; version == "" {
		s.version = s.defaultVersion(ctx, root)
	}
	if !tag.MatchString(s.version) {
		return s, fmt.Errorf("--version: %q cannot be the tag of an image: use letters, digits, '.', '_' and '-'", s.version)
	}
	return s, nil
}

// defaultVersion returns the output of git describe, or a version with the commit if there is no tag.
func (s source) defaultVersion(ctx context.Context, root string) string {
	described, err := git(ctx, root, "describe", "--tags", "--match", "v[0-9]*", "--dirty")
	if err == nil {
		return described
	}
	version := "v0.0.0-" + s.commit[:min(12, len(s.commit))]
	if s.modified {
		version += "-dirty"
	}
	return version
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	out, err := output(ctx, folder, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// output runs a command and returns its standard output. An error contains the text on stderr.
func output(ctx context.Context, folder string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// compareWithClone builds the commit again in a folder with another name. It returns an error if a digest differs.
func (b *build) compareWithClone(ctx context.Context, first *imageLayout, platforms, only []string) error {
	if b.source.modified {
		return fmt.Errorf("--again compares two builds of a commit, but %s has changes that are not committed", b.root)
	}
	parent, err := os.MkdirTemp("", "images-again-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	clone := filepath.Join(parent, "clone")
	root, err := filepath.Abs(b.root)
	if err != nil {
		return err
	}
	if _, err := git(ctx, parent, "clone", "--quiet", "--no-hardlinks", root, clone); err != nil {
		return err
	}
	if _, err := git(ctx, clone, "checkout", "--quiet", "--detach", b.source.commit); err != nil {
		return err
	}
	again, err := newBuild(ctx, clone, b.source.version, platforms, only)
	if err != nil {
		return err
	}
	second, err := again.run(ctx, filepath.Join(parent, "dist", "images"))
	if err != nil {
		return err
	}
	if err := first.sameAs(second); err != nil {
		return err
	}
	fmt.Fprintln(b.log, "images: a second build from a clone has the same digests")
	return nil
}
