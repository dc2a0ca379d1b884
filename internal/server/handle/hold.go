package handle

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A hold is a place that the store keeps unchanged for one client: a value too
// large for a reply, or one that the client wants to READ in parts. It ends by
// the client's Release, with the session, or a lease after the store made it,
// by the store itself.
type hold struct {
	held    *store.Held
	expires int64 // by the clock of the space: the store has let it go
	until   int64 // and until when it certainly has not

	all    *atomic.Int64 // counts those of the space
	tenant *auth.Login   // in whose share it is counted, with size bytes
	size   int64
}

// release gives the place back to the store. Once.
func (h *hold) release() {
	h.held.Release()
	h.all.Add(-1)
	h.tenant.Held.Add(-h.size)
}

// maxHolds bounds the holds of one session; their bytes are bounded by the
// tenant's share and by the store.
const maxHolds = 256

// HoldShare is how many bytes may be held for one tenant: a part of what the store
// allows, or all of it where no other tenant uses the space.
func (env *Env) HoldShare() int64 {
	if !env.Shared() {
		return math.MaxInt64
	}
	_, limit := env.Store.HoldUse()
	return limit / base.ShareParts
}

// hold answers with a held place for a value of about n bytes. It runs on the
// pool.
func (r *op) hold(shard uint16, key []byte, n int) {
	s, c, env := r.Session, r.c, r.c.env
	// Counted before the store takes memory for it; what it really is comes after.
	size := int64(layout.ItemSize(len(key), n, true))
	if l := s.Login; !l.Hold(size, env.HoldShare()) {
		r.Overloaded(base.BoundLoginHolds, "tenant "+l.Label+" has his share of held places")
		return
	}
	asked := env.Clock.Now()
	var held *store.Held
	var err error
	if s.Aside || !s.OneSided { // a client without the right to READ fetches every held place
		held, err = env.Store.HoldAside(s.Context(), shard, key)
	} else {
		held, err = env.Store.Hold(s.Context(), shard, key)
	}
	if err != nil {
		s.Login.Held.Add(-size)
		if errors.Is(err, store.ErrOverloaded) {
			env.Bounds.Hit(base.BoundHolds)
		}
		r.refuse(err)
		return
	}
	s.Login.Held.Add(int64(held.Size) - size)
	h := &hold{held: held, all: &c.h.held, tenant: s.Login, size: int64(held.Size), until: asked + int64(env.Lease), expires: env.Clock.Now() + int64(2*env.Lease)}
	h.all.Add(1)
	c.mu.Lock()
	full := len(c.holds) >= maxHolds
	if !full && !c.closed {
		if c.holds == nil {
			c.holds = make(map[uint64]*hold)
		}
		c.nextHold++
		c.holds[c.nextHold] = h
	}
	id, closed := c.nextHold, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		h.release()
		r.Drop()
		return
	case full:
		h.release()
		r.Fail(wire.StatusOverloaded, "too many held places in this session")
		return
	}
	r.Answer(session.SmallReply, func(dst []byte) []byte {
		return wire.AppendGetReply(dst, r.Header.ID, wire.GetReply{
			Kind: wire.GetHeld, ValueLen: uint32(held.ValLen), Version: uint64(held.Version), Expiry: held.Expiry,
			Hold: wire.Hold{ID: id, Place: uint64(held.Place), Size: uint32(held.Size), KeyLen: uint16(held.KeyLen)},
		})
	})
}

// holdOf returns the place that is held for the session under a number; nil if there
// is none. With take it is held no longer: the caller releases it.
func (c *conn) holdOf(id uint64, take bool) *hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.holds[id]
	if take {
		delete(c.holds, id)
	}
	return h
}

// release gives a held place back. It runs on the lane.
func (r *op) release(_ wire.Release, h *hold) {
	h.release()
	r.Answer(session.SmallReply, func(dst []byte) []byte { return wire.AppendReleaseReply(dst, r.Header.ID) })
}

// expireHolds forgets the holds that the store has let go by itself.
func (c *conn) expireHolds(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, h := range c.holds {
		if now >= h.expires {
			h.release()
			delete(c.holds, id)
		}
	}
}

// dropHolds gives all held places back. None is held from then on.
func (c *conn) dropHolds() {
	c.mu.Lock()
	holds := c.holds
	c.holds, c.closed = nil, true
	c.mu.Unlock()
	for _, h := range holds {
		h.release()
	}
}

// fetchHeld answers with bytes of a held item: the way of a large value to a client
// that must not READ. It runs on the pool. A client that READs may use it too.
func (r *op) fetchHeld(m wire.Fetch, h *hold) {
	s, env := r.Session, r.c.env
	if env.Clock.Now() >= h.until {
		r.Fail(wire.StatusNoHold, "")
		return
	}
	if size := uint32(h.held.Size); m.Offset > size || m.Length > size-m.Offset {
		r.Fail(wire.StatusBadRequest, "bytes beyond the held item")
		return
	}
	n := min(int(m.Length), (s.ReplySize-wire.FetchFixed)&^7)
	b, err := s.NewBuffer(wire.FetchFixed + n)
	if err != nil {
		r.refuse(err)
		return
	}
	msg := wire.AppendFetchHead(b.Mem[:0], r.Header.ID, m.Offset)
	at := len(msg)
	err = env.Store.ReadHeld(h.held, int(m.Offset), msg[at:at+n])
	if err == nil && env.Clock.Now() >= h.until {
		// This goroutine was not run for so long that the memory may be another
		// item's by now, of which this client must not see a byte. That is so after
		// a Release too, for memory rests a lease.
		clear(msg[at : at+n])
		b.Free()
		r.Fail(wire.StatusNoHold, "")
		return
	}
	if err != nil {
		b.Free()
		r.refuse(err)
		return
	}
	b.N = len(wire.FinishFetch(msg[:at+n], 0))
	r.Reply(b, wire.StatusOK)
}
