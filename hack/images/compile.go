package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

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
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", programTags, "-ldflags", flags, "-o",
			into + "/"}, packages[module]...)
		if _, err := output(ctx, filepath.Join(b.root, module), env, "go", args...); err != nil {
			return fmt.Errorf("compile for %s: %w", platform, err)
		}
	}
	return nil
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
