//go:build unix

package runtimedir

import (
	"io/fs"
	"os"
	"syscall"
)

// hasModes reports whether the mode of a file determines which users may access the file.
const hasModes = true

// owned reports whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Getuid()
}
