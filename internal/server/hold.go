package server

import (
	"errors"
	"math"

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
	expires int64 // Server.now by which the store has let it go
	until   int64 // and until when it certainly has not

	tenant *login // in whose share it is counted, with size bytes
	size   int64
}

// release gives the place back to the store. Once.
func (h *hold) release() {
	h.held.Release()
	h.tenant.held.Add(-h.size)
}

// maxHolds bounds the holds of one session; their bytes are bounded by the
// tenant's share and by the store.
const maxHolds = 256

// holdShare is how many bytes may be held for one tenant: what the store allows
// where nobody else uses it, else a part of that.
func (srv *Server) holdShare() int64 {
	if !srv.shared() {
		return math.MaxInt64
	}
	_, limit := srv.store.HoldUse()
	return limit / shareParts
}

// takeHold counts size bytes as held for the tenant. false: he has his share, and
// the request was refused.
func (r *request) takeHold(size int64) bool {
	l := r.s.login
	if !l.hold(size, r.s.srv.holdShare()) {
		return r.overloaded(limitLoginHolds, "tenant "+l.label()+" has his share of held places")
	}
	return true
}

// hold counts size bytes as held, if they are within the share. One answer alone may
// exceed it. What is refused is never counted: another answer at the same moment
// would be refused because of it.
func (l *login) hold(size, share int64) bool {
	for {
		had := l.held.Load()
		if had > 0 && (size > share || had > share-size) {
			return false
		}
		if l.held.CompareAndSwap(had, had+size) {
			return true
		}
	}
}

// hold answers with a held place for a value of about n bytes. It runs on the
// pool.
func (r *request) hold(shard uint16, key []byte, n int) {
	s := r.s
	// Counted before the store takes memory for it; what it really is comes after.
	size := int64(layout.ItemSize(len(key), n, true))
	if !r.takeHold(size) {
		return
	}
	asked := s.srv.now()
	var held *store.Held
	var err error
	if s.aside || !s.login.oneSided { // who has no right to READ fetches every held place
		held, err = s.srv.store.HoldAside(s.ctx, shard, key)
	} else {
		held, err = s.srv.store.Hold(s.ctx, shard, key)
	}
	if err != nil {
		s.login.held.Add(-size)
		if errors.Is(err, store.ErrOverloaded) {
			s.srv.limitHit(limitHolds)
		}
		r.refuse(err)
		return
	}
	s.login.held.Add(int64(held.Size) - size)
	h := &hold{held: held, tenant: s.login, size: int64(held.Size), until: asked + int64(s.srv.cfg.Lease), expires: s.srv.now() + int64(2*s.srv.cfg.Lease)}
	s.mu.Lock()
	full := len(s.holds) >= maxHolds
	if !full && !s.dead {
		if s.holds == nil {
			s.holds = make(map[uint64]*hold)
		}
		s.nextHold++
		s.holds[s.nextHold] = h
	}
	id, dead := s.nextHold, s.dead
	s.mu.Unlock()
	switch {
	case dead:
		h.release()
		r.drop()
		return
	case full:
		h.release()
		r.fail(wire.StatusOverloaded, "too many held places in this session")
		return
	}
	r.answer(smallReply, func(dst []byte) []byte {
		return wire.AppendGetReply(dst, r.hdr.ID, wire.GetReply{
			Kind: wire.GetHeld, ValueLen: uint32(held.ValLen), Version: uint64(held.Version), Expiry: held.Expiry,
			Hold: wire.Hold{ID: id, Place: uint64(held.Place), Size: uint32(held.Size), KeyLen: uint16(held.KeyLen)},
		})
	})
}

// release gives a held place back. It runs on the lane.
func (r *request) release() {
	m, err := wire.ParseRelease(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	s.mu.Lock()
	h := s.holds[m.ID]
	delete(s.holds, m.ID)
	s.mu.Unlock()
	if h == nil {
		r.fail(wire.StatusNoHold, "")
		return
	}
	h.release()
	r.answer(smallReply, func(dst []byte) []byte { return wire.AppendReleaseReply(dst, r.hdr.ID) })
}

// expireHolds forgets the holds that the store has let go by itself.
func (s *session) expireHolds(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.holds {
		if now >= h.expires {
			h.release()
			delete(s.holds, id)
		}
	}
}
