package client

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A batch is a list of READs that travel with one doorbell and end with one
// completion: only the last one is signaled, and since completions of one QP
// come in order it vouches for those before it.
//
// Life: add …, post, wait, bytes …, release; then it may be used again. If
// wait gives up, the batch belongs to its completion: the caller must let go of
// it, and cleanup frees the buffer when the fabric has let go of it too.
type batch struct {
	s     *session
	v     *view
	wrs   []rdma.SendWR
	sges  []rdma.SGE
	from  []layout.Place // of each READ
	at    []int          // offset in buf of each READ
	total int            // bytes

	buf *buffer

	beat   int   // index of the beat's READ, or -1
	posted int64 // boot time just before the post, if there is a beat
	op     *rdma.Op
	polled int64         // when its completion was polled, on the lease clock; 0: nobody looked
	lone   bool          // waited for as soon as it is posted
	onGone func(rdma.WC) // bound once
}

var batchPool sync.Pool

// newBatch begins a batch under one view.
func (s *session) newBatch(v *view) *batch {
	b, ok := batchPool.Get().(*batch)
	if !ok {
		b = new(batch)
		b.onGone = b.cleanup
	}
	b.reset(s, v)
	return b
}

func (b *batch) reset(s *session, v *view) {
	b.s, b.v = s, v
	b.wrs, b.sges, b.from, b.at = b.wrs[:0], b.sges[:0], b.from[:0], b.at[:0]
	b.total, b.beat, b.buf, b.lone = 0, -1, nil, false
	b.polled = 0
}

// add asks for n bytes, a multiple of 8, from a place. It returns the index for
// bytes, or errNoRegion.
func (b *batch) add(p layout.Place, n int) (int, error) {
	remote, ok := b.v.at(p, n)
	if !ok || n <= 0 {
		return 0, errNoRegion
	}
	b.wrs = append(b.wrs, rdma.SendWR{Op: rdma.OpRDMARead, Remote: remote})
	b.sges = append(b.sges, rdma.SGE{Len: uint32(n)})
	b.from = append(b.from, p)
	b.at = append(b.at, b.total)
	b.total += n
	return len(b.at) - 1, nil
}

// addBeat lets the batch renew the lease on the way.
func (b *batch) addBeat() {
	if i, err := b.add(b.v.BeatPlace(), layout.BeatSize); err == nil {
		b.beat = i
	}
}

// reserve takes buffer and send queue space before post does, if both are free:
// for a caller who has another batch under way, which he alone can finish. He
// must wait for neither: callers who do so together would hold all there is and
// wait for each other.
func (b *batch) reserve() bool {
	if b.buf, _, _ = b.s.t.buffers.try(b.total); b.buf == nil {
		return false
	}
	if !b.s.reads.tryEnter(len(b.wrs)) {
		b.s.t.buffers.put(b.buf)
		b.buf = nil
		return false
	}
	return true
}

// post takes space in the send queue and rings the doorbell. The READs go by the
// view in force at that moment, whichever they were added under: errNoRegion if it
// does not have a place any more. After an error nothing is under way and the
// batch may be released.
func (b *batch) post(p *patience) error {
	s, n := b.s, len(b.wrs)
	if b.buf == nil { // unless reserve has taken both
		buf, err := p.buffer(s.t.buffers, b.total)
		if err != nil {
			return err
		}
		b.buf = buf
		if err := p.enter(s.reads, n); err != nil {
			return err
		}
	}
	for i := range b.wrs {
		sge := &b.sges[i]
		sge.MR, sge.Off = b.buf.block.mr, b.buf.off+uint64(b.at[i])
		b.wrs[i].SGL = b.sges[i : i+1]
		b.wrs[i].ID, b.wrs[i].Flags = 0, 0
	}
	if err := b.enterView(); err != nil {
		s.reads.leave(n)
		return err
	}
	b.op = s.d.NewOp()
	b.op.OnDetached(b.onGone)
	b.wrs[n-1].ID, b.wrs[n-1].Flags = b.op.ID(), rdma.SendSignaled
	if b.beat >= 0 {
		b.posted = s.now()
	}
	s.readsPosted.Add(1)
	taken, err := 0, error(nil)
	if b.lone {
		taken, err = s.d.PostSend(s.qp, b.wrs, b.op)
	} else {
		taken, err = s.qp.PostSend(b.wrs)
	}
	if taken == n {
		c := &s.c.n
		c.readBatches.Add(1)
		c.reads.Add(uint64(n))
		c.readBytes.Add(uint64(b.total))
		if teeth.Enabled {
			teeth.At("client.posted", uint64(n))
		}
		return nil
	}
	if taken == 0 {
		s.d.Release(b.op)
		b.finish()
		return postError(err)
	}
	// Some READs are under way and none of them is signaled: the only way to
	// get their buffer back is the end of the QP, and that is also what a
	// fabric deserves that takes half a batch although there was room.
	s.fail(fmt.Errorf("send queue took %d of %d READs: %w", taken, n, err))
	b.abandon()
	return errAbandoned
}

// errAbandoned: the batch belongs to its completion now, and the session is
// lost.
var errAbandoned = fmt.Errorf("READs given up on: %w", errLost)

// abandon leaves the batch, and its buffer, to the completion.
func (b *batch) abandon() {
	b.s.t.buffers.quarantine(b.buf)
	b.s.d.Detach(b.op)
}

// wait waits for the completion. After errAbandoned or an end of p's context
// the batch must not be touched again; ok tells.
func (b *batch) wait(p *patience) (mine bool, err error) {
	s, buf := b.s, b.buf
	wc, err := s.d.Wait(p.ctx, b.op)
	if err != nil {
		// The batch may be gone already, buf is only read for its size.
		if q := s.t.buffers.quarantine(buf); q > s.t.maxQuarantine {
			s.fail(fmt.Errorf("%w: %d bytes of buffers wait for READs that nobody answers", ErrUnavailable, q))
		}
		return false, s.waitError(err)
	}
	b.finish()
	if s.direct == nil && s.c.cfg.clock == nil { // then the lease clock is CLOCK_BOOTTIME
		b.polled = wc.Polled
	}
	if wc.Status != rdma.StatusSuccess {
		return true, errLost // the cause stands in the QP; watchQP fetches it
	}
	if b.beat >= 0 {
		s.observeBeat(b.bytes(b.beat), b.posted)
	}
	return true, nil
}

// handled is the time at which what the batch brought was polled, on the lease
// clock: the one reading that a batch takes, which costs a system call only where
// the fabric has not looked.
func (b *batch) handled() int64 {
	if b.polled != 0 {
		return b.polled
	}
	return b.s.now()
}

// handled is batch.handled of the last batch of a get, or now.
func (g *get) handled(s *session) int64 {
	if g.b != nil {
		return g.b.handled()
	}
	return s.now()
}

// finish notes that the READs are no longer under way.
func (b *batch) finish() {
	b.v.under.Add(-1)
	b.s.readsDone.Add(1)
	b.s.reads.leave(len(b.wrs))
}

// cleanup runs when the completion of an abandoned batch arrives, at the
// latest when the session is torn down: the buffer leaves quarantine.
func (b *batch) cleanup(rdma.WC) {
	b.finish()
	pool := b.s.t.buffers
	pool.release(b.buf)
	b.buf = nil
	batchPool.Put(b)
}

// bytes is what READ i brought, after wait.
func (b *batch) bytes(i int) []byte {
	at, n := b.at[i], int(b.sges[i].Len)
	return b.buf.mem[at : at+n : at+n]
}

// clear gives the buffer back and readies the batch for other READs.
func (b *batch) clear() {
	b.s.t.buffers.put(b.buf)
	b.reset(b.s, b.v)
}

// release ends the use of the batch.
func (b *batch) release() {
	b.clear()
	b.s, b.v = nil, nil
	batchPool.Put(b)
}

// run posts and waits. mine is false when the batch is no longer the caller's.
func (b *batch) run(p *patience) (mine bool, err error) {
	b.lone = true // it is waited for at once
	if err := b.post(p); err != nil {
		return !errors.Is(err, errAbandoned), err
	}
	return b.wait(p)
}

// observeBeat takes a beat that a READ posted at the given time has shown. What
// must be asked or read because of it is left to the watch: no get waits for it.
func (s *session) observeBeat(raw []byte, posted int64) {
	beat, err := layout.ParseBeat(raw, s.incarnation)
	if err != nil {
		return // not begun to beat yet
	}
	s.time.beat(beat.TimeMicros, posted)
	before := s.lease.current.Load()
	_, behind := s.lease.observe(beat, posted)
	if g := s.lease.current.Load(); g != before {
		s.c.n.renewals.Add(1)
		if s.lease.lapsed.Load() && s.now() < g.deadline {
			s.lease.lapsed.Store(false)
		}
	}
	if behind {
		s.c.poke()
	}
	s.sawView(beat.ViewVersion)
}
