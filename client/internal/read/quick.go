package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The quick ways of a get whose key's place is remembered. Two fabrics have one:
//
//	memory that is mapped (rdma.DirectReader, fabric shm): a READ is a copy that the
//	    caller does itself, into a buffer of its own;
//	prepared READs (rdma.SpinReader, fabric verbs): one call posts the READ and polls
//	    for it, and it lands in a sink of the session (session.Short).
//
// So there is no buffer of a pool, no batch and no operation to wait for, and what is
// left is what makes the answer right, the same for both: the lease that was in force
// before the READ, the view that the READ goes by, the checksum, the key, the expiry,
// the clock after the READ.
//
//	quick        a remembered place, one READ, the answer is there: nearly all gets
//	onesided.go  everything else: READs of a batch, each of them a copy where memory is
//	             mapped
//
// quick says only yes. Whatever else it meets it leaves to the other way, which
// begins anew, under a lease of its own.

// A quick is what one such get uses: where what is READ lands, and its part of the
// counters. That of a copy is pooled, and so nearly one for each processor.
type quick struct {
	stripe   int
	sink     []byte        // of a copy
	prepared *session.Sink // of a prepared READ; nil as soon as it is not this call's any more
}

// sinkBytes is what a quick begins with; it grows up to maxItemRead.
const sinkBytes = 1 << 10

var (
	quickPool  = sync.Pool{New: func() any { return newQuick() }}
	nextStripe atomic.Uint32
)

func newQuick() *quick {
	return &quick{stripe: int(nextStripe.Add(1) % base.Stripes), sink: make([]byte, sinkBytes)}
}

// getQuickly answers a get by one READ, if that is all it takes.
func getQuickly(ctx context.Context, s *session.Session, key []byte, w *Query) bool {
	l := &s.Lease
	if s.BySend || l.IsDue() || l.IsLapsed() || ctx.Err() != nil {
		return false // a READ of the beat is due, or no READ would count
	}
	l.Use()
	if !s.Mapped() {
		k := s.Short.Take()
		if k == nil {
			return false
		}
		q := quick{stripe: k.Index, prepared: k}
		ok := q.answer(s, key, w)
		if q.prepared != nil {
			s.Short.End(k) // it is another call's from here on
		}
		return ok
	}
	q := quickPool.Get().(*quick)
	ok := q.answer(s, key, w)
	quickPool.Put(q)
	return ok
}

// answer answers a get by one READ of the place where its key is remembered to be, if
// that is all it takes.
func (q *quick) answer(s *session.Session, key []byte, w *Query) bool {
	st := &s.Counts.Quick[q.stripe]
	var begun int64
	timed := st.Hits.Load()%base.LatencyEvery == 0
	if timed {
		begun = s.Now()
	}
	grant := s.Lease.Grant() // once, before the first READ
	low := s.Time.Low()      // before the first READ, too
	hash := layout.HashKey(s.View().Seed, key)
	loc, dropped := s.Cache.Find(hash, grant.Retired)
	if dropped > 0 {
		s.Counts.ReclaimDropped.Add(uint64(dropped))
	}
	if loc.Size == 0 || loc.Size > maxItemRead {
		return false
	}
	bytes, at := q.read(s, loc)
	if bytes == nil || !answers(s, grant, low, loc.Place, bytes, at, key, w) {
		return false
	}
	w.Path = base.PathOneRead
	st.Bytes.Add(uint64(loc.Size))
	s.Touches.Hit(st.Hits.Add(1)<<4|uint64(q.stripe), hash)
	if timed {
		s.Counts.GetTimes.Observe(time.Duration(s.Now() - begun))
	}
	return true
}

// read READs a place, and returns what stood there and a time after the READ, on the
// lease clock; nil if the READ has to be posted.
func (q *quick) read(s *session.Session, loc layout.Loc) (bytes []byte, at int64) {
	if q.prepared != nil {
		bytes, at, mine := s.Short.Read(q.prepared, loc.Place, int(loc.Size))
		if !mine {
			q.prepared = nil
		}
		return bytes, at
	}
	if int(loc.Size) > len(q.sink) {
		q.sink = make([]byte, maxItemRead)
	}
	bytes = q.sink[:loc.Size]
	if status, known := s.ReadDirect(q.stripe, loc.Place, bytes); !known || status != rdma.StatusSuccess {
		return nil, 0
	}
	return bytes, s.Now()
}

// answers judges what a READ of a place brought, at the given time, and answers the get
// with it: grant and low were loaded before the READ.
func answers(s *session.Session, grant *session.Grant, low uint64, place layout.Place, bytes []byte, at int64, key []byte, w *Query) bool {
	item, mine := layout.AcceptWhole(bytes, s.Incarnation, place, key)
	if !mine || !s.Lease.Holds(grant, at) ||
		item.Expiry != 0 && s.ExpiryOf(item.Expiry, low, at) != session.ExpiryAlive {
		return false
	}
	value := bytes[item.From:item.To]
	if !w.InfoOnly && w.take(value) != nil {
		return false
	}
	// Field by field: a struct that is made first and then copied is read before it is written.
	w.Info.Size, w.Info.Version, w.Info.Expiry = int64(len(value)), uint64(item.Version), time.Time{}
	if item.Expiry != 0 {
		w.Info.Expiry = base.ExpiryTime(item.Expiry)
	}
	if w.InfoOnly {
		w.Info.Size = layout.WholeLen(value)
	}
	return true
}

// errUnmapped: the memory cannot be read directly; a posted READ may.
var errUnmapped = errors.New("memory that is not mapped")

// readAllDirect does what readFor does, by copies.
func readAllDirect(s *session.Session, g *attempt) error {
	reads := g.lookup.Reads
	total := 0
	for i := range reads {
		total += int(reads[i].Len)
	}
	if total > len(g.sink) {
		g.sink = make([]byte, max(total, sinkBytes))
	}
	rest := g.sink
	for i := range reads {
		r := &reads[i]
		r.Buf, rest = rest[:r.Len:r.Len], rest[r.Len:]
		if err := directError(s.ReadDirect(g.stripe, r.Place, r.Buf)); err != nil {
			return err
		}
	}
	n := s.Counts
	n.ReadBatches.Add(1)
	n.Reads.Add(uint64(len(reads)))
	n.ReadBytes.Add(uint64(total))
	if g.words.wantsOwn() {
		buf := g.beat[:layout.CellRead]
		if err := directError(s.ReadDirect(g.stripe, g.words.told.Cell, buf)); err != nil {
			return err
		}
		g.words.sawOwn(buf)
		n.Reads.Add(1)
		n.ReadBytes.Add(layout.CellRead)
	}
	if s.Lease.TakeDue() {
		readBeatDirect(s, g.stripe, g.beat[:])
	}
	return nil
}

// readBeatDirect renews the lease on the way. raw is room for the beat.
func readBeatDirect(s *session.Session, stripe int, raw []byte) {
	posted := s.Now()
	if directError(s.ReadDirect(stripe, s.View().BeatPlace(), raw)) != nil {
		return
	}
	s.Counts.Reads.Add(1)
	s.Counts.ReadBytes.Add(uint64(len(raw)))
	s.ObserveBeat(raw, posted)
}

func directError(status rdma.Status, known bool) error {
	switch {
	case !known:
		return base.ErrNoRegion
	case status == rdma.StatusSuccess:
		return nil
	case status == rdma.StatusLocQPOpErr:
		return errUnmapped
	}
	return base.ErrLost // the cause stands in the QP; watchQP fetches it
}
