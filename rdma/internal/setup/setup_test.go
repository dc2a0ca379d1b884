package setup

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestQueue(t *testing.T) {
	var q Queue[int]
	q.Init("test", 2)
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5}
	for i := range 3 {
		if err := q.Put(i); (err == nil) != (i < 2) || i == 2 && err != ErrFull {
			t.Errorf("Put of %d into a queue for 2: %v", i, err)
		}
	}
	if r, err := q.Get(t.Context(), at); r != 0 || err != nil || q.Len() != 1 {
		t.Errorf("Get: %d, %v, and %d are left", r, err, q.Len())
	}
	if !q.Close() || q.Close() {
		t.Error("Close is true once")
	}
	select {
	case <-q.Closed():
	default:
		t.Error("Closed is open")
	}
	if err := q.Put(3); err != ErrClosed {
		t.Errorf("Put after Close: %v", err)
	}
	var op *rdma.OpError
	if _, err := q.Get(t.Context(), at); !errors.As(err, &op) || !errors.Is(err, rdma.ErrClosed) || op.Op != "accept" || op.Fabric != "test" || op.Addr != at.String() {
		t.Errorf("Get after Close: %v", err)
	}
	if rest := q.Rest(); len(rest) != 1 || rest[0] != 1 {
		t.Errorf("nobody took %v", rest)
	}
}

// Get waits, for a request, for the end of the queue and for that of its context.
func TestQueueWaits(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(q *Queue[int], cancel func())
		want error
	}{
		"put":    {func(q *Queue[int], _ func()) { _ = q.Put(7) }, nil},
		"close":  {func(q *Queue[int], _ func()) { q.Close() }, rdma.ErrClosed},
		"cancel": {func(_ *Queue[int], cancel func()) { cancel() }, context.Canceled},
	} {
		var q Queue[int]
		q.Init("test", 1)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := q.Get(ctx, &net.TCPAddr{})
			got <- err
		}()
		c.end(&q, cancel)
		if err := <-got; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		cancel()
	}
}

func TestExpireAfter(t *testing.T) {
	var forgotten, answered Life
	expired := make(chan bool, 2)
	if _, err := answered.Answer(); err != nil {
		t.Fatal(err)
	}
	answered.ExpireAfter(0, func() { expired <- false })
	forgotten.ExpireAfter(time.Millisecond, func() { expired <- true })
	if !<-expired {
		t.Error("a request that was answered expires")
	}
}

func TestError(t *testing.T) {
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
		{"deadline", Error(over, "x", syscall.ECONNRESET), []error{rdma.ErrDeadline, context.DeadlineExceeded}},
		{"cancelled", Error(stopped, "x", syscall.ECONNRESET), []error{context.Canceled}},
		{"bad bytes", Error(over, "x", rdma.ErrProtocol), []error{rdma.ErrProtocol}},
		{"rejected", Error(over, "x", rdma.ErrRejected), []error{rdma.ErrRejected}},
		{"socket's clock", Error(live, "x", os.ErrDeadlineExceeded), []error{rdma.ErrDeadline, context.DeadlineExceeded}},
		{"socket", Error(live, "x", syscall.ECONNRESET), []error{rdma.ErrPeerGone, syscall.ECONNRESET}},
	} {
		for _, want := range c.want {
			if !errors.Is(c.err, want) {
				t.Errorf("%s: %v, want %v", c.name, c.err, want)
			}
		}
	}
	if errors.Is(CtxError(stopped), rdma.ErrDeadline) || CtxError(live) != nil {
		t.Error("CtxError marks what is no deadline")
	}
}

func TestInterruptible(t *testing.T) {
	for _, cancelled := range []bool{true, false} {
		a, b := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		stop := Interruptible(ctx, a)
		go func() {
			if cancelled {
				cancel()
			} else {
				_, _ = b.Write([]byte{1})
			}
		}()
		n, err := a.Read(make([]byte, 1))
		if cancelled == (n == 1) || cancelled != errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cancelled %v: read %d, %v", cancelled, n, err)
		}
		if stop() == cancelled {
			t.Errorf("cancelled %v, and stop says otherwise", cancelled)
		}
		cancel()
		_, _ = a.Close(), b.Close()
	}
	// The deadline of a context is the connection's.
	a, b := net.Pipe()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	defer Interruptible(ctx, a)()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
}
