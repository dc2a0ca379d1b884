package server

import (
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// put hands a small put to the store. Key and value stay where they arrived:
// the receive buffer belongs to the store until written is called.
func (r *request) put() {
	m, err := wire.ParsePut(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	w := store.Write{Key: m.Key, Value: m.Value}
	if r.terms(&w, m.Terms) {
		r.submitNow(w)
	}
}

// delete hands a delete to the store.
func (r *request) delete() {
	m, err := wire.ParseDelete(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	w := store.Write{Key: m.Key, Op: store.OpDelete}
	if r.terms(&w, m.Terms) && r.noTTL(m.Terms) {
		r.submitNow(w)
	}
}

// update hands an increment or a touch to the store.
func (r *request) update() {
	m, err := wire.ParseUpdate(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	w := store.Write{Key: m.Key, Op: store.OpTouch}
	if m.Op == wire.UpdateIncrement {
		w.Op, w.Delta = store.OpIncrement, m.Delta
	}
	if r.terms(&w, m.Terms) && (w.Op == store.OpTouch || r.noTTL(m.Terms)) {
		r.submitNow(w)
	}
}

// noTTL refuses a time to live where none can be meant: an increment keeps the
// one that its key has, and a delete leaves nothing that could live. false: it
// was refused.
func (r *request) noTTL(t wire.Terms) bool {
	if t.TTLMicros != 0 {
		r.fail(wire.StatusBadRequest, "a time to live is of a put or a touch: send 0 with an increment or a delete, and a touch of its own")
		return false
	}
	return true
}

// maxTTL bounds times to live, in microseconds: 100 years. The server's time
// and one of these add up to far less than 64 bits.
const maxTTL = 100 * 366 * 24 * 3600 * 1_000_000

// terms fills in what every write of one key carries. false: it was refused.
func (r *request) terms(w *store.Write, t wire.Terms) bool {
	var ok bool
	if !r.mayKey(w.Key) {
		return false
	}
	if !r.oursKey(w.Key) {
		return false
	}
	if w.ID, ok = r.requestID(t.ID); !ok {
		return false
	}
	w.If, w.IfVersion = store.Cond(t.If), layout.Version(t.IfVersion)
	w.TTL = time.Duration(t.TTLMicros) * time.Microsecond
	return r.sane(t.If, t.IfVersion, t.TTLMicros)
}

// The conditions have the same numbers here and there.
var _ = [1]struct{}{}[wire.CondAbsent-wire.Cond(store.CondAbsent)|wire.CondVersion-wire.Cond(store.CondVersion)|wire.CondExists-wire.Cond(store.CondExists)]

// sane refuses conditions and times that cannot be meant.
func (r *request) sane(c wire.Cond, version, ttl uint64) bool {
	switch {
	case c == wire.CondVersion && (version == 0 || version > uint64(layout.MaxVersion)):
		r.fail(wire.StatusBadRequest, "no write has the version that is compared")
	case ttl > maxTTL:
		r.fail(wire.StatusBadRequest, "time to live of more than 100 years")
	default:
		return true
	}
	return false
}

// requestID is the write's name across connections. false: it was refused.
func (r *request) requestID(m wire.RequestID) (store.RequestID, bool) {
	if m.Seq == 0 {
		return store.RequestID{}, true
	}
	if r.s.clientID == ([16]byte{}) {
		r.fail(wire.StatusBadRequest, "a numbered write of a client without an id")
		return store.RequestID{}, false
	}
	return store.RequestID{
		Client: r.s.clientID, Owner: r.s.login.owner(), Slot: m.Slot, Seq: m.Seq, Age: time.Duration(m.AgeMillis) * time.Millisecond,
	}, true
}

// submit orders a write where waiting is allowed; written answers it.
func (r *request) submit(w store.Write) {
	r.prepare(w)
	r.ask()
}

// submitNow orders a write on the lane, which must not wait: one for which
// memory has to be registered first is parked, one for which the disk must be
// asked goes to the pool.
func (r *request) submitNow(w store.Write) {
	w.NoWait = true
	r.prepare(w)
	r.resubmit()
}

func (r *request) prepare(w store.Write) {
	if w.Op != store.OpBatch {
		w.Shard = cluster.ShardOf(w.Key, r.s.srv.shards)
	}
	w.User, w.Done = r, written
	r.write = w
}

// lieLong is how long a request may lie here before that counts: the store
// allows for a minute on the way.
const lieLong = 30 * time.Second

// addAge adds to the age of the write how long it has been here. A copy that was
// sent first, and says so, may come last: a retry of it, over another connection,
// was done meanwhile, and what is remembered of that is forgotten after a time.
// Who is submitted twice counts twice: to be older than it is does no harm.
func (r *request) addAge() {
	if here := time.Duration(r.s.srv.now() - r.begun); here > lieLong {
		r.write.ID.Age += here
	}
}

// resubmit orders the write, or has it ordered later. r is not the caller's
// afterwards.
func (r *request) resubmit() {
	r.addAge()
	switch err := r.s.srv.store.Submit(&r.write); {
	case errors.Is(err, store.ErrGrowing):
		if !r.s.srv.grow.park(r) {
			r.refuse(store.ErrClosed)
		}
	case errors.Is(err, store.ErrMustAsk):
		r.asks = true
		r.s.srv.met.asked.Add(1)
		r.s.srv.pool.submit(r)
	case err != nil:
		r.refuse(err)
	}
}

// ask orders the write and waits for what it needs. It runs on the pool, or on
// a goroutine of its own.
func (r *request) ask() {
	r.asks, r.write.NoWait = false, false
	r.addAge()
	if teeth.Off(teeth.D7StagedUntilDone) { // the wrong way: others may READ into it from here on
		r.stage.release()
		r.stage = nil
	}
	if err := r.s.srv.store.Submit(&r.write); err != nil {
		r.stage.release()
		r.refuse(err)
	}
}

// written is the store's callback: the write is durable and visible, or was
// refused by what is. It runs on the store's publishing goroutine, so it only
// queues the reply; the session is flushed once for the whole group.
func written(w *store.Write) {
	r := w.User.(*request)
	s, stage := r.s, r.stage
	m := wire.WriteReply{Version: uint64(w.Version), Applied: true, Existed: w.Existed, Number: w.Number}
	switch {
	case errors.Is(w.Err, store.ErrCondition):
		m = wire.WriteReply{Version: uint64(w.Actual), Existed: w.Actual != 0}
		if w.Op == store.OpBatch {
			m.Number = int64(w.Part)
		}
	case w.Err != nil:
		r.refuse(w.Err)
		stage.release()
		s.srv.wrote(s)
		return
	case w.Op == store.OpDelete && !w.Existed:
		m.Version = 0
	}
	r.confirm(func(dst []byte) []byte { return wire.AppendWriteReply(dst, r.hdr.Type, r.hdr.ID, m) })
	stage.release()
	s.srv.wrote(s)
}
