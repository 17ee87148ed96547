package child

import (
	"errors"
	"syscall"
)

// processAttributes gives a child its own process group. An interrupt from the terminal then reaches only this
// process, which stops its children in order. The kernel kills the child when this process dies. The kill is safe,
// because no child has data that a sudden end can damage.
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
