package ibv

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
)

// hint says what usually makes call fail with errno, and what to do about it.
func hint(call string, errno syscall.Errno) string {
	if errno == syscall.EACCES && !opens(call) {
		return "the kernel serves only the credentials that opened the device: change user or capabilities before"
	}
	switch call {
	case callDeviceList:
		if absent(errno) {
			return "this kernel shows no RDMA: modprobe ib_uverbs and the module of the NIC"
		}
	case callOpenDevice:
		return hintDevice(errno, "/dev/infiniband/uverbsN", "ib_uverbs")
	case callEventChannel:
		return hintDevice(errno, "/dev/infiniband/rdma_cm", "rdma_ucm")
	case "ibv_reg_mr":
		switch errno {
		case syscall.ENOMEM, syscall.EAGAIN:
			return memlockHint()
		case syscall.EFAULT:
			return "the memory is not mapped, or not writable"
		case syscall.EINVAL:
			return "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE; no length may be 0 or larger than the device's MaxMRSize"
		}
	case "ibv_create_qp", "ibv_create_cq", "ibv_create_srq":
		switch errno {
		case syscall.EINVAL:
			return "more than the device has: see QueryDevice"
		case syscall.ENOMEM:
			return "the device has no more, or " + memlockHint()
		}
	case "ibv_modify_qp":
		switch errno {
		case syscall.EINVAL:
			return "the QP is in another state, or the transition lacks an attribute: see the table in package ibv"
		case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			return "the destination GID is not reachable from the source GID"
		}
	case "ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv":
		switch errno {
		case syscall.ENOMEM:
			return "the queue is full: poll completions first"
		case syscall.EINVAL:
			return fmt.Sprintf("more than %d or than the QP's pieces, more inline than its MaxInline, an opcode that it cannot do, or a state in which nothing is sent", MaxSGE)
		}
	case "rdma_bind_addr":
		switch errno {
		case syscall.EADDRNOTAVAIL, syscall.ENODEV:
			return "no RDMA device has this address"
		case syscall.EADDRINUSE:
			return "somebody listens there"
		}
	case "rdma_resolve_addr":
		switch errno {
		case syscall.EADDRNOTAVAIL, syscall.ENODEV, syscall.ENETUNREACH, syscall.EHOSTUNREACH:
			return "no RDMA device reaches this address"
		}
	}
	return ""
}

// hintDevice is for calls that open a device file of module. The libraries look
// for a file elsewhere when they may not open it, and then say ENOENT.
func hintDevice(errno syscall.Errno, file, module string) string {
	rights := fmt.Sprintf("no permission for %s: join the group that may use it, often rdma", file)
	load := fmt.Sprintf("%s is not there: modprobe %s, and have an RDMA device", file, module)
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return rights
	case syscall.ENOENT, syscall.ENODEV, syscall.ENXIO, syscall.ENOSYS:
		if there, err := filepath.Glob(strings.ReplaceAll(file, "N", "*")); err == nil && len(there) > 0 {
			return rights + "; or " + load
		}
		return load
	}
	return ""
}
