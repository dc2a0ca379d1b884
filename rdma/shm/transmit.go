//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// copyUnlocked is from how many bytes on a copy lets go of mu.
const copyUnlocked = 8 << 10

// A response is a READ of the peer that waits to be answered, or is being
// answered. Responses are made when there is room in the ring, never before.
type response struct {
	key     uint32
	addr    uint64
	size    uint32
	sent    uint32
	started bool
	mr      *mr
	refused error // why it may not be; then nothing behind it is acted upon
}

// pump carries out what it can: answers to the peer's READs and our own requests,
// in turns. Called under mu, which it may let go of while it copies. If another
// goroutine is the producer, that one goes on with our work.
func (q *qp) pump() {
	if !q.txMu.TryLock() {
		q.again = true
		return
	}
	defer q.txMu.Unlock()
	if q.state != rdma.QPRTS && q.state != rdma.QPRTR {
		return
	}
	from := q.tx.tail
	for {
		q.again = false
		for q.state != rdma.QPError && q.step() {
		}
		if q.state == rdma.QPError {
			return
		}
		q.retire()
		// Full: say so, and look once more, for the consumer may just have made
		// room without knowing.
		if !q.again && q.blocked() && !q.wantRoom() {
			break
		}
		if !q.again && !q.blocked() {
			break
		}
	}
	if q.tx.tail != from {
		q.wakePeer()
	}
}

// blocked reports whether something waits for room in the ring.
func (q *qp) blocked() bool { return q.tx.stuck }

// wantRoom asks the consumer for a wake-up when there is room; true if there is
// some by now.
func (q *qp) wantRoom() bool {
	q.wakePeer()
	q.tx.h.full.Store(1)
	before := q.tx.head
	if _, ok := q.tx.room(ringSize + 1); !ok {
		q.failLocked(violation(errRing))
		return true
	}
	return q.tx.head != before
}

var errRing = fmt.Errorf("%w: the peer's place in our ring makes no sense", rdma.ErrProtocol)

// step does one piece of work; false if there is none, or no room for it.
func (q *qp) step() bool {
	q.tx.stuck = false
	send := q.sendReady()
	switch {
	case len(q.resp) > 0 && (q.turn || !send):
		q.turn = false
		return q.respond()
	case send:
		q.turn = true
		if q.request() {
			return true
		}
		// A READ that waits for others (requestRead) keeps no answer back: the peer may
		// wait for one before it gives the answer that is waited for.
		if q.state != rdma.QPError && !q.tx.stuck && len(q.resp) > 0 {
			return q.respond()
		}
	}
	return false
}

// sendReady reports whether the next request may begin.
func (q *qp) sendReady() bool {
	if q.sq.next == q.sq.tail {
		return false
	}
	w := q.sq.at(q.sq.next)
	if w.fence && len(q.reads) > 0 {
		return false
	}
	return w.op != rdma.OpRDMARead || len(q.reads) < q.ord || q.seen.has(w.remote.RKey)
}

// request carries out the next request, or a piece of it.
func (q *qp) request() bool {
	w := q.sq.at(q.sq.next)
	if w.op == rdma.OpRDMARead {
		return q.requestRead(w)
	}
	if w.sent == 0 && w.inline == nil && !w.sgl.check(q.pd, 0) {
		q.failLocked(localFault(w.op))
		return false
	}
	typ := recSend
	if w.op == rdma.OpRDMAWrite {
		typ = recWrite
	}
	buf, n, ok := q.reserve(typ, uint64(w.length-w.sent))
	if !ok {
		return false
	}
	data := buf[recordHeader:]
	if typ == recWrite {
		binary.LittleEndian.PutUint64(data, uint64(w.remote.RKey))
		binary.LittleEndian.PutUint64(data[8:], w.remote.Addr+uint64(w.sent))
		data = data[fixedOf[recWrite]:]
	}
	good := true
	if w.inline != nil {
		copy(data, w.inline[w.sent:w.sent+uint32(n)])
	} else {
		big := q.unlock(n)
		good = w.sgl.gather(data[:n], uint64(w.sent))
		q.relock(big)
	}
	if q.state == rdma.QPError {
		return false
	}
	if !good {
		q.failLocked(localFault(w.op))
		return false
	}
	w.sent += uint32(n)
	var flags uint8
	if w.sent == w.length {
		flags = flagLast
		if w.solicit {
			flags |= flagSolicit
		}
		w.done = true
		q.sq.next++
	}
	q.tx.commit(buf, typ, flags, n)
	return true
}

// reserve finds room in the ring for a piece; false if there is none, or the
// connection has failed.
func (q *qp) reserve(typ recType, n uint64) (buf []byte, got uint64, ok bool) {
	buf, got, fits, ok := q.tx.reserve(typ, n, true)
	if !ok {
		q.failLocked(violation(errRing))
		return nil, 0, false
	}
	q.tx.stuck = !fits
	return buf, got, fits
}

// unlock lets go of mu for a copy of n bytes if that takes a while.
func (q *qp) unlock(n uint64) bool {
	if n < copyUnlocked {
		return false
	}
	q.mu.Unlock()
	return true
}

func (q *qp) relock(unlocked bool) {
	if unlocked {
		q.mu.Lock()
	}
}

// requestRead does a READ itself if the region is mapped, else asks the peer.
func (q *qp) requestRead(w *sendWQE) bool {
	if !w.sgl.check(q.pd, rdma.AccessLocalWrite) {
		q.failLocked(localFault(w.op))
		return false
	}
	if r := q.seen.take(w.remote.RKey); r != nil {
		big := q.unlock(uint64(w.length))
		good, local := r.scatter(&w.sgl, w.remote.Addr, w.length)
		var c cause
		if !good {
			c = q.refused()
		}
		r.release()
		q.relock(big)
		switch {
		case q.state == rdma.QPError:
		case local:
			q.failLocked(localFault(w.op))
		case !good && len(q.reads) > 0 && !teeth.Off(teeth.D6RefusedInTurn):
			// The answers to READs before this one may be in the ring already, those
			// of a peer included who takes its regions back because it ends the
			// connection. This READ is tried again when they have been heard; if it
			// failed the QP, the oldest of them would complete with its cause.
		case !good:
			q.failLocked(c)
		default:
			w.done = true
			q.sq.next++
			return true
		}
		return false
	}
	if len(q.reads) >= q.ord {
		return false // it was mapped a moment ago
	}
	buf, _, ok := q.reserve(recRead, 0)
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint64(buf[recordHeader:], uint64(w.remote.RKey)|uint64(w.length)<<32)
	binary.LittleEndian.PutUint64(buf[recordHeader+8:], w.remote.Addr)
	q.reads = append(q.reads, w)
	q.sq.next++
	q.tx.commit(buf, recRead, flagLast, 0)
	return true
}

// respond sends a piece of the answer to the peer's oldest READ. Whether it may
// have it is decided when the answer begins.
func (q *qp) respond() bool {
	r := &q.resp[0]
	if !r.started {
		m, err := (*mr)(nil), r.refused
		if err == nil {
			m, err = q.admit(r)
		}
		if err != nil {
			q.failLocked(forbidden("a READ of the peer", err))
			return false
		}
		r.mr, r.started = m, true
	}
	buf, n, ok := q.reserve(recResp, uint64(r.size-r.sent))
	if !ok {
		return false
	}
	if n > 0 {
		if !r.mr.acquire() {
			q.failLocked(forbidden("a READ of the peer", errClosedRegion))
			return false
		}
		m, from := r.mr, r.addr+uint64(r.sent)
		big := q.unlock(n)
		copyRegion(buf[recordHeader:recordHeader+n], m.buf, from)
		m.release()
		q.relock(big)
		if q.state == rdma.QPError {
			return false
		}
		r = &q.resp[0] // more may have come, and moved it
	}
	r.sent += uint32(n)
	var flags uint8
	if r.sent == r.size {
		flags = flagLast
		q.resp = append(q.resp[:0], q.resp[1:]...)
	}
	q.tx.commit(buf, recResp, flags, n)
	return true
}

// retire completes the oldest requests that are done, in order. Under mu.
func (q *qp) retire() {
	for q.sq.head != q.sq.next {
		w := q.sq.at(q.sq.head)
		if !w.done {
			return
		}
		if w.signaled {
			wc := rdma.WC{ID: w.id, Op: w.op, QPN: q.num}
			if w.op == rdma.OpRDMARead {
				wc.ByteLen = w.length
			}
			q.sendCQ.push(wc)
		}
		q.sq.popHead().free()
	}
}
