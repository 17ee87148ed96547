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
	// label is the beginning of each line of progress.
	label string
	// dir is the folder in which the go command runs. It defaults to the current folder.
	dir string
	// If modfile is set, it is used instead of the go.mod of that folder, and the workspace is turned off.
	modfile string
	// packages are the import paths or patterns to build.
	packages []string
	// flags come before the packages.
	flags []string
}

// compile runs `go build -v` and shows its progress. It does not count packages from the build cache. An error ends
// with advice.
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
	output := follow(errs, newProgress(s, c.label, stale, time.Now))
	if err := cmd.Wait(); err != nil {
		return explain(output, fmt.Errorf("go build: %w", err))
	}
	return nil
}

// command returns a call of the go command for the packages. With GOGC=400, the compilers that the go command starts
// need a fifth less processor time.
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

// stalePackages returns the packages that must be compiled. The weight of each package is the number of its Go files
// plus one.
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

// follow reads the output of `go build -v` while the build runs. It counts each line with a package name as
// progress, and returns all other lines.
func follow(from io.Reader, p *progress) string {
	var output strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if p.started(line) || strings.HasPrefix(line, "go: downloading ") {
			continue
		}
		output.WriteString(line + "\n")
	}
	p.end()
	return strings.TrimSpace(output.String())
}
