package libvirt

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

//go:embed install.sh
var installScript string

func install(ctx context.Context, output io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-s")
	cmd.Stdin = strings.NewReader(installScript)
	var stderr bytes.Buffer
	cmd.Stderr = io.MultiWriter(output, &stderr)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install libvirt: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
