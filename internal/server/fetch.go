package server

import "github.com/rdmakv/rdmakv/internal/wire"

// fetch answers with bytes of a held item: the way of a large value to a client
// that must not READ. It runs on the pool. A client that READs may use it too.
func (r *request) fetchHeld() {
	m, err := wire.ParseFetch(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	s.mu.Lock()
	h := s.holds[m.Hold]
	s.mu.Unlock()
	if h == nil || s.srv.now() >= h.until {
		r.fail(wire.StatusNoHold, "")
		return
	}
	if size := uint32(h.held.Size); m.Offset > size || m.Length > size-m.Offset {
		r.fail(wire.StatusBadRequest, "bytes beyond the held item")
		return
	}
	n := min(int(m.Length), (s.replySize-wire.FetchFixed)&^7)
	b, err := s.lane.newReply(s, wire.FetchFixed+n)
	if err != nil {
		r.refuse(err)
		return
	}
	msg := wire.AppendFetchHead(b.mem[:0], r.hdr.ID, m.Offset)
	at := len(msg)
	err = s.srv.store.ReadHeld(h.held, int(m.Offset), msg[at:at+n])
	if err == nil && s.srv.now() >= h.until {
		// This goroutine was not run for so long that the memory may be another
		// item's by now, of which this client must not see a byte. That is so after
		// a Release too, for memory rests a lease.
		clear(msg[at : at+n])
		s.lane.putReply(b)
		r.fail(wire.StatusNoHold, "")
		return
	}
	if err != nil {
		s.lane.putReply(b)
		r.refuse(err)
		return
	}
	b.n = len(wire.FinishFetch(msg[:at+n], 0))
	r.reply(b, wire.StatusOK)
}
