//go:build unix

package runtimedir

import (
	"io/fs"
	"os"
	"syscall"
)

// hasModes reports whether the modes of files say who may use them.
const hasModes = true

// owned reports whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Getuid()
}
