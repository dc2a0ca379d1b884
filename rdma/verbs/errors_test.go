package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func TestClassify(t *testing.T) {
	call := func(name string, e syscall.Errno) error { return &ibv.CallError{Call: name, Errno: e} }
	for _, c := range []struct {
		err  error
		want error
	}{
		{call("ibv_reg_mr", syscall.ENOMEM), rdma.ErrLimit},
		{call("ibv_modify_qp", syscall.EINVAL), rdma.ErrInvalid},
		{call("rdma_bind_addr", syscall.EADDRINUSE), rdma.ErrInvalid},
		{call("ibv_create_srq", syscall.EOPNOTSUPP), rdma.ErrNotSupported},
		{call("ibv_dealloc_pd", syscall.EBUSY), rdma.ErrBusy},
		{call("ibv_open_device", syscall.ENODEV), rdma.ErrNoDevice},
		{call("rdma_connect", syscall.ETIMEDOUT), rdma.ErrPeerGone},
		{call("ibv_poll_cq", syscall.ESTALE), rdma.ErrProtocol},
		{ibv.ErrClosed, rdma.ErrClosed},
		{os.ErrClosed, rdma.ErrClosed},
		{errors.New("anything"), rdma.ErrProtocol},
		{fmt.Errorf("known: %w", rdma.ErrAccess), rdma.ErrAccess},
	} {
		got := classify(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v became %v, want class %v and the cause", c.err, got, c.want)
		}
		if again := classify(got); again.Error() != got.Error() {
			t.Errorf("classified twice: %v", again)
		}
	}
	if classify(nil) != nil {
		t.Error("nil has a class")
	}
}

func TestRejection(t *testing.T) {
	for status, want := range map[int]error{
		rejectConsumer:             rdma.ErrRejected,
		rejectNoService:            rdma.ErrPeerGone,
		10:                         rdma.ErrPeerGone,
		99:                         rdma.ErrPeerGone,
		-int(syscall.ECONNRESET):   rdma.ErrRejected,
		-int(syscall.ECONNREFUSED): rdma.ErrPeerGone,
	} {
		if err := rejection(status); !errors.Is(err, want) {
			t.Errorf("status %d: %v, want %v", status, err, want)
		}
	}
	for status, want := range map[int]error{
		0:                          rdma.ErrPeerGone,
		-int(syscall.ETIMEDOUT):    rdma.ErrPeerGone,
		-int(syscall.EINVAL):       rdma.ErrPeerGone,
		-int(syscall.EHOSTUNREACH): rdma.ErrPeerGone,
		-int(syscall.ENODEV):       rdma.ErrNoDevice,
		-int(syscall.ENOMEM):       rdma.ErrLimit,
	} {
		if err := eventError("x", status); !errors.Is(err, want) {
			t.Errorf("event status %d: %v, want %v", status, err, want)
		}
	}
}

func TestSetupErrors(t *testing.T) {
	live := context.Background()
	over, cancel := context.WithTimeout(live, 0)
	defer cancel()
	<-over.Done()
	stopped, cancel := context.WithCancel(live)
	cancel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		err  error
		want []error
	}{
		{"deadline", setupError(over, "x", boom), []error{rdma.ErrDeadline, context.DeadlineExceeded}},
		{"cancelled", setupError(stopped, "x", boom), []error{context.Canceled}},
		{"failed", setupError(live, "x", syscall.ENOMEM), []error{rdma.ErrLimit}},
	} {
		for _, want := range c.want {
			if !errors.Is(c.err, want) {
				t.Errorf("%s: %v, want %v", c.name, c.err, want)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		addr string
		want string // empty: ErrInvalid
	}{
		{"10.0.0.1:5", "10.0.0.1:5"}, {":7", "0.0.0.0:7"}, {"[::1]:0", "[::1]:0"}, {"[::ffff:10.0.0.1]:1", "10.0.0.1:1"},
		{"", ""}, {"10.0.0.1", ""}, {"10.0.0.1:99999", ""}, {"10.0.0.1:-1", ""}, {"10.0.0.1:http", ""}, {"a:b:c", ""}, {"no-such-host.invalid:1", ""},
	} {
		got, err := resolve(t.Context(), c.addr)
		switch {
		case c.want == "":
			if !errors.Is(err, rdma.ErrInvalid) {
				t.Errorf("%q: %v, %v; want ErrInvalid", c.addr, got, err)
			}
		case err != nil || len(got) == 0 || got[0].String() != c.want:
			t.Errorf("%q: %v, %v; want %s", c.addr, got, err, c.want)
		}
	}
}
