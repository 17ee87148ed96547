package main

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// programTags leave out gRPC's own pages about traces, for which the linker would keep 10 MB of code. The Makefile has
// them too.
const programTags = "grpcnotrace"

// versionPackage has the variables that `--version` of the programs prints.
const versionPackage = "machinist.dev/machinist/internal/platform/version"

func binaryPath(folder string, platform v1.Platform, p program) string {
	return filepath.Join(folder, platform.OS, platform.Architecture, p.name)
}

// compile writes the programs for a platform below a folder. The variables that it sets are those by which a
// developer's environment would change the result. Each module is built by its own go.mod, as its users do, and not in
// the workspace. The commit is set here, because the Go command would record it in a clone and not in a working tree of
// one.
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

// notices returns the licence notices of what the programs of all modules are linked with.
func notices(ctx context.Context, root string) ([]byte, error) {
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
	tools := filepath.Join(root, "hack", "tools")
	return output(ctx, tools, []string{"GOWORK=off"}, "go", "run", "./notices", "-goos", "linux", "-folders", folders)
}
