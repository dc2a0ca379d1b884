package iwarp

import (
	"crypto/tls"
	"errors"
	"io"
)

// idleRead is how much of the first record is read while no buffer of the pool
// is in hand: an idle connection should not keep one.
const idleRead = 1 << 10

// readSecure is the loop of the reader over TLS, until the connection ends.
// Where TCP tells us that a socket is readable, TLS can only be waited for.
func (q *qp) readSecure() error {
	rx := &q.rx
	var first [idleRead]byte
	for {
		var n int
		var err error
		if rx.buf == nil {
			n, err = q.conn.Read(first[:])
			if n > 0 {
				rx.buf = rxPool.Get().(*rxBuffer)
				rx.start, rx.end = 0, copy(rx.buf.b, first[:n])
			}
		} else {
			n, err = q.conn.Read(rx.buf.b[rx.end:])
			rx.end += n
		}
		if n > 0 && !q.round() {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil // the peer said goodbye
			}
			return err
		}
		if rx.start == rx.end && rx.buf != nil {
			q.dropBuffer()
		}
	}
}

// describe names what protects the connection.
func (s *secure) describe() string {
	state := s.ConnectionState()
	return tls.VersionName(state.Version) + " " + tls.CipherSuiteName(state.CipherSuite)
}
