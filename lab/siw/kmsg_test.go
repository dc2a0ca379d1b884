package siw_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A kernelLog reads what the kernel says from a moment on (/dev/kmsg; the
// kernel's Documentation/ABI/testing/dev-kmsg).
type kernelLog struct {
	t testing.TB
	f *os.File
}

func newKernelLog(t testing.TB) *kernelLog {
	t.Helper()
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		t.Cleanup(func() { _ = f.Close() })
		_, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &kernelLog{t: t, f: f}
}

// count returns how many new messages contain text.
func (k *kernelLog) count(text string) int {
	k.t.Helper()
	conn, err := k.f.SyscallConn()
	if err != nil {
		k.t.Fatal(err)
	}
	n := 0
	b := make([]byte, 8192) // a read brings one message, which is shorter
	err = conn.Control(func(fd uintptr) {
		for {
			size, rerr := syscall.Read(int(fd), b)
			switch {
			case errors.Is(rerr, syscall.EAGAIN):
				return
			case errors.Is(rerr, syscall.EPIPE): // some were overwritten
			case rerr != nil:
				k.t.Errorf("/dev/kmsg: %v", rerr)
				return
			case strings.Contains(string(b[:size]), text):
				n++
			}
		}
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}
