package iwarp

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// spinPingPong is the floor of spinning: both ends read a socket that does not
// block until something is there.
type spinPingPong struct {
	*pingPong
	raw syscall.RawConn
}

// spinRead fills b from a socket by non-blocking reads alone.
func spinRead(raw syscall.RawConn, b []byte) error {
	var err error
	for len(b) > 0 && err == nil {
		var n int
		ctl := raw.Control(func(fd uintptr) {
			for {
				if n, err = syscall.Read(int(fd), b); err != syscall.EAGAIN && err != syscall.EINTR {
					return
				}
			}
		})
		switch {
		case ctl != nil:
			return ctl
		case err == nil && n == 0:
			return net.ErrClosed
		case err == nil:
			b = b[n:]
		}
	}
	return err
}

// patientRead spins for a while and then sleeps, so that the echo leaves the
// processor alone while the other side of the comparison has its turn.
func patientRead(c net.Conn, raw syscall.RawConn, b []byte) error {
	end := time.Now().Add(100 * time.Microsecond)
	for {
		var n int
		var err error
		ctl := raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), b) })
		switch {
		case ctl != nil:
			return ctl
		case err == nil && n == len(b):
			return nil
		case err == nil:
			return spinRead(raw, b[n:])
		case err != syscall.EAGAIN && err != syscall.EINTR:
			return err
		case time.Now().After(end):
			_, err = io.ReadFull(c, b)
			return err
		}
	}
}

func newSpinPingPong(t testing.TB, request, response int) *spinPingPong {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &spinPingPong{pingPong: &pingPong{out: make([]byte, request), in: make([]byte, response), peerDone: make(chan struct{})}}
	go func() {
		defer close(p.peerDone)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return
		}
		in, out := make([]byte, request), make([]byte, response)
		for patientRead(c, raw, in) == nil {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	p.conn, err = net.Dial("tcp", l.Addr().String())
	check(t, err)
	p.raw, err = p.conn.(*net.TCPConn).SyscallConn()
	check(t, err)
	t.Cleanup(func() { p.conn.Close(); <-p.peerDone; l.Close() })
	return p
}

func (p *spinPingPong) round(t testing.TB) {
	if _, err := p.conn.Write(p.out); err != nil {
		t.Fatal(err)
	}
	check(t, spinRead(p.raw, p.in))
}

// spinRound is a READ whose waiter and whose responder both look.
func (r *benchReader) spinRound(t testing.TB) {
	if _, err := r.e.qp.PostSend(r.wrs[:]); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := r.e.cq.(rdma.Spinner).Spin(r.wcs[:], 50*time.Microsecond)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if r.wcs[0].Status != rdma.StatusSuccess {
				t.Fatal(r.wcs[0].Status)
			}
			return
		}
	}
}

// BenchmarkReadSpinning is a READ against a ping-pong with both ends spinning.
func BenchmarkReadSpinning(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("two ends cannot spin on one processor")
	}
	const n = 104
	r := newReader(b, n, wait.Poll)
	p := newSpinPingPong(b, requestLen(n), responseLen(n))
	p.round(b)
	compare(b, func() { r.spinRound(b) }, func() { p.round(b) })
}
