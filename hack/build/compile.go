package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A compilation is one call of `go build`.
type compilation struct {
	// label names what is built, in front of each line of progress.
	label string
	// dir is the folder in which the go command runs: by default the current one.
	dir string
	// modfile replaces the go.mod of that folder, outside of the workspace, if it is not empty.
	modfile string
	// packages are the import paths or patterns to build.
	packages []string
	// flags come before the packages.
	flags []string
}

// compile runs `go build -v` and shows its progress. Packages that the build cache has are not counted. An error ends
// with what to do about it.
func compile(ctx context.Context, s *screen, c compilation) error {
	stale, err := stalePackages(ctx, c)
	if err != nil {
		return explain(err.Error(), err)
	}
	cmd := c.command(ctx, append([]string{"build", "-v"}, c.flags...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the go command: %w", err)
	}
	said := follow(errs, newProgress(s, c.label, stale, time.Now))
	if err := cmd.Wait(); err != nil {
		return explain(said, fmt.Errorf("go build: %w", err))
	}
	return nil
}

// command is a call of the go command for the packages. Its compilers collect garbage seldom, which takes a fifth less
// of the processor.
func (c compilation) command(ctx context.Context, args ...string) *exec.Cmd {
	if c.modfile != "" {
		args = append(args, "-modfile="+c.modfile)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, c.packages...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = c.dir
	cmd.Env = os.Environ()
	if c.modfile != "" {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC=400")
	}
	return cmd
}

// stalePackages returns the packages that have to be compiled, with the number of Go files of each as its weight.
func stalePackages(ctx context.Context, c compilation) (map[string]int, error) {
	const format = `{{if .Stale}}{{.ImportPath}} {{len .GoFiles}}{{end}}`
	cmd := c.command(ctx, "list", "-deps", "-f", format)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("run the go command: %w", err)
	}
	stale := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var path string
		var files int
		if n, _ := fmt.Sscan(line, &path, &files); n == 2 {
			stale[path] = 1 + files
		}
	}
	return stale, nil
}

// follow reads what `go build -v` prints. The name of a package is progress, and everything else is returned.
func follow(from io.Reader, p *progress) string {
	var said strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if p.started(line) || strings.HasPrefix(line, "go: downloading ") {
			continue
		}
		said.WriteString(line + "\n")
	}
	p.end()
	return strings.TrimSpace(said.String())
}
