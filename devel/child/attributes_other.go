//go:build !linux

package child

import "syscall"

// processAttributes returns the defaults of the system. Only Linux can end a child together with its parent.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// killGroup does nothing, because a child has no process group of its own.
func killGroup(int) error { return nil }
