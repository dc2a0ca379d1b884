package lab

import "syscall"

// dieWithParent makes the kernel kill a child when the thread that started it
// ends (prctl(2), PR_SET_PDEATHSIG). In a process group of its own the child
// gets no Ctrl-C from the terminal either: the owner of the guest ends it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
