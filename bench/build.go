package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"machinist.dev/machinist/devel/stack"
)

func build(ctx context.Context, progress io.Writer) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "machinist-bench-bin-"); err != nil {
		return "", fmt.Errorf("create a folder for the programs: %w", err)
	}
	for name, path := range map[string]string{stack.Manager: "cmd/machinist-manager", stack.Provider: "bench/provider",
		"simcloud": "cmd/simcloud"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", filepath.Join(dir, name),
			"machinist.dev/machinist/"+path)
		cmd.Stdout, cmd.Stderr = progress, progress
		if err := cmd.Run(); err != nil {
			_ = os.RemoveAll(dir)
			return "", fmt.Errorf("build %s: %w", path, err)
		}
	}
	fmt.Fprintf(progress, "%s  built the programs\n", time.Now().Format(time.TimeOnly))
	return dir, nil
}
