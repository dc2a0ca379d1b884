package servers

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// congestionFile is the default congestion control of new TCP sockets; each network
// namespace has its own.
const congestionFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// OwnNetwork has a command run in a network namespace of its own, which is empty:
// the command calls SetUpNetwork first. Without root it takes a user namespace too,
// in which it stays who it is, and may do with its network what it likes; it fails
// for the user whose number stands for unknown ones there, because the fabric shm
// refuses these.
func OwnNetwork(cmd *exec.Cmd) error {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		if unknown, err := os.ReadFile("/proc/sys/kernel/overflowuid"); err == nil && strings.TrimSpace(string(unknown)) == strconv.Itoa(uid) {
			return fmt.Errorf("user %d is an unknown one in a user namespace", uid)
		}
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	cmd.SysProcAttr = attr
	return nil
}

// Network is the name of this process's network namespace.
func Network() (string, error) { return os.Readlink("/proc/self/ns/net") }

// SetUpNetwork brings up the loopback interface of this process's network, and makes
// a congestion control the default of its TCP sockets. It refuses to do so in the
// network that has the name outside, that of the process which started this one by
// OwnNetwork: it may be the machine's.
func SetUpNetwork(outside, congestion string) error {
	own, err := Network()
	if err != nil {
		return err
	}
	if own == outside || !strings.HasPrefix(outside, "net:[") {
		return fmt.Errorf("this process has no network of its own: it is in %s, and was started from %q", own, outside)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	return os.WriteFile(congestionFile, []byte(congestion), 0)
}

// loopbackUp sets the flag that ip link set lo up sets.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return err
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
