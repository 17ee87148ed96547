//go:build !unix

package runtimedir

import "io/fs"

// hasModes reports whether the mode of a file determines which users may access it. On this operating system, the mode
// does not matter. The folder for temporary files is protected, because it belongs to the user.
const hasModes = false

func owned(fs.FileInfo) bool { return true }
