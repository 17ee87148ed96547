//go:build unix

package runtimedir

import (
	"io/fs"
	"os"
	"syscall"
)

// hasModes reports whether the mode of a file determines which users may access it.
const hasModes = true

func owned(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Getuid()
}
