package session

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Packs: several messages in one SEND (internal/wire/pack.go).
//
// Each request of a pack is a Request of its own: it spends a credit, is counted in flight, judged,
// queued, answered and dropped as if it had come alone, and what becomes of one is nothing to the
// others. What they share is the receive in which they arrived, which goes back to the fabric with
// the last of them (Buffer.open). So a pack holds one receive while at least one of its credits is
// spent, and there are at least as many receives posted as credits at the client, as ever.

// packed are Requests for those of a pack but the first, which has the one of its receive. A
// request is here again when it is answered or dropped. There are as many as credits in use at
// most: were they kept with each receive, all receives together could have 64 times as many.
var packed = sync.Pool{New: func() any { return &Request{pooled: true} }}

// receivePack takes the requests of a pack in, one after the other, in their order. It is entered
// for the first, of which r is. now is the time.
func (l *Lane) receivePack(r *Request, h wire.Header, body []byte) {
	s, b, now := r.Session, r.buf, r.Begun
	count, err := 0, error(nil)
	switch {
	case sessionState(s.state.Load()) != stateOpen: // it is not authenticated, or ends
		r.Violation(base.CauseOrder, fmt.Errorf("%v before the session is open, or behind its end", h.Type))
		return
	case !s.Packs:
		err = fmt.Errorf("%v from a client that has not named the feature", h.Type)
	default:
		count, err = wire.ParsePack(h, body)
	}
	if err != nil {
		r.Violation(base.CauseHeader, err)
		return
	}
	s.asked = now
	b.open.Store(int32(count))
	for i := range count {
		if i > 0 {
			s.enter()
			r = packed.Get().(*Request)
			r.Session, r.buf, r.Begun, r.grant = s, b, now, 1
			if s.Ended() { // by what one before it was
				b.open.Add(int32(i + 1 - count))
				r.Drop()
				return
			}
		}
		r.Header, r.Body, body, _ = wire.NextPacked(body)
		if err := s.spend(r.Header); err != nil {
			b.open.Add(int32(i + 1 - count)) // those behind it are not taken in
			r.Violation(base.CauseCredits, err)
			return
		}
		r.readied()
		if r.take(len(r.Body)+wire.HeaderSize) && !l.group.Gate.park(r) {
			r.dispatch()
		}
	}
}

// readied notes the unasked messages that the client is newly ready for.
func (r *Request) readied() {
	if n, s := r.Header.Credits, r.Session; n > 0 {
		s.mu.Lock()
		s.serverCredit = min(s.serverCredit+int(n), MaxCredits)
		s.mu.Unlock()
	}
}

// leaves ends a request's hold of its receive. It returns the receive to give back if it was the
// last, else nil; and r may be another request's behind it.
func (r *Request) leaves() *Buffer {
	b := r.buf
	r.clear()
	if r.pooled {
		r.Session, r.buf, r.Header = nil, nil, wire.Header{}
		packed.Put(r)
	}
	if b.open.Add(-1) > 0 {
		return nil
	}
	return b
}

// packLocked puts the oldest of these replies that may travel together into one message; n is how
// many they are, and 1 if there is no pack. The credits of all have been written. The replies of a
// pack are free again. s.mu is held.
func packLocked(s *Session, out []*Buffer) (b *Buffer, n int) {
	if !s.Packs {
		return out[0], 1
	}
	size := wire.HeaderSize
	most := min(midReply, s.ReplySize)
	for n < min(len(out), wire.MaxPacked) {
		o := out[n]
		size += wire.PackedSize(o.N)
		if o.pool.class != 0 || !wire.Packable(o.Mem) || size > most {
			break
		}
		n++
	}
	if n < 2 {
		return out[0], 1
	}
	b, err := s.NewBuffer(midReply)
	if err != nil {
		return out[0], 1
	}
	msg := wire.BeginPack(b.Mem[:0], wire.ReplyBit)
	wire.SetVersion(msg, s.version)
	for _, o := range out[:n] {
		msg = wire.AppendPacked(msg, o.Mem[:o.N])
		o.Free()
	}
	b.N = len(msg)
	return b, n
}

// creditLocked writes into a reply which credits it gives. s.mu is held.
func (s *Session) creditLocked(b *Buffer) {
	grant := b.grant
	if b.wantMore && !s.lane.scarce() { // double, up to the bound and one for Ping
		grant += s.growLocked(s.withinShare(min(max(s.owned, 4), s.group.cfg.Credits+1-s.owned)))
	}
	if grant > 0 && s.backoff.owed > 0 {
		s.backoff.owed--
		grant++
	}
	if grant > 0 && s.overShareLocked() {
		s.shrinkLocked(1) // it was spent, and is not renewed
		grant--
	}
	if grant > 0 {
		wire.SetCredits(b.Mem, uint16(grant))
		s.allowed.Add(int32(grant)) // before the post: the client may be quick
	}
	if b.isPing {
		s.pinging.Store(false)
	}
}

// postLocked posts the n oldest replies. Only the last is signaled: sends of a
// QP complete in order, so its completion stands for all.
func (s *Session) postLocked(n int) {
	s.sendWRs, s.sges = s.sendWRs[:0], s.sges[:0]
	if cap(s.sges) < n {
		s.sges = make([]rdma.SGE, 0, 2*n)
	}
	for _, b := range s.out[:n] {
		wire.SetVersion(b.Mem, s.version)
		s.creditLocked(b)
	}
	if len(s.sent) == 0 {
		s.sentSince = s.group.Clock.Now()
	}
	for out := s.out[:n]; len(out) > 0; {
		b, k := packLocked(s, out)
		out = out[k:]
		s.sealOut.Seal(b.Mem[:b.N]) // the last touch
		at := len(s.sges)
		s.sges = append(s.sges, b.sge(b.N))
		s.sendWRs = append(s.sendWRs, rdma.SendWR{ID: s.lane.sendID(b), Op: rdma.OpSend, SGL: s.sges[at : at+1 : at+1]})
		b.sess = s
		s.group.Counters.BytesOut.Add(int64(b.N))
		s.sent = append(s.sent, b)
	}
	s.sendWRs[len(s.sendWRs)-1].Flags = rdma.SendSignaled
	clear(s.out[copy(s.out, s.out[n:]):])
	s.out = s.out[:len(s.out)-n]
	if taken, err := s.qp.PostSend(s.sendWRs); taken < len(s.sendWRs) {
		// Room was reserved, so the QP itself refuses: it is not connected
		// any more. Buffers in sent return at the end of the session.
		s.endLocked(base.CausePost, err)
	}
}
