package handle

import (
	"errors"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// put hands a small put to the store. Key and value stay where they arrived:
// the receive buffer belongs to the store until written is called.
func (r *op) put(m wire.Put) {
	w := store.Write{Op: store.Op{Key: m.Key, Value: m.Value}}
	if !r.terms(&w, m.Terms) {
		return
	}
	switch {
	case layout.IsPartKey(m.Key):
		if !mayPutPart(r, &w, xxh3.Hash(m.Value)) {
			return
		}
	case layout.IsHead(m.Value):
		go putHead(r, w) // at most one for each credit
		return
	}
	r.submitNow(w)
}

// delete hands a delete to the store.
func (r *op) delete(m wire.Delete) {
	w := store.Write{Op: store.Op{Key: m.Key, Kind: store.OpDelete}}
	if layout.IsPartKey(m.Key) {
		giveUp(r, m.Key)
		return
	}
	if r.terms(&w, m.Terms) && r.noTTL(m.Terms) {
		r.submitNow(w)
	}
}

// update hands an increment or a touch to the store.
func (r *op) update(m wire.Update) {
	w := store.Write{Op: store.Op{Key: m.Key, Kind: store.OpTouch}}
	if m.Op == wire.UpdateIncrement {
		w.Kind, w.Delta = store.OpIncrement, m.Delta
	}
	if r.terms(&w, m.Terms) && (w.Kind == store.OpTouch || r.noTTL(m.Terms)) {
		r.submitNow(w)
	}
}

// noTTL refuses a time to live where none can be meant: an increment keeps the
// one that its key has, and a delete leaves nothing that could live. false: it
// was refused.
func (r *op) noTTL(t wire.Terms) bool {
	if t.TTLMicros != 0 {
		r.Fail(wire.StatusBadRequest, "a time to live is of a put or a touch: send 0 with an increment or a delete, and a touch of its own")
		return false
	}
	return true
}

// MaxTTL bounds times to live, in microseconds: 100 years. The server's time
// and one of these add up to far less than 64 bits.
const MaxTTL = 100 * 366 * 24 * 3600 * 1_000_000

// terms fills in what every write of one key carries, which has been judged. false: it
// was refused.
func (r *op) terms(w *store.Write, t wire.Terms) bool {
	var ok bool
	if w.ID, ok = r.requestID(t.ID); !ok {
		return false
	}
	w.If, w.IfVersion = store.Cond(t.If), layout.Version(t.IfVersion)
	w.TTL = time.Duration(t.TTLMicros) * time.Microsecond
	if why := insane(t.If, t.IfVersion, t.TTLMicros); why != "" {
		r.Fail(wire.StatusBadRequest, why)
		return false
	}
	return true
}

// The conditions have the same numbers here and there.
var _ = [1]struct{}{}[wire.CondAbsent-wire.Cond(store.CondAbsent)|wire.CondVersion-wire.Cond(store.CondVersion)|wire.CondExists-wire.Cond(store.CondExists)]

// insane says what of conditions and times cannot be meant; "" if they can.
func insane(c wire.Cond, version, ttl uint64) string {
	switch {
	case c == wire.CondVersion && (version == 0 || version > uint64(layout.MaxVersion)):
		return "no write has the version that is compared"
	case ttl > MaxTTL:
		return "time to live of more than 100 years"
	}
	return ""
}

// requestID is the write's name across connections. false: it was refused.
func (r *op) requestID(m wire.RequestID) (store.RequestID, bool) {
	if m.Seq == 0 {
		return store.RequestID{}, true
	}
	if r.Session.ClientID == ([16]byte{}) {
		r.Fail(wire.StatusBadRequest, "a numbered write of a client without an id")
		return store.RequestID{}, false
	}
	return store.RequestID{
		Client: r.Session.ClientID, Owner: r.Session.Login.Owner(), Slot: m.Slot, Seq: m.Seq, Age: time.Duration(m.AgeMillis) * time.Millisecond,
	}, true
}

// submit orders a write where waiting is allowed; written answers it.
func (r *op) submit(w store.Write) {
	r.prepare(w)
	if !slows(&r.write) || !r.c.h.slow.behind(r) {
		r.ask()
	}
}

// submitNow orders a write on the lane, which must not wait: one for which
// memory has to be registered first is parked, and so is a put that the store slows
// down; one for which the disk must be asked goes to the pool.
func (r *op) submitNow(w store.Write) {
	r.prepare(w)
	r.resubmit()
}

func (r *op) prepare(w store.Write) {
	if w.Kind != store.OpBatch {
		w.Shard = cluster.ShardOf(w.Key, r.c.env.Shards)
	}
	w.User, w.Done, w.Reign = r, written, r.reign
	r.write, r.aged, r.waits = w, 0, 0
}

// lieLong is how long a request may lie here before that counts: the store
// allows for a minute on the way.
const lieLong = 30 * time.Second

// addAge adds to the age of the write how long it has been here. The store refuses a
// write that is older than the results that it remembers. It must, because a copy that
// was sent first may come last: a retry over another connection was done meanwhile, and
// without its result the copy would be applied a second time.
func (r *op) addAge() {
	if here := time.Duration(r.c.env.Clock.Now() - r.Begun); here > lieLong {
		r.write.ID.Age += here - r.aged
		r.aged = here
	}
}

// resubmit orders the write, or has it ordered later: behind those that the store slows
// down, if it is such a one. r is not the caller's afterwards.
func (r *op) resubmit() {
	if !slows(&r.write) || !r.c.h.slow.behind(r) {
		order(r, false)
	}
}

// order is resubmit for a write that does not stand behind others; again says that it has been
// parked in the slowdown, and that it was the oldest there.
func order(r *op, again bool) {
	r.addAge()
	r.write.NoWait = true
	err := r.c.h.submitTo(&r.write)
	if err == nil {
		return
	}
	wait, slow := slowed(r, err)
	switch {
	case slow:
		r.c.h.slowDown(r, wait, again)
	case errors.Is(err, store.ErrGrowing):
		if !r.c.h.grow.park(r) {
			r.stage.Release()
			r.refuse(store.ErrClosed)
		}
	case errors.Is(err, store.ErrMustAsk):
		r.asks = true
		r.c.env.Counters.Asked.Add(1)
		submit(r.c.env.Gets, r)
	default:
		r.stage.Release()
		r.refuse(err)
	}
}

// slowDown parks a write that the store slows down.
func (h *Handlers) slowDown(r *op, wait time.Duration, again bool) {
	if !again {
		h.Counters.Slowed.Add(1)
	}
	h.slow.park(r, wait, again)
}

// ask orders the write and waits for what it needs, but not for the log. It runs on the pool,
// or on a goroutine of its own.
func (r *op) ask() {
	r.asks, r.write.NoWait = false, false
	r.addAge()
	err := r.c.h.submitTo(&r.write)
	if err == nil {
		return
	}
	if wait, slow := slowed(r, err); slow {
		r.c.h.slowDown(r, wait, false)
		return
	}
	r.stage.Release()
	r.refuse(err)
}

// drop ends a write whose session is dead.
func drop(r *op) {
	r.stage.Release()
	r.Drop()
}

// written is the store's callback: the write is durable and visible, or was
// refused by what is. It runs on the store's publishing goroutine, so it only
// queues the reply; the session is flushed once for the whole group.
func written(w *store.Write) {
	r := w.User.(*op)
	s, stage, env := r.Session, r.stage, r.c.env // r belongs to the next message once it is answered
	m := wire.WriteReply{Version: uint64(w.Version), Applied: true, Existed: w.Existed, Number: w.Number}
	switch {
	case errors.Is(w.Err, store.ErrCondition):
		m = wire.WriteReply{Version: uint64(w.Actual), Existed: w.Actual != 0}
		if w.Kind == store.OpBatch {
			m.Number = int64(w.Part)
		}
	case w.Err != nil:
		r.refuse(w.Err)
		stage.Release()
		env.Sessions.Wrote(s)
		return
	case w.Kind == store.OpDelete && !w.Existed:
		m.Version = 0
	}
	r.Confirm(func(dst []byte) []byte { return wire.AppendWriteReply(dst, r.Header.Type, r.Header.ID, m) })
	stage.Release()
	env.Sessions.Wrote(s)
}
