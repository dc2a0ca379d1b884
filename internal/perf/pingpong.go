package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// A PingPong is the floor of everything that goes through a socket: a request and an
// answer of so many bytes between two Go programs, with nothing parsed, hashed or
// checked. Network is tcp or unix. With Spin an end asks its socket again and again
// instead of sleeping; both ends should do the same. Control, if not nil, gets the
// descriptor of each end's connection before the first message.
type PingPong struct {
	Network         string
	Spin            bool
	Request, Answer int // bytes
	Control         func(fd uintptr)
}

// Serve answers one connection of l until the other end closes it, which is no error.
func (p PingPong) Serve(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	e, err := p.socket(conn)
	if err != nil {
		return err
	}
	in, out := make([]byte, p.Request), make([]byte, p.Answer)
	for {
		if err := e.receive(in); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

// Dial connects to the address of a Serve. The caller closes the Pinger.
func (p PingPong) Dial(ctx context.Context, addr string) (*Pinger, error) {
	conn, err := new(net.Dialer).DialContext(ctx, p.Network, addr)
	if err != nil {
		return nil, err
	}
	e, err := p.socket(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Pinger{socket: e, out: make([]byte, p.Request), in: make([]byte, p.Answer)}, nil
}

// A Pinger is the asking end. One goroutine at a time calls Round; Close may be called
// at any time, and ends it.
type Pinger struct {
	socket  *socket
	out, in []byte
}

// Round sends a request and waits for its answer.
func (p *Pinger) Round() error {
	if _, err := p.socket.conn.Write(p.out); err != nil {
		return err
	}
	return p.socket.receive(p.in)
}

// Close closes the connection.
func (p *Pinger) Close() error { return p.socket.conn.Close() }

// A socket is one end.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn // nil: it sleeps
}

// socket wraps a connection; with Spin it reads the descriptor without waiting.
func (p PingPong) socket(conn net.Conn) (*socket, error) {
	s := &socket{conn: conn}
	if !p.Spin && p.Control == nil {
		return s, nil
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no descriptor to spin on or to set", conn)
	}
	raw, err := sc.SyscallConn()
	if err == nil && p.Control != nil {
		err = raw.Control(p.Control)
	}
	if p.Spin {
		s.raw = raw
	}
	return s, err
}

// receive fills b.
func (s *socket) receive(b []byte) error {
	if s.raw == nil {
		_, err := io.ReadFull(s.conn, b)
		return err
	}
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := syscall.Read(int(fd), b)
			switch {
			case err == syscall.EAGAIN || err == syscall.EINTR:
			case err != nil:
				failed = err
				return true
			case n == 0:
				failed = io.EOF
				return true
			default:
				b = b[n:]
			}
		}
		return true
	})
	return errors.Join(err, failed)
}
