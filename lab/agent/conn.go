package agent

import (
	"encoding/binary"
	"io"
	"sync"
)

// A conn writes frames whole, one after the other, from any number of
// goroutines.
type conn struct {
	rw io.ReadWriteCloser

	mu  sync.Mutex // held while a frame is written
	buf []byte     // reused
	err error      // the first error of a write: the stream is of no use then
}

func (c *conn) send(k kind, program uint32, body ...byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = appendFrame(c.buf[:0], k, program, body...)
	return c.flushLocked()
}

// sendData is send for Data without joining stream and bytes first.
func (c *conn) sendData(program uint32, stream byte, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = binary.BigEndian.AppendUint32(c.buf[:0], uint32(len(b)+1))
	c.buf = append(c.buf, byte(kindData))
	c.buf = binary.BigEndian.AppendUint32(c.buf, program)
	c.buf = append(c.buf, stream)
	c.buf = append(c.buf, b...)
	return c.flushLocked()
}

func (c *conn) flushLocked() error {
	if c.err == nil {
		if _, c.err = c.rw.Write(c.buf); c.err != nil {
			c.rw.Close() // the reader must not wait for bytes that will not come
		}
	}
	return c.err
}

// credit tells the other side that n bytes of a stream were taken.
func (c *conn) credit(program uint32, stream byte, n int) {
	body := binary.BigEndian.AppendUint32([]byte{stream}, uint32(n))
	_ = c.send(kindCredit, program, body...) // a broken connection shows at the reader
}
