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

// compilation describes one call of `go build`.
type compilation struct {
	// label begins each line of progress.
	label string
	// dir is the working folder of the go command. Default: the current folder.
	dir string
	// modfile replaces the go.mod of the folder and turns off the workspace, unless it is empty.
	modfile  string
	packages []string
	flags    []string
}

// compile runs `go build -v` and shows its progress. The progress excludes packages that are in the build cache. An
// error includes advice.
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

// command sets GOGC=400: the compilers then need a fifth less processor time.
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

// stalePackages returns the packages to compile. The weight of a package is the number of its Go files plus one.
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

// follow reads the output of a running `go build -v`. The function adds each package name to the progress, and
// returns all other lines.
func follow(from io.Reader, p *progress) string {
	var output strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if p.countPackage(line) || strings.HasPrefix(line, "go: downloading ") {
			continue
		}
		output.WriteString(line + "\n")
	}
	p.end()
	return strings.TrimSpace(output.String())
}
