package child

import (
	"errors"
	"syscall"
)

// processAttributes returns attributes that give a child its own process group. So an interrupt from the terminal
// reaches only this process, and this process stops its children in order. The attributes also tell the kernel to
// kill the child when this process dies. All children can be killed without a loss of data.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills all processes in the group of a child. An empty group is not an error.
func killGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
