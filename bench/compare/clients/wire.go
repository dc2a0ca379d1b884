package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A wire is one connection to a peer: requests are put together in out and sent
// by one write, answers are read from in. It is not safe for concurrent use.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// answerLimit is how long a peer may take for one answer. Setting it costs a
// microsecond, so it is set anew only when half of it is over.
const answerLimit = 20 * time.Second

// wireBuffer holds 64 answers of 64 B and more.
const wireBuffer = 64 << 10

// ErrProtocol: a peer answered what it should not have.
var ErrProtocol = errors.New("unexpected answer")

func dialWire(ctx context.Context, network, addr string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		raw, err := tcp.SyscallConn()
		if err == nil {
			err = raw.Control(alike)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, wireBuffer)}, nil
}

// send writes what is in out.
func (w *wire) send() error {
	_, err := w.conn.Write(w.out)
	w.out = w.out[:0]
	return err
}

// line reads a line and returns it without its end; it is valid until the next
// read.
func (w *wire) line() ([]byte, error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("%w: %.40q", ErrProtocol, line)
	}
	return line[:len(line)-2], nil
}

// value reads n bytes and the end of the line behind them, into dst from its
// beginning.
func (w *wire) value(dst []byte, n int) ([]byte, error) {
	if cap(dst) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	if _, err := io.ReadFull(w.in, dst); err != nil {
		return nil, err
	}
	end, err := w.line()
	if err == nil && len(end) != 0 {
		err = fmt.Errorf("%w: %.40q behind a value", ErrProtocol, end)
	}
	return dst, err
}

// maxValue bounds what an answer may announce.
const maxValue = 64 << 20

// number reads a decimal number of a line.
func number(text []byte) (int, error) {
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' || n > maxValue {
			return 0, fmt.Errorf("%w: number %.40q", ErrProtocol, text)
		}
		n = 10*n + int(c-'0')
	}
	if len(text) == 0 || n > maxValue {
		return 0, fmt.Errorf("%w: number %.40q", ErrProtocol, text)
	}
	return n, nil
}

// A patience keeps a connection from waiting for ever.
type patience struct {
	until time.Time
	calls int
}

// renew moves the deadline, once in so many calls: reading the clock for each
// would be work that is counted against the peer.
func (p *patience) renew(w *wire) error {
	const every = 64
	if p.calls++; p.calls%every != 1 {
		return nil
	}
	now := time.Now()
	if p.until.Sub(now) > answerLimit/2 {
		return nil
	}
	p.until = now.Add(answerLimit)
	return w.conn.SetDeadline(p.until)
}
