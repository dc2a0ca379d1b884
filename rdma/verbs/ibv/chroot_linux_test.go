package ibv

import (
	"os"
	"os/exec"
	"syscall"
)

// inChroot makes cmd run with root as its root directory, if that is possible:
// as root, or in a user namespace.
func inChroot(cmd *exec.Cmd, root string) bool {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	}
	try := exec.Command("/does-not-exist")
	try.SysProcAttr = cmd.SysProcAttr
	try.Dir = "/"
	return os.IsNotExist(try.Run())
}
