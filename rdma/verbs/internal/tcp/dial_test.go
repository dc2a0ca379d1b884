package tcp

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestSetupErrors(t *testing.T) {
	live := context.Background()
	over, cancel := context.WithTimeout(live, 0)
	defer cancel()
	<-over.Done()
	stopped, cancel := context.WithCancel(live)
	cancel()
	for _, c := range []struct {
		name string
		err  error
		want []error
	}{
		{"deadline", setupError(over, "x", syscall.ECONNREFUSED), []error{rdma.ErrDeadline, context.DeadlineExceeded}},
		{"cancelled", setupError(stopped, "x", syscall.ECONNREFUSED), []error{context.Canceled}},
		{"socket", setupError(live, "x", syscall.ECONNREFUSED), []error{rdma.ErrPeerGone, syscall.ECONNREFUSED}},
		{"socket's clock", setupError(live, "x", os.ErrDeadlineExceeded), []error{rdma.ErrDeadline, context.DeadlineExceeded}},
		{"address in use", setupError(live, "x", syscall.EADDRINUSE), []error{rdma.ErrInvalid}},
		{"bad bytes", setupError(live, "x", errExchange), []error{rdma.ErrProtocol}},
		{"no descriptors", setupError(live, "x", syscall.EMFILE), []error{rdma.ErrLimit}},
	} {
		for _, want := range c.want {
			if !errors.Is(c.err, want) {
				t.Errorf("%s: %v, want %v", c.name, c.err, want)
			}
		}
	}
}
