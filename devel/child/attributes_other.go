//go:build !linux

package child

import "syscall"

// processAttributes returns the default attributes. Only Linux has an attribute that ends a child together with its
// parent.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// killGroup does nothing, because children have no process group on this system.
func killGroup(int) error { return nil }
