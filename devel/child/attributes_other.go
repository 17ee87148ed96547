//go:build !linux

package child

import "syscall"

// processAttributes returns the default attributes, because only Linux can end a child together with its parent.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// killGroup does nothing, because on this system a child does not have its own process group.
func killGroup(int) error { return nil }
