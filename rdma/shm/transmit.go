//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// copyUnlocked is from how many bytes on a copy releases mu.
const copyUnlocked = 8 << 10

// A response is a READ of the peer that waits to be answered, or is being
// answered. Responses are made when there is room in the ring, never before.
type response struct {
	key     uint32
	addr    uint64
	size    uint32
	sent    uint32
	started bool
	mr      *soft.MR
	refused error // why the READ is not allowed; then nothing behind it is acted upon
}

// A sender is the producer of our ring and what it is in the middle of. The producer
// holds mu, which is only ever tried under QP.Mu; only finish takes it before QP.Mu.
// What is under Mu may be touched by other goroutines, too.
type sender struct {
	q  *qp
	mu sync.Mutex
	producer

	// Under QP.Mu.
	reads []*soft.SendWQE // READ requests in the peer's hands, oldest first; at most ORD
	resp  []response      // READs of the peer; at most IRD
	turn  bool            // fairness between responses and requests
	again bool            // the producer is to look once more
}

// pump carries out what it can: answers to the peer's READs and our own requests, in
// turns. The caller holds mu, which pump may release while it copies. If another
// goroutine is the producer, that one goes on with our work.
func (t *sender) pump() {
	q := t.q
	if !t.mu.TryLock() {
		t.again = true
		return
	}
	defer t.mu.Unlock()
	if q.StateLocked() != rdma.QPRTS && q.StateLocked() != rdma.QPRTR {
		return
	}
	from := t.tail
	for {
		t.again = false
		for q.StateLocked() != rdma.QPError && t.step() {
		}
		if q.StateLocked() == rdma.QPError {
			return
		}
		q.RetireLocked()
		// The ring is full: say so, and look once more, because the consumer may have
		// made room just before it could see that.
		if !t.again && t.blocked() && !t.wantRoom() {
			break
		}
		if !t.again && !t.blocked() {
			break
		}
	}
	if t.tail != from {
		t.wakePeer()
	}
}

// blocked reports whether something waits for room in the ring.
func (t *sender) blocked() bool { return t.stuck }

// wantRoom asks the consumer for a wake-up when there is room. It returns true if there
// is some by now.
func (t *sender) wantRoom() bool {
	t.wakePeer()
	t.h.full.Store(1)
	before := t.head
	if _, ok := t.room(ringSize + 1); !ok {
		t.q.failLocked(violation(errRing))
		return true
	}
	return t.head != before
}

var errRing = fmt.Errorf("%w: the peer's place in our ring makes no sense", rdma.ErrProtocol)

// step does one piece of work. It returns false if there is none, or no room for it.
func (t *sender) step() bool {
	t.stuck = false
	send := t.sendReady()
	switch {
	case len(t.resp) > 0 && (t.turn || !send):
		t.turn = false
		return t.respond()
	case send:
		t.turn = true
		if t.request() {
			return true
		}
		// A READ that waits for others (requestRead) must not delay our answers: the
		// peer may wait for one of them before it gives the answer that this READ waits
		// for.
		if t.q.StateLocked() != rdma.QPError && !t.stuck && len(t.resp) > 0 {
			return t.respond()
		}
	}
	return false
}

// sendReady reports whether the next request may begin.
func (t *sender) sendReady() bool {
	q := t.q
	if q.SQ.Next == q.SQ.Tail {
		return false
	}
	w := q.SQ.At(q.SQ.Next)
	if w.Fence && len(t.reads) > 0 {
		return false
	}
	return w.Op != rdma.OpRDMARead || len(t.reads) < q.ORD || q.seen.has(w.Remote.RKey)
}

// request carries out the next request, or a piece of it.
func (t *sender) request() bool {
	q := t.q
	w := q.SQ.At(q.SQ.Next)
	if w.Op == rdma.OpRDMARead {
		return t.requestRead(w)
	}
	if w.Sent == 0 && w.Inline == nil && !w.SGL.Check(&q.pd.PD, 0) {
		q.failLocked(localFault(w.Op))
		return false
	}
	typ := recSend
	if w.Op == rdma.OpRDMAWrite {
		typ = recWrite
	}
	buf, n, ok := t.reserve(typ, uint64(w.Length-w.Sent))
	if !ok {
		return false
	}
	data := buf[recordHeader:]
	if typ == recWrite {
		binary.LittleEndian.PutUint64(data, uint64(w.Remote.RKey))
		binary.LittleEndian.PutUint64(data[8:], w.Remote.Addr+uint64(w.Sent))
		data = data[fixedOf[recWrite]:]
	}
	good := true
	if w.Inline != nil {
		copy(data, w.Inline[w.Sent:w.Sent+uint32(n)])
	} else {
		big := t.unlock(n)
		good = w.SGL.Gather(data[:n], uint64(w.Sent))
		t.relock(big)
	}
	if q.StateLocked() == rdma.QPError {
		return false
	}
	if !good {
		q.failLocked(localFault(w.Op))
		return false
	}
	w.Sent += uint32(n)
	var flags uint8
	if w.Sent == w.Length {
		flags = flagLast
		if w.Solicit {
			flags |= flagSolicit
		}
		w.Done = true
		q.SQ.Next++
	}
	t.commit(buf, typ, flags, n)
	return true
}

// reserve finds room in the ring for a piece. It returns false if there is none, or the
// connection has failed.
func (t *sender) reserve(typ recType, n uint64) (buf []byte, got uint64, ok bool) {
	buf, got, fits, ok := t.producer.reserve(typ, n, true)
	if !ok {
		t.q.failLocked(violation(errRing))
		return nil, 0, false
	}
	t.stuck = !fits
	return buf, got, fits
}

// unlock releases mu for a copy of n bytes if that takes a while.
func (t *sender) unlock(n uint64) bool {
	if n < copyUnlocked {
		return false
	}
	t.q.Mu.Unlock()
	return true
}

func (t *sender) relock(unlocked bool) {
	if unlocked {
		t.q.Mu.Lock()
	}
}

// requestRead does a READ itself if the region is mapped, else asks the peer.
func (t *sender) requestRead(w *soft.SendWQE) bool {
	q := t.q
	if !w.SGL.Check(&q.pd.PD, rdma.AccessLocalWrite) {
		q.failLocked(localFault(w.Op))
		return false
	}
	if r := q.seen.take(w.Remote.RKey); r != nil {
		big := t.unlock(uint64(w.Length))
		good, local := r.scatter(&w.SGL, w.Remote.Addr, w.Length)
		var c cause
		if !good {
			c = q.refused()
		}
		r.release()
		t.relock(big)
		switch {
		case q.StateLocked() == rdma.QPError:
		case local:
			q.failLocked(localFault(w.Op))
		case !good && len(t.reads) > 0:
			// The answers to READs before this one may be in the ring already, also
			// those of a peer that takes its regions back because it ends the
			// connection. So this READ is tried again when they have been taken. If it
			// failed the QP now, the oldest of them would complete with its cause.
		case !good:
			q.failLocked(c)
		default:
			w.Done = true
			q.SQ.Next++
			return true
		}
		return false
	}
	if len(t.reads) >= q.ORD {
		return false // it was mapped a moment ago
	}
	buf, _, ok := t.reserve(recRead, 0)
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint64(buf[recordHeader:], uint64(w.Remote.RKey)|uint64(w.Length)<<32)
	binary.LittleEndian.PutUint64(buf[recordHeader+8:], w.Remote.Addr)
	t.reads = append(t.reads, w)
	q.SQ.Next++
	t.commit(buf, recRead, flagLast, 0)
	return true
}

// respond sends a piece of the answer to the peer's oldest READ. Whether the peer may
// have it is decided when the answer begins.
func (t *sender) respond() bool {
	q := t.q
	r := &t.resp[0]
	if !r.started {
		m, err := (*soft.MR)(nil), r.refused
		if err == nil {
			m, err = q.rx.admit(r)
		}
		if err != nil {
			q.failLocked(forbidden("a READ of the peer", err))
			return false
		}
		r.mr, r.started = m, true
	}
	buf, n, ok := t.reserve(recResp, uint64(r.size-r.sent))
	if !ok {
		return false
	}
	if n > 0 {
		if !r.mr.Acquire() {
			q.failLocked(forbidden("a READ of the peer", errClosedRegion))
			return false
		}
		m, from := r.mr, r.addr+uint64(r.sent)
		big := t.unlock(n)
		mem.Copy(buf[recordHeader:recordHeader+n], m.Bytes(), from)
		m.Release()
		t.relock(big)
		if q.StateLocked() == rdma.QPError {
			return false
		}
		r = &t.resp[0] // more may have come, and moved it
	}
	r.sent += uint32(n)
	var flags uint8
	if r.sent == r.size {
		flags = flagLast
		t.resp = append(t.resp[:0], t.resp[1:]...)
	}
	t.commit(buf, recResp, flags, n)
	return true
}
