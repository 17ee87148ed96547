package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const pinHeader = `# SHA-256 checksums of official release binaries. The target controlplane downloads these binaries instead of building them.
# The command "go run ./hack/build pin" writes this file. It needs access to the official servers.
`

func (c *controlPlane) pin(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(sources))
	scratch, err := os.MkdirTemp("", "machinist-pin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	text := strings.Builder{}
	text.WriteString(pinHeader)
	for _, name := range names {
		r := c.release(name)
		sum, err := c.downloader.get(ctx, c.screen, r.url, filepath.Join(scratch, name))
		if err != nil {
			return fmt.Errorf("download %s: %w", r.url, err)
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, r.url)
	}
	if err := os.WriteFile(c.downloader.pinFile, []byte(text.String()), 0o644); err != nil {
		return err
	}
	c.screen.print("%s: pinned %d programs of %s for linux/%s", c.downloader.pinFile, len(names), c.version, runtime.GOARCH)
	return nil
}
