package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A write is one call that changes something, over all its copies:
//
//	take a slot ──▶ send ──┬─ an answer ───────────────────────────▶ done
//	                ▲      ├─ refused before it was ordered, for now ─┐
//	                │      └─ no answer: it may have been applied ────┤
//	                └───── the same request under the same id ◀───────┘
//
// until the caller's time is over. What then counts is whether any copy may have
// been applied: if so the error is ErrOutcomeUnknown, whatever went wrong last.
type write struct {
	typ   wire.Type // Put, Delete, Update, Batch
	key   []byte    // nil for a batch
	data  []byte    // the value of a put, the encoded parts of a batch
	count int       // of parts
	terms wire.Terms
	op    wire.UpdateOp
	delta int64

	own    *Buffer // data is its memory, where the server may READ it; or nil
	named  bool    // terms.ID holds a slot
	first  int64   // lease clock at the last tick before the first copy was posted; 0: none was
	sent   bool    // a copy may have been applied
	staged *staged

	reply wire.WriteReply
}

// writeKey carries out a write of one key, or of a batch, and counts it.
func (c *peer) writeKey(ctx context.Context, op string, w *write) error {
	c.n.wrote(w.typ)
	begun := time.Now()
	err := c.finishWrite(ctx, op, w)
	if err == nil {
		c.n.writeTimes.observe(time.Since(begun))
	}
	return err
}

// finishWrite is writeKey for a write that has been counted.
func (c *peer) finishWrite(ctx context.Context, op string, w *write) error {
	p := c.begin(ctx)
	server, err := c.do(&p, w)
	if err != nil {
		w.reply = wire.WriteReply{}
	}
	return c.fail(op, w.key, server, err)
}

// do carries out a write. It is the only caller of attempt.
func (c *peer) do(p *patience, w *write) (server string, err error) {
	defer c.finished(w)
	var refused error // why the last copy was not applied, for now
	pause := retryFirst
	for {
		if over := p.over(); over != nil {
			if refused != nil {
				over = because(refused, over)
			}
			return server, c.ended(w, over)
		}
		s, err := c.session(p)
		if err != nil {
			if !w.sent || fatal(err) || errors.Is(err, ErrClosed) {
				return server, c.ended(w, err)
			}
			// What was sent must be cleared up, however long the server is away.
			c.rest(p, retryMost)
			continue
		}
		server = s.addr
		err = s.attempt(p, w)
		s.forget(w)
		switch w.judge(err) {
		case writeDone:
			return server, w.refusal()
		case writeLost:
			c.n.lost.Add(1)
			s.settle(p)
		case writeLater:
			c.n.writeRetry.Add(1)
			if refused = nil; errors.Is(err, ErrOverloaded) {
				refused = plain(err)
			}
			c.rest(p, pause)
			pause = min(2*pause, retryMost)
		default:
			return server, c.ended(w, plain(err))
		}
	}
}

// finished gives back what a write holds when no copy will be sent any more.
func (c *peer) finished(w *write) {
	if w.staged != nil {
		w.staged.drop()
		w.staged = nil
	}
	if w.named {
		c.ids.put(w.terms.ID)
		w.named = false
	}
}

// ended is the error of a write that ends without an answer.
func (c *peer) ended(w *write, err error) error {
	if w.sent && !teeth.Off(teeth.F31UnknownStays) {
		err = because(ErrOutcomeUnknown, err)
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		c.n.unknown.Add(1)
	}
	return err
}

const (
	// A copy that was refused for now is followed by another one after a rest
	// that grows from retryFirst to retryMost, shortened by a random part.
	retryFirst = 2 * time.Millisecond
	retryMost  = 200 * time.Millisecond
	// tooOld is the age from which on a server may have forgotten a request. If
	// it then says that it does not know, it will say so for ever.
	tooOld = 9 * time.Minute
)

// A writeState is what follows from how an attempt went.
type writeState uint8

const (
	writeDone  writeState = iota + 1 // there is an answer
	writeLost                        // send it on the next session
	writeLater                       // send it again after a rest
	writeOver                        // there will be no answer
)

// judge says what follows from an attempt that ended with err, and notes
// whether its copy may have been applied.
func (w *write) judge(err error) writeState {
	if err == nil {
		return writeDone
	}
	if not := (errNotSent{}); errors.As(err, &not) {
		switch {
		case again(err):
			return writeLost
		case w.sent && errors.Is(err, ErrOverloaded): // our own queues
			return writeLater
		}
		return writeOver
	}
	switch {
	case errors.Is(err, ErrOverloaded):
		return writeLater // the server has not ordered this copy
	case errors.Is(err, ErrOutcomeUnknown):
		// The server says so itself: most likely it is about to end, and what
		// it finds when it starts again will tell.
		w.sent = true
		if w.age() >= tooOld {
			return writeOver
		}
		return writeLater
	case errors.Is(err, errLate), errors.Is(err, ErrProtocol),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.sent = true // a reply that makes no sense tells as little as none
		return writeOver
	case errors.Is(err, errLost):
		w.sent = true
		return writeLost
	case errors.Is(err, ErrNotNumber), errors.Is(err, ErrNumberRange):
		// Said in order, and remembered: this is the answer to all copies.
		w.sent = false
	}
	return writeOver
}

// attempt sends one copy on one session and waits for its reply.
func (s *session) attempt(p *patience, w *write) error {
	large, err := s.prepare(p, w)
	if err != nil {
		return err
	}
	if !w.named {
		if w.terms.ID, err = s.c.ids.take(p); err != nil {
			return errNotSent{err}
		}
		w.named = true
	}
	sl, err := s.open(p)
	if err != nil {
		return err
	}
	r, err := sl.call(p, w.encode(sl, large))
	return w.take(&r, err)
}

// prepare checks a write against what the server takes, and stages what does
// not fit into a message; large then is true. Every failure is an errNotSent.
func (s *session) prepare(p *patience, w *write) (large bool, err error) {
	if len(w.key) > int(s.welcome.MaxKey) {
		return false, errNotSent{fmt.Errorf("%w: %d bytes, this server takes up to %d", ErrKeyTooLarge, len(w.key), s.welcome.MaxKey)}
	}
	switch w.typ {
	case wire.TypePut:
		if uint64(len(w.data)) > s.welcome.MaxValue {
			return false, errNotSent{fmt.Errorf("%w: %d bytes, this server takes up to %d", ErrTooLarge, len(w.data), s.welcome.MaxValue)}
		}
		large = !wire.PutFits(s.requestSize(), len(w.key), len(w.data))
	case wire.TypeBatch:
		if err := sameShard(w, int(s.welcome.Shards)); err != nil {
			return false, errNotSent{err}
		}
		large = !wire.BatchFits(s.requestSize(), len(w.data))
	}
	if large {
		err = w.stage(p, s.t, w.data)
	}
	return large, err
}

// encode writes the request into a slot's buffer, which then belongs to the
// post.
func (w *write) encode(sl *slot, large bool) []byte {
	if w.first == 0 {
		w.first, w.terms.ID.AgeMillis = sl.s.c.ticked.Load(), 0
	} else {
		w.terms.ID.AgeMillis = uint32(min((sl.s.c.now()-w.first)/1e6+1, 1<<32-1))
	}
	if teeth.Off(teeth.F31SameID) && w.sent { // the wrong rule: a new request
		w.terms.ID.Seq = sl.s.c.ids.next(w.terms.ID.Slot)
	}
	dst, id := sl.buf[:0], sl.id()
	switch {
	case large:
		sl.staged = w.staged.keep() // until its reply or the end of the QP
		remote := w.staged.buf.remote()
		if w.typ == wire.TypeBatch {
			return wire.AppendBatchLarge(dst, id, wire.BatchLarge{
				ID: w.terms.ID, Count: uint16(w.count), RKey: remote.RKey, Addr: remote.Addr,
				Length: uint32(w.staged.n), Checksum: w.staged.sum,
			})
		}
		sl.s.c.n.largePuts.Add(1)
		return wire.AppendPutLarge(dst, id, wire.PutLarge{
			RKey: remote.RKey, Addr: remote.Addr,
			ValueLen: uint64(w.staged.n), Checksum: w.staged.sum, Key: w.key, Terms: w.terms,
		})
	case w.typ == wire.TypePut:
		return wire.AppendPut(dst, id, wire.Put{Key: w.key, Value: w.data, Terms: w.terms})
	case w.typ == wire.TypeDelete:
		return wire.AppendDelete(dst, id, wire.Delete{Key: w.key, Terms: w.terms})
	case w.typ == wire.TypeUpdate:
		return wire.AppendUpdate(dst, id, wire.Update{Op: w.op, Delta: w.delta, Key: w.key, Terms: w.terms})
	}
	return wire.AppendBatch(dst, id, w.terms.ID, uint16(w.count), w.data)
}

// take reads the reply, if there is one.
func (w *write) take(r *reply, err error) error {
	if err != nil {
		return err
	}
	if w.reply, err = wire.ParseWriteReply(r.body); err != nil {
		return r.malformed(err) // it says that it was done, in words that make no sense
	}
	r.done()
	return nil
}

// age is how long ago the first copy was sent.
func (w *write) age() time.Duration { return time.Duration(w.terms.ID.AgeMillis) * time.Millisecond }

// refusal is the error that an answer stands for: nil if the write was applied.
func (w *write) refusal() error {
	if w.reply.Applied {
		return nil
	}
	if w.typ == wire.TypeBatch {
		return w.batchRefusal()
	}
	return conditionError(w.terms.If, w.reply.Version, 0)
}

// forget drops the remembered places of what was written.
func (s *session) forget(w *write) {
	seed := s.view.Load().Seed
	if w.typ != wire.TypeBatch {
		s.cache.drop(layout.HashKey(seed, w.key))
		return
	}
	for part := range w.parts() {
		s.cache.drop(layout.HashKey(seed, part.Key))
	}
}

// rest waits for a part of d, or until the call's time is over.
func (c *peer) rest(p *patience, d time.Duration) {
	ctx, cancel := p.bounded()
	defer cancel()
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-c.done.Done():
	}
}

// sameShard refuses a batch whose keys are not all of one shard.
func sameShard(w *write, shards int) error {
	var first []byte
	for part := range w.parts() {
		if first == nil {
			first = part.Key
		} else if cluster.ShardOf(part.Key, shards) != cluster.ShardOf(first, shards) {
			return fmt.Errorf("%w: %s and %s", ErrCrossShard, quoteKey(first), quoteKey(part.Key))
		}
	}
	return nil
}
