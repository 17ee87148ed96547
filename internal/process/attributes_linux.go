package process

import "syscall"

// processAttributes make a child a process group of its own, so that an
// interrupt from the terminal reaches only this process, which stops its
// children in order; and have the kernel kill the child when this process
// dies. Nothing in a control plane's folder is worth a gentler end.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
