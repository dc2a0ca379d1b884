package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// isErrno says if err is a CallError with that errno.
func isErrno(err error, errno syscall.Errno) bool {
	var call *CallError
	return errors.As(err, &call) && call.Errno == errno && errors.Is(err, errno)
}

// TestUnavailable: which failures mean that there is no RDMA here.
func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		call  string
		errno syscall.Errno
		want  bool
		hint  string
	}{
		{callDeviceList, syscall.ENOSYS, true, "modprobe ib_uverbs"},
		{callOpenDevice, syscall.EACCES, true, "no permission for /dev/infiniband/uverbs"},
		{callOpenDevice, syscall.ENOENT, true, "modprobe ib_uverbs"},
		{callOpenDevice, syscall.EMFILE, false, ""},
		{callEventChannel, syscall.ENODEV, true, "modprobe rdma_ucm"},
		{callEventChannel, syscall.EPERM, true, "no permission for /dev/infiniband/rdma_cm"},
		{"ibv_reg_mr", syscall.ENOMEM, false, "memory"},
		{"ibv_reg_mr", syscall.EFAULT, false, "not mapped"},
		{"ibv_modify_qp", syscall.EINVAL, false, "table in package ibv"},
		{"ibv_post_send", syscall.ENOMEM, false, "full"},
		{"ibv_alloc_pd", syscall.ENODEV, false, ""},
		{"ibv_post_send", syscall.EACCES, false, "credentials"},
		{"rdma_bind_addr", syscall.EADDRINUSE, false, "somebody listens"},
	} {
		err := callError(c.call, c.errno)
		if got := errors.Is(err, ErrUnavailable); got != c.want {
			t.Errorf("%v: unavailable %v", err, got)
		}
		if !isErrno(err, c.errno) || !strings.Contains(err.Error(), c.call) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%v: want %s, %v, %q", err, c.call, c.errno, c.hint)
		}
		if c.hint == "" && strings.Contains(err.Error(), "(") {
			t.Errorf("%v has a hint", err)
		}
	}
	if callError("ibv_alloc_pd", 0) != nil {
		t.Error("errno 0 is an error")
	}
}

func TestLoadErrorSaysWhatToInstall(t *testing.T) {
	cause := errors.New("cannot open shared object file")
	err := error(&LoadError{Library: libVerbs, Package: pkgVerbs, Cause: cause})
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("%v wraps neither or one only", err)
	}
	for _, want := range []string{libVerbs, "apt-get install " + pkgVerbs, cause.Error()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	err = &LoadError{Library: libVerbs, Cause: cause}
	if strings.Contains(err.Error(), "install") {
		t.Errorf("%v tells to install what would not help", err)
	}
}
