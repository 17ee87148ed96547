package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// project is the released repository. The tools for a release are in the folder "hack" of this repository.
type project struct {
	root string
	log  io.Writer
	// env are additional environment variables of the tools.
	env []string
}

// tool is a program that hack/tool.sh builds from a pinned module.
type tool struct{ module, path string }

var (
	imagesTool = tool{"images", "."}
	helmTool   = tool{"helm4", "helm.sh/helm/v4/cmd/helm"}
	cosignTool = tool{"cosign", "github.com/sigstore/cosign/v3/cmd/cosign"}
	krewTool   = tool{"krew", "sigs.k8s.io/krew/cmd/krew"}
)

func (p *project) run(ctx context.Context, t tool, args ...string) (string, error) {
	script, err := filepath.Abs(filepath.Join(p.root, "hack", "tool.sh"))
	if err != nil {
		return "", err
	}
	path, err := p.output(ctx, script, t.module, t.path)
	if err != nil {
		return "", err
	}
	return p.output(ctx, path, args...)
}

func (p *project) git(ctx context.Context, args ...string) (string, error) {
	return p.output(ctx, "git", append([]string{"-C", p.root}, args...)...)
}

// output returns the output of a program without the last line break. An error contains the text on stderr.
func (p *project) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), p.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}

func (p *project) with(env ...string) *project {
	return &project{root: p.root, log: p.log, env: append(append([]string{}, p.env...), env...)}
}

func (p *project) progress(format string, args ...any) {
	fmt.Fprintf(p.log, "release: "+format+"\n", args...)
}
