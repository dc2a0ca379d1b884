// Package write carries out writes: puts, deletes, increments, touches and batches, each of
// which takes effect once, however often it has to be sent.
//
//	terms.go   a Write, checked, and what its answer means
//	write.go   Do: to the server of its key, over sessions and refusals, to an answer or the end
//	           of its time
//	stage.go   the value of a large put waits in registered memory for the server's READ
//	replicas.go  one write at several nodes, of shards that have replicas
//	many.go    many puts under way at a time, from one goroutine
//	async.go   puts that nobody waits for yet: the window, the order of each key, Flush
//	lane.go    the puts of that window which go to one node, posted and finished in bursts
package write

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Write is one call that changes something, over all its copies:
//
//	take a slot ──▶ send ──┬─ an answer ───────────────────────────▶ done
//	                ▲      ├─ refused before it was ordered, for now ─┐
//	                │      └─ no answer: it may have been applied ────┤
//	                └───── the same request under the same id ◀───────┘
//
// until the caller's time is over. What then counts is whether any copy may have
// been applied: if so the error is ErrOutcomeUnknown, whatever went wrong last.
type Write struct {
	Type  wire.Type // Put, Delete, Update, Batch
	Key   []byte    // nil for a batch
	Data  []byte    // the value of a put, the encoded parts of a batch
	count int       // of parts
	Terms wire.Terms
	op    wire.UpdateOp
	delta int64

	own    *device.Owned // data is its memory, where the server may READ it; or nil
	named  bool          // terms.ID holds a slot
	names  *peer.IDs     // that it is of
	first  int64         // lease clock at the last tick before the first copy was posted; 0: none was
	sent   bool          // a copy may have been applied
	staged *staged

	patience time.Duration // of a try at a replica (route.Reroute.PatienceAt)
	counted  bool

	Reply wire.WriteReply
}

// Do carries out a write: at the peer of its shard's node, and at another one
// when told so. Each node that it is taken to knows it by a name of its own: what may have
// taken effect under another one is never sent again. Replicas know it by one name
// (replicas.go).
func Do(ctx context.Context, f *route.Router, op string, w *Write) error {
	p, err := f.Only(), error(nil)
	if p == nil {
		p, err = f.Owner(w.anyKey())
	}
	if err == nil {
		err = writeAt(ctx, p, op, w)
	}
	if err == nil {
		return nil
	}
	return elsewhere(ctx, f, op, w, p, err)
}

// elsewhere carries out a write that has failed with err at a peer, nil if it came to none, where the map
// leads to now, if that may help: what it returns is the write's outcome.
func elsewhere(ctx context.Context, f *route.Router, op string, w *Write, at *peer.Peer, err error) error {
	var way route.Reroute
	defer way.End()
	last := at // that has had a copy, or was to have one
	for {
		var next context.Context
		if !w.isForgotten(err) {
			next = f.Again(ctx, &way, at, w.anyKey(), err)
		}
		if next == nil {
			if err = way.Because(err); last != nil {
				err = w.given(last, err)
			}
			return f.Fail(op, w.Key, err)
		}
		ctx = next
		if !w.named { // the next node knows it by another name
			w.sent = false
		}
		w.refused()
		if at, err = f.Owner(w.anyKey()); err == nil {
			last, w.patience = at, way.PatienceAt(at)
			err = writeAt(ctx, at, op, w)
		}
		if err == nil {
			return nil
		}
	}
}

// refused notes that a try has failed. If no copy has been applied, or can be, the next one is the first: the age of the write counts from that.
func (w *Write) refused() {
	if !w.sent {
		w.first = 0
	}
}

// anyKey is the key of the write, or of the first part of a batch: its keys are of one
// shard, or it is refused.
func (w *Write) anyKey() []byte {
	if w.Type == wire.TypeBatch {
		for part := range w.parts() {
			return part.Key
		}
	}
	return w.Key
}

// writeAt carries out a write of one key, or of a batch, and counts it.
func writeAt(ctx context.Context, c *peer.Peer, op string, w *Write) error {
	if !w.counted || !c.Led() {
		w.counted = true
		c.Counts().Wrote(w.Type)
	}
	begun := time.Now()
	err := finishWrite(ctx, c, op, w)
	if err == nil {
		c.Counts().WriteTimes.Observe(time.Since(begun))
	}
	return err
}

// finishWrite is writeAt for a write that has been counted.
func finishWrite(ctx context.Context, c *peer.Peer, op string, w *Write) error {
	p := c.Begin(ctx)
	var server string
	var err error
	led := c.Led()
	if led {
		server, err = tryLed(c, &p, w)
	} else {
		server, err = doWrite(c, &p, w)
	}
	if err != nil {
		w.Reply = wire.WriteReply{}
	}
	if led {
		return c.Replica.Fail(op, w.Key, server, err)
	}
	return c.Fail(op, w.Key, server, err)
}

// doWrite carries out a write at a node that has its shard alone.
func doWrite(c *peer.Peer, p *base.Limit, w *Write) (server string, err error) {
	defer finished(w)
	var refused error // why the last copy was not applied, for now
	pause := base.RetryFirst
	for {
		if over := p.Over(); over != nil {
			if refused != nil {
				over = base.Because(refused, over)
			}
			return server, ended(c, w, over)
		}
		s, err := c.Session(p)
		if err != nil {
			if !w.sent || base.Fatal(err) || errors.Is(err, base.ErrClosed) {
				return server, ended(c, w, err)
			}
			// What was sent must be cleared up, however long the server is away.
			p.Rest(base.RetryMost)
			continue
		}
		server = s.Addr
		err = attempt(c, p, s, w)
		forget(s, w)
		switch w.judge(err) {
		case writeDone:
			return server, w.refusal()
		case writeLost:
			c.Counts().RetryLost.Add(1)
			c.Settle(p, s)
		case writeLater:
			c.Counts().RetryWrite.Add(1)
			if refused = nil; errors.Is(err, base.ErrOverloaded) {
				refused = base.Plain(err)
			}
			p.Rest(pause)
			pause = min(2*pause, base.RetryMost)
		default:
			return server, ended(c, w, beforeThat(base.Plain(err), refused))
		}
	}
}

// beforeThat is the error of a copy that no answer came to in time, with why the copy before it was refused: that
// is most likely what this one waited for, too. What refused wraps is not what has happened to the write, so it is
// there as text alone.
func beforeThat(err, refused error) error {
	if refused == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w; an earlier copy was refused: %v", err, refused)
}

// finished gives back what a write holds when no copy will be sent any more.
func finished(w *Write) {
	if w.staged != nil {
		w.staged.Drop()
		w.staged = nil
	}
	if w.named {
		w.names.Put(w.Terms.ID)
		w.named = false
	}
}

// ended is the error of a write that ends without an answer.
func ended(c *peer.Peer, w *Write, err error) error {
	if w.sent {
		err = base.Because(base.ErrOutcomeUnknown, err)
	}
	if errors.Is(err, base.ErrOutcomeUnknown) {
		c.Counts().OutcomeUnknown.Add(1)
	}
	return err
}

// tooOld is the age from which on a server may have forgotten a request. If
// it then says that it does not know, it will say so for ever.
const tooOld = 9 * time.Minute

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
func (w *Write) judge(err error) writeState {
	if err == nil {
		return writeDone
	}
	if base.IsNotSent(err) {
		switch {
		case base.Again(err):
			return writeLost
		case w.sent && errors.Is(err, base.ErrOverloaded): // our own queues
			return writeLater
		}
		return writeOver
	}
	switch {
	case errors.Is(err, base.ErrOverloaded):
		return writeLater // the server has not ordered this copy
	case errors.Is(err, base.ErrOutcomeUnknown):
		// The server says so itself: most likely it is about to end, and what
		// it finds when it starts again will tell.
		w.sent = true
		if w.age() >= tooOld {
			return writeOver
		}
		return writeLater
	case errors.Is(err, base.ErrLate), errors.Is(err, base.ErrProtocol),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.sent = true // a reply that makes no sense tells as little as none
		return writeOver
	case errors.Is(err, base.ErrLost):
		w.sent = true
		return writeLost
	case errors.Is(err, base.ErrNotNumber), errors.Is(err, base.ErrNumberRange):
		// Said in order, and remembered: this is the answer to all copies.
		w.sent = false
	}
	return writeOver
}

// attempt sends one copy on one session and waits for its reply.
func attempt(c *peer.Peer, p *base.Limit, s *session.Session, w *Write) error {
	large, err := prepare(s, p, w)
	if err != nil {
		return err
	}
	if !w.named {
		w.names = c.Names(w.anyKey())
		if w.Terms.ID, err = w.names.Take(p); err != nil {
			return base.NotSent(err)
		}
		w.named = true
	}
	sl, err := s.Open(p)
	if err != nil {
		return err
	}
	r, err := sl.Call(p, w.encode(s, sl, large))
	return w.take(&r, err)
}

// prepare checks a write against what the server takes, and stages what does
// not fit into a message; large then is true. Every failure is a base.NotSent.
func prepare(s *session.Session, p *base.Limit, w *Write) (large bool, err error) {
	if len(w.Key) > int(s.Welcome.MaxKey) {
		return false, base.NotSent(fmt.Errorf("%w: %d bytes, this server takes up to %d", base.ErrKeyTooLarge, len(w.Key), s.Welcome.MaxKey))
	}
	switch w.Type {
	case wire.TypePut:
		if uint64(len(w.Data)) > s.Welcome.MaxValue {
			return false, base.NotSent(fmt.Errorf("%w: %d bytes, this server takes up to %d", base.ErrTooLarge, len(w.Data), s.Welcome.MaxValue))
		}
		large = !wire.PutFits(s.RequestSize(), len(w.Key), len(w.Data))
	case wire.TypeBatch:
		if err := sameShard(w, int(s.Welcome.Shards)); err != nil {
			return false, base.NotSent(err)
		}
		large = !wire.BatchFits(s.RequestSize(), len(w.Data))
	}
	if large {
		err = w.stage(p, s.Device, w.Data)
	}
	return large, err
}

// encode writes the request into a slot's buffer, which then belongs to the
// post.
func (w *Write) encode(s *session.Session, sl *session.Slot, large bool) []byte {
	if w.first == 0 {
		w.first, w.Terms.ID.AgeMillis = s.Clock.Ticked(), 0
	} else {
		w.Terms.ID.AgeMillis = uint32(min((s.Clock.Now()-w.first)/1e6+1, 1<<32-1))
	}
	dst, id := sl.Buf[:0], sl.ID()
	switch {
	case large:
		sl.Hold(w.staged.keep()) // until its reply or the end of the QP
		remote := w.staged.buf.Remote()
		if w.Type == wire.TypeBatch {
			return wire.AppendBatchLarge(dst, id, wire.BatchLarge{
				ID: w.Terms.ID, Count: uint16(w.count), RKey: remote.RKey, Addr: remote.Addr,
				Length: uint32(w.staged.n), Checksum: w.staged.sum,
			})
		}
		s.Counts.LargePuts.Add(1)
		return wire.AppendPutLarge(dst, id, wire.PutLarge{
			RKey: remote.RKey, Addr: remote.Addr,
			ValueLen: uint64(w.staged.n), Checksum: w.staged.sum, Key: w.Key, Terms: w.Terms,
		})
	case w.Type == wire.TypePut:
		return wire.AppendPut(dst, id, wire.Put{Key: w.Key, Value: w.Data, Terms: w.Terms})
	case w.Type == wire.TypeDelete:
		return wire.AppendDelete(dst, id, wire.Delete{Key: w.Key, Terms: w.Terms})
	case w.Type == wire.TypeUpdate:
		return wire.AppendUpdate(dst, id, wire.Update{Op: w.op, Delta: w.delta, Key: w.Key, Terms: w.Terms})
	}
	return wire.AppendBatch(dst, id, w.Terms.ID, uint16(w.count), w.Data)
}

// take reads the reply, if there is one.
func (w *Write) take(r *session.Reply, err error) error {
	if err != nil {
		return err
	}
	if w.Reply, err = wire.ParseWriteReply(r.Body); err != nil {
		return r.Malformed(err) // it says that it was done, in words that make no sense
	}
	r.Done()
	return nil
}

// age is how long ago the first copy was sent.
func (w *Write) age() time.Duration { return time.Duration(w.Terms.ID.AgeMillis) * time.Millisecond }

// refusal is the error that an answer stands for: nil if the write was applied.
func (w *Write) refusal() error {
	if w.Reply.Applied {
		return nil
	}
	if w.Type == wire.TypeBatch {
		return w.batchRefusal()
	}
	return base.ConditionError(w.Terms.If, w.Reply.Version, 0)
}

// forget drops the remembered places of what was written.
func forget(s *session.Session, w *Write) {
	seed := s.View().Seed
	if w.Type != wire.TypeBatch {
		s.Cache.Drop(layout.HashKey(seed, w.Key))
		return
	}
	for part := range w.parts() {
		s.Cache.Drop(layout.HashKey(seed, part.Key))
	}
}

// sameShard refuses a batch whose keys are not all of one shard.
func sameShard(w *Write, shards int) error {
	var first []byte
	for part := range w.parts() {
		if first == nil {
			first = part.Key
		} else if cluster.ShardOf(part.Key, shards) != cluster.ShardOf(first, shards) {
			return fmt.Errorf("%w: %s and %s", base.ErrCrossShard, base.QuoteKey(first), base.QuoteKey(part.Key))
		}
	}
	return nil
}
