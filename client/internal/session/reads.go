package session

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Reads is a list of READs that travel with one doorbell and end with one
// completion: only the last one is signaled, and since completions of one QP
// come in order it vouches for those before it.
//
// Life: add …, post, wait, bytes …, release; then it may be used again. If
// wait gives up, the batch belongs to its completion: the caller must let go of
// it, and cleanup frees the buffer when the fabric has let go of it too.
type Reads struct {
	s     *Session
	View  *View
	wrs   []rdma.SendWR
	sges  []rdma.SGE
	from  []layout.Place // of each READ
	at    []int          // offset in buf of each READ
	total int            // bytes

	buf *device.Buffer

	beat   int   // index of the beat's READ, or -1
	posted int64 // boot time just before the post, if there is a beat
	op     *wait.Op
	polled int64         // when its completion was polled, on the lease clock; 0: the fabric did not look
	Lone   bool          // waited for as soon as it is posted
	onGone func(rdma.WC) // bound once
}

var batchPool sync.Pool

// NewReads begins a batch under one view.
func (s *Session) NewReads(v *View) *Reads {
	b, ok := batchPool.Get().(*Reads)
	if !ok {
		b = new(Reads)
		b.onGone = b.cleanup
	}
	b.reset(s, v)
	return b
}

func (b *Reads) reset(s *Session, v *View) {
	b.s, b.View = s, v
	b.wrs, b.sges, b.from, b.at = b.wrs[:0], b.sges[:0], b.from[:0], b.at[:0]
	b.total, b.beat, b.buf, b.Lone = 0, -1, nil, false
	b.polled = 0
}

// Add asks for n bytes, a multiple of 8, from a place. It returns the index for
// bytes, or errNoRegion.
func (b *Reads) Add(p layout.Place, n int) (int, error) {
	remote, ok := b.View.at(p, n)
	if !ok || n <= 0 {
		return 0, base.ErrNoRegion
	}
	b.wrs = append(b.wrs, rdma.SendWR{Op: rdma.OpRDMARead, Remote: remote})
	b.sges = append(b.sges, rdma.SGE{Len: uint32(n)})
	b.from = append(b.from, p)
	b.at = append(b.at, b.total)
	b.total += n
	return len(b.at) - 1, nil
}

// AddBeat lets the batch renew the lease on the way.
func (b *Reads) AddBeat() {
	if i, err := b.Add(b.View.BeatPlace(), layout.BeatSize); err == nil {
		b.beat = i
	}
}

// Reserve takes buffer and send queue space before post does, if both are free:
// for a caller that has another batch under way, which it alone can finish. It
// must wait for neither: callers that do so together would hold all there is and
// wait for each other.
func (b *Reads) Reserve() bool {
	if b.buf = b.s.Device.Buffers.TakeNow(b.total); b.buf == nil {
		return false
	}
	if !b.s.ReadSpace.TryEnter(len(b.wrs)) {
		b.s.Device.Buffers.Put(b.buf)
		b.buf = nil
		return false
	}
	return true
}

// Into gets the place into which a window of chunks is READ: that from offset at on
// of sink, if there is one, else a buffer of the pool, which post sees to. Without must it waits for nothing and says false where it would have to.
func (b *Reads) Into(p *base.Limit, sink *device.Owned, at int, must bool) (ok bool, err error) {
	if sink == nil {
		return must || b.Reserve(), nil
	}
	buf, err := sink.On(b.s.Device)
	if err != nil {
		return false, err
	}
	if must {
		if err := p.Enter(b.s.ReadSpace, len(b.wrs)); err != nil {
			return false, err
		}
	} else if !b.s.ReadSpace.TryEnter(len(b.wrs)) {
		return false, nil
	}
	sink.Use()
	b.buf = buf
	for i := range b.at {
		b.at[i] += at
	}
	return true, nil
}

// Post takes space in the send queue and rings the doorbell. The READs go by the
// view in force at that moment, whichever they were added under: errNoRegion if it
// does not have a place any more. After an error nothing is under way and the
// batch may be released.
func (b *Reads) Post(p *base.Limit) error {
	s, n := b.s, len(b.wrs)
	if b.buf == nil { // unless reserve has taken both
		buf, err := s.Device.Buffers.Take(p, b.total)
		if err != nil {
			return err
		}
		b.buf = buf
		if err := p.Enter(s.ReadSpace, n); err != nil {
			return err
		}
	}
	for i := range b.wrs {
		b.sges[i] = b.buf.SGE(b.at[i], b.sges[i].Len)
		b.wrs[i].SGL = b.sges[i : i+1]
		b.wrs[i].ID, b.wrs[i].Flags = 0, 0
	}
	if err := b.enterView(); err != nil {
		s.ReadSpace.Leave(n)
		return err
	}
	b.op = s.d.NewOp()
	b.op.OnDetached(b.onGone)
	b.wrs[n-1].ID, b.wrs[n-1].Flags = b.op.ID(), rdma.SendSignaled
	if b.beat >= 0 {
		b.posted = s.Now()
	}
	s.readsPosted.Add(1)
	taken, err := 0, error(nil)
	if b.Lone {
		taken, err = s.d.PostSend(s.QP, b.wrs, b.op)
	} else {
		taken, err = s.QP.PostSend(b.wrs)
	}
	if taken == n {
		c := s.Counts
		c.ReadBatches.Add(1)
		c.Reads.Add(uint64(n))
		c.ReadBytes.Add(uint64(b.total))
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
	s.Fail(fmt.Errorf("send queue took %d of %d READs: %w", taken, n, err))
	b.abandon()
	return ErrAbandoned
}

// ErrAbandoned: the batch belongs to its completion now, and the session is
// lost.
var ErrAbandoned = fmt.Errorf("READs given up on: %w", base.ErrLost)

// abandon leaves the batch, and its buffer, to the completion.
func (b *Reads) abandon() {
	b.s.Device.Buffers.Quarantine(b.buf)
	b.s.d.Detach(b.op)
}

// Wait waits for the completion. After ErrAbandoned or an end of p's context
// the batch must not be touched again; ok tells.
func (b *Reads) Wait(p *base.Limit) (mine bool, err error) {
	s, buf := b.s, b.buf
	wc, err := s.d.Wait(p.Ctx, b.op)
	if err != nil {
		// The batch may be gone already, buf is only read for its size.
		if q := s.Device.Buffers.Quarantine(buf); q > s.Device.MaxQuarantine {
			s.Fail(fmt.Errorf("%w: %d bytes of buffers wait for READs that nobody answers", base.ErrUnavailable, q))
		}
		return false, s.waitError(err)
	}
	b.finish()
	if s.direct == nil && s.World.Now == nil { // then the lease clock is boottime.Nanos
		b.polled = wc.Polled
	}
	if wc.Status != rdma.StatusSuccess {
		return true, base.ErrLost // the cause stands in the QP; watchQP fetches it
	}
	if b.beat >= 0 {
		s.ObserveBeat(b.Bytes(b.beat), b.posted)
	}
	return true, nil
}

// Handled is the time at which what the batch brought was polled, on the lease
// clock: the one reading that a batch takes, unless the fabric has looked.
func (b *Reads) Handled() int64 {
	if b.polled != 0 {
		return b.polled
	}
	return b.s.Now()
}

// finish notes that the READs are no longer under way.
func (b *Reads) finish() {
	b.View.under.Add(-1)
	b.s.readsDone.Add(1)
	b.s.ReadSpace.Leave(len(b.wrs))
}

// cleanup runs when the completion of an abandoned batch arrives, at the
// latest when the session is torn down: the buffer leaves quarantine.
func (b *Reads) cleanup(rdma.WC) {
	b.finish()
	pool := b.s.Device.Buffers
	pool.Release(b.buf)
	b.buf = nil
	batchPool.Put(b)
}

// Bytes is what READ i brought, after wait.
func (b *Reads) Bytes(i int) []byte {
	at, n := b.at[i], int(b.sges[i].Len)
	return b.buf.Mem[at : at+n : at+n]
}

// Clear gives the buffer back and readies the batch for other READs.
func (b *Reads) Clear() {
	b.s.Device.Buffers.Put(b.buf)
	b.reset(b.s, b.View)
}

// Release ends the use of the batch.
func (b *Reads) Release() {
	b.Clear()
	b.s, b.View = nil, nil
	batchPool.Put(b)
}

// Run posts and waits. mine is false when the batch is no longer the caller's.
func (b *Reads) Run(p *base.Limit) (mine bool, err error) {
	b.Lone = true // it is waited for at once
	if err := b.Post(p); err != nil {
		return !errors.Is(err, ErrAbandoned), err
	}
	return b.Wait(p)
}

// Full reports that n more READs of so many bytes do not go into a batch of at most
// maxReads READs and maxBytes bytes; one that is empty takes whatever it is given.
func (b *Reads) Full(n, bytes, maxReads, maxBytes int) bool {
	return len(b.at) > 0 && (len(b.at)+n > min(maxReads, b.s.Device.MaxReads-1) || b.total+bytes > maxBytes)
}

// Len is the number of READs.
func (b *Reads) Len() int { return len(b.at) }

// HasBeat reports whether the batch renews the lease on the way.
func (b *Reads) HasBeat() bool { return b.beat >= 0 }

// InPlace reports that the READs land in memory of the program itself (room).
func (b *Reads) InPlace() bool { return b.buf.IsOwned() }

// IsDone reports whether Wait would not wait.
func (b *Reads) IsDone() bool { return b.op.Finished() }

// Leave gives the batch up, which was posted: it is its completion's from here on.
func (b *Reads) Leave() { b.abandon() }
