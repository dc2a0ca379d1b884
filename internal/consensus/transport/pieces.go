package transport

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A pieceReader READs a snapshot's data. While one piece is read by who takes the snapshot, the next one comes, and no more: there are two sinks.
//
//	fetch ◀── free ◀── Read has read all of it
//	  └─ READ ─▶ sink ──▶ come ──▶ Read
//
// The end is used by the goroutine that fetches alone, from the first Read until end has returned.
type pieceReader struct {
	ctx  context.Context
	stop context.CancelFunc
	e    *end
	o    offer
	rate int64
	pace pace

	free  chan int   // sinks that nobody needs
	come  chan piece // in their order; closed behind the last one, and when it has ended
	begun bool

	now  piece // that is read
	left []byte
	err  error // that Read has returned
}

// A piece is one that has come, or why none has.
type piece struct {
	sink int
	data []byte // in the sink
	last bool
	err  error
}

func newPieceReader(ctx context.Context, e *end, o offer, rate int64) *pieceReader {
	r := &pieceReader{e: e, o: o, rate: rate, pace: pace{paceFirst}, free: make(chan int, sinks), come: make(chan piece, sinks+1), now: piece{sink: -1}}
	r.ctx, r.stop = context.WithCancel(ctx)
	for i := range sinks {
		r.free <- i
	}
	return r
}

// Read implements io.Reader. Nothing is fetched before the first one: who waits for a place takes no more than the offer.
func (r *pieceReader) Read(p []byte) (int, error) {
	if !r.begun && r.err == nil {
		r.begun = true
		go r.fetchAll()
	}
	for len(r.left) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.left) == 0 {
		return 0, r.err
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// next gives the sink of the piece that was read back, and takes the next one.
func (r *pieceReader) next() error {
	if r.now.last {
		return io.EOF
	}
	if r.now.sink >= 0 {
		r.free <- r.now.sink
	}
	r.now = <-r.come
	r.left = r.now.data
	return r.now.err
}

// end ends the fetching, and returns when the end is not used any more. Nobody reads from then on.
func (r *pieceReader) end() {
	r.stop()
	for r.begun {
		if _, more := <-r.come; !more {
			return
		}
	}
}

// fetchAll fetches one piece after the other, as sinks are free.
func (r *pieceReader) fetchAll() {
	defer close(r.come)
	began, taken := time.Now(), int64(0) // bytes
	for n := uint32(0); ; n++ {
		p, err := r.due(time.Duration(float64(taken)/float64(r.rate)*float64(time.Second)) - time.Since(began))
		if err == nil {
			err = r.fetch(n, &p)
		}
		if p.err = err; err != nil {
			p.data = nil
		}
		r.come <- p // there is room: for each sink, and for an error
		if err != nil || p.last {
			return
		}
		taken += int64(len(p.data))
	}
}

// due waits for a free sink, and until it is time for the next piece.
func (r *pieceReader) due(ahead time.Duration) (p piece, err error) {
	if ahead > 0 {
		select {
		case <-time.After(ahead):
		case <-r.ctx.Done():
			return p, r.ctx.Err()
		}
	}
	select {
	case p.sink = <-r.free:
		return p, nil
	case <-r.ctx.Done():
		return p, r.ctx.Err()
	}
}

// fetch READs piece n into a sink.
func (r *pieceReader) fetch(n uint32, p *piece) error {
	e := r.e
	var m message
	var slot int
	if err := r.pace.wait(r.ctx, func(ctx context.Context) (err error) {
		m, slot, err = e.hear(ctx)
		return err
	}); err != nil {
		return err
	}
	if m.kind != kindPiece || m.value > pieceBytes || !m.last && m.value == 0 {
		return fmt.Errorf("%w: a message of kind %d, value %d", errProtocol, m.kind, m.value)
	}
	if err := e.recv(slot); err != nil {
		return err
	}
	off := p.sink * pieceBytes
	p.last, p.data = m.last, e.rest()[off:off+int(m.value)]
	if m.value > 0 {
		remote := r.o.remote
		remote.Addr += uint64(n%r.o.pieces) * pieceBytes
		if err := e.read(remote, off, m.value); err != nil {
			return err
		}
		if err := r.pace.wait(r.ctx, e.hasRead); err != nil {
			return err
		}
	}
	if err := r.pace.came(int64(m.value)); err != nil && !m.last {
		return err
	}
	return r.pace.wait(r.ctx, func(ctx context.Context) error { return e.say(ctx, message{kind: kindTaken}) })
}

// read READs n bytes of the other node into the memory behind the slots, from an offset on.
func (e *end) read(from rdma.RemoteAddr, off int, n uint32) error {
	_, err := e.qp.PostSend([]rdma.SendWR{{
		ID: idRead, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
		SGL: []rdma.SGE{{MR: e.mr, Off: uint64(e.restOff() + off), Len: n}}, Remote: from,
	}})
	return err
}

// hasRead waits until the bytes of the last read are there.
func (e *end) hasRead(ctx context.Context) error {
	for {
		for i, wc := range e.done {
			if wc.ID&idKind == idRead {
				e.done = append(e.done[:i], e.done[i+1:]...)
				return nil
			}
		}
		if err := e.poll(ctx); err != nil {
			return err
		}
	}
}
