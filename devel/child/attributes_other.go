//go:build !linux

package child

import "syscall"

// processAttributes are the system's defaults: only Linux ties the life of a
// child to its parent's.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// killGroup does nothing: a child has no group of its own.
func killGroup(int) error { return nil }
