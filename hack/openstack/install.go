package openstack

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed install.sh
var installScript []byte

func install(ctx context.Context, output io.Writer) (string, error) {
	// The folder name depends on the content of the script, so the script must run from a file.
	dir, err := os.MkdirTemp("", "machinist-openstack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "install.sh")
	if err := os.WriteFile(script, installScript, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(output, &stderr)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("install OpenStack: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	return lines[len(lines)-1], nil
}
