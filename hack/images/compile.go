package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// programTags exclude gRPC's trace pages, which would add 10 MB of code to each program.
const programTags = "grpcnotrace"

// versionPackage contains the variables for the output of --version.
const versionPackage = "machinist.dev/machinist/internal/platform/version"

func binaryPath(folder string, platform v1.Platform, p program) string {
	name := p.name
	if platform.OS == "windows" {
		name += ".exe"
	}
	return filepath.Join(folder, platform.OS, platform.Architecture, name)
}

// compile builds the programs for a platform. The method overrides the environment variables that could change the
// result. The method uses the go.mod of each module instead of the workspace, as users do. The method sets the
// commit, because the go command does not record it in linked working trees.
func (b *build) compile(ctx context.Context, platform v1.Platform, folder string) error {
	into, err := filepath.Abs(filepath.Join(folder, platform.OS, platform.Architecture))
	if err != nil {
		return err
	}
	env := []string{"CGO_ENABLED=0", "GOOS=" + platform.OS, "GOARCH=" + platform.Architecture, "GOAMD64=v1",
		"GOARM64=v8.0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GODEBUG="}
	packages := map[string][]string{}
	var modules []string
	for _, p := range b.programs {
		relative, err := filepath.Rel(p.module, p.folder)
		if err != nil {
			return err
		}
		if packages[p.module] == nil {
			modules = append(modules, p.module)
		}
		packages[p.module] = append(packages[p.module], "./"+filepath.ToSlash(relative))
	}
	flags := fmt.Sprintf("-s -w -X %[1]s.release=%[2]s -X %[1]s.commit=%[3]s", versionPackage, b.source.version,
		b.source.stamp())
	for _, module := range modules {
		args := append([]string{"build", "-v", "-trimpath", "-buildvcs=false", "-tags", programTags, "-ldflags", flags, "-o",
			into + "/"}, packages[module]...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = filepath.Join(b.root, module), append(os.Environ(), env...)
		compiler := &compilerOutput{log: b.log, nextReport: time.Now().Add(reportInterval)}
		cmd.Stderr = compiler
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("compile for %s: %w: %s", platform, err, strings.TrimSpace(compiler.errors.String()))
		}
	}
	return nil
}

// reportInterval is the minimum time between two reports about the progress of the compiler.
const reportInterval = 10 * time.Second

// compilerOutput receives the output of `go build -v`: a line for each package that has been compiled, and errors. The
// type logs the number of packages.
type compilerOutput struct {
	log        io.Writer
	compiled   int
	nextReport time.Time
	rest       []byte // an incomplete line
	errors     strings.Builder
}

// Write implements io.Writer.
func (o *compilerOutput) Write(text []byte) (int, error) {
	o.rest = append(o.rest, text...)
	for {
		line, rest, complete := bytes.Cut(o.rest, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		o.rest = rest
		if bytes.ContainsAny(line, " \t") { // Import paths contain no spaces.
			fmt.Fprintf(&o.errors, "%s\n", line)
			continue
		}
		o.compiled++
		if now := time.Now(); now.After(o.nextReport) {
			o.nextReport = now.Add(reportInterval)
			fmt.Fprintf(o.log, "images: compiled %d packages\n", o.compiled)
		}
	}
}

// notices returns the license notices of all linked modules.
func notices(ctx context.Context, root string, platforms []v1.Platform) ([]byte, error) {
	modules, err := filepath.Glob(filepath.Join(root, "providers", "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	folders := "../.."
	for _, path := range modules {
		relative, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		folders += ",../../" + filepath.ToSlash(relative)
	}
	var systems []string
	for _, p := range platforms {
		if !slices.Contains(systems, p.OS) {
			systems = append(systems, p.OS)
		}
	}
	tools := filepath.Join(root, "hack", "tools")
	return output(ctx, tools, []string{"GOWORK=off"}, "go", "run", "./notices", "-goos", strings.Join(systems, ","),
		"-folders", folders)
}
