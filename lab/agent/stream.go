package agent

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// errGone is the answer of a stream whose program or connection has ended.
var errGone = fmt.Errorf("agent: %w", os.ErrProcessDone)

// An inbox is the receiving end of a stream: at most Window bytes, because the
// sender has no credit for more. One goroutine reads, another puts.
type inbox struct {
	taken func(n int) // tells the sender; called without the lock

	mu      sync.Mutex
	more    *sync.Cond
	buf     []byte
	err     error // once set nothing is put any more; readers drain buf first
	discard bool  // the reader has gone away: bytes that come are dropped, with credit
}

func newInbox(taken func(n int)) *inbox {
	in := &inbox{taken: taken}
	in.more = sync.NewCond(&in.mu)
	return in
}

// put stores bytes that came. An error means that the sender ignored the
// window.
func (in *inbox) put(b []byte) error {
	in.mu.Lock()
	if in.discard {
		in.mu.Unlock()
		in.taken(len(b))
		return nil
	}
	defer in.mu.Unlock()
	if len(in.buf)+len(b) > Window {
		return fmt.Errorf("%w: more than the window of %d bytes", ErrProtocol, Window)
	}
	if in.err == nil {
		in.buf = append(in.buf, b...)
		in.more.Broadcast()
	}
	return nil
}

// end makes reads fail with err once everything that came has been read.
func (in *inbox) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
		in.more.Broadcast()
	}
}

// Read waits for bytes. It implements io.Reader.
func (in *inbox) Read(p []byte) (int, error) {
	in.mu.Lock()
	for len(in.buf) == 0 && in.err == nil {
		in.more.Wait()
	}
	n := copy(p, in.buf)
	in.buf = in.buf[n:]
	if len(in.buf) == 0 {
		in.buf = nil
	}
	err := in.err
	in.mu.Unlock()
	if n > 0 {
		in.taken(n)
		return n, nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	return 0, err
}

// Close drops what came and what will come. It implements io.Closer.
func (in *inbox) Close() error {
	in.mu.Lock()
	n := len(in.buf)
	in.buf, in.discard = nil, true
	if in.err == nil {
		in.err = errGone
	}
	in.more.Broadcast()
	in.mu.Unlock()
	if n > 0 {
		in.taken(n)
	}
	return nil
}

// An outbox is the sending end of a stream. It sends no more than the receiver
// has given credit for, and waits for more.
type outbox struct {
	conn    *conn
	program uint32
	stream  byte

	mu     sync.Mutex
	more   *sync.Cond
	credit int
	closed bool
}

func newOutbox(c *conn, program uint32, stream byte) *outbox {
	o := &outbox{conn: c, program: program, stream: stream, credit: Window}
	o.more = sync.NewCond(&o.mu)
	return o
}

// Write sends p, piece by piece as credit allows. It implements io.Writer.
func (o *outbox) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		o.mu.Lock()
		for o.credit == 0 && !o.closed {
			o.more.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return done, io.ErrClosedPipe
		}
		n := min(len(p)-done, o.credit, chunk)
		o.credit -= n
		o.mu.Unlock()
		if err := o.conn.sendData(o.program, o.stream, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// add gives credit for n more bytes.
func (o *outbox) add(n uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if uint64(o.credit)+uint64(n) > Window {
		return fmt.Errorf("%w: credit beyond the window", ErrProtocol)
	}
	o.credit += int(n)
	o.more.Broadcast()
	return nil
}

// shut ends waiting writers; the other side is told nothing.
func (o *outbox) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.more.Broadcast()
}

// Close tells the other side that nothing more will come. It implements
// io.Closer and may be called more than once.
func (o *outbox) Close() error {
	o.mu.Lock()
	was := o.closed
	o.closed = true
	o.more.Broadcast()
	o.mu.Unlock()
	if was {
		return nil
	}
	return o.conn.send(kindEOF, o.program, o.stream)
}
