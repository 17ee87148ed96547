package child

import (
	"errors"
	"syscall"
)

// processAttributes make a child a process group of its own, so that an
// interrupt from the terminal reaches only this process, which stops its
// children in order; and have the kernel kill the child when this process
// dies. Nothing in a control plane's folder is worth a gentler end.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills all that are in the group of a child. A group without anybody is killed already.
func killGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
