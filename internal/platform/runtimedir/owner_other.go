//go:build !unix

package runtimedir

import "io/fs"

// hasModes reports whether the modes of files say who may use them. Here, the folder for temporary files belongs to the
// user.
const hasModes = false

func owned(fs.FileInfo) bool { return true }
