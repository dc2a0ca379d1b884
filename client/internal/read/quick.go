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

// The way of a get where the server's memory is mapped (rdma.DirectReader): a READ
// is a copy that the caller does itself, into a buffer of its own. So there is
// nothing to register, to queue, to complete or to wait for, and what is left is
// what makes the answer right: the lease that was in force before the first READ,
// the view that the READ goes by, the checksum, the key, the expiry, the clock.
//
//	quick        a remembered place, one READ, the answer is there: nearly all gets
//	onesided.go  everything else, as on any fabric, each READ of a batch a copy
//
// quick says only yes. Whatever else it meets it leaves to the other way, which
// begins anew, under a lease of its own.

// A quick is what one call of quickly uses. It is pooled, and so nearly one
// for each processor.
type quick struct {
	stripe int
	sink   []byte
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

// getQuickly is quickly where there is reason to try it.
func getQuickly(ctx context.Context, s *session.Session, key []byte, w *Query) bool {
	l := &s.Lease
	if s.SendOnly || l.IsDue() || l.IsLapsed() || ctx.Err() != nil {
		return false // a READ of the beat is due, or no READ would count
	}
	l.Use()
	q := quickPool.Get().(*quick)
	ok := quickly(s, q, key, w)
	quickPool.Put(q)
	return ok
}

// quickly answers a get by one READ of the place where its key is remembered to be,
// if that is all it takes.
func quickly(s *session.Session, q *quick, key []byte, w *Query) bool {
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
	if int(loc.Size) > len(q.sink) {
		q.sink = make([]byte, maxItemRead)
	}
	sink := q.sink[:loc.Size]
	if status, ok := s.ReadDirect(q.stripe, loc.Place, sink); !ok || status != rdma.StatusSuccess {
		return false
	}
	item, mine := layout.AcceptWhole(sink, s.Incarnation, loc.Place, key)
	now := s.Now()
	if !mine || !s.Lease.Holds(grant, now) ||
		item.Expiry != 0 && s.ExpiryOf(item.Expiry, low, now) != session.ExpiryAlive {
		return false
	}
	value := sink[item.From:item.To]
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
	w.Path = base.PathOneRead
	st.Bytes.Add(uint64(len(sink)))
	s.Touches.Hit(st.Hits.Add(1)<<4|uint64(q.stripe), hash)
	if timed {
		s.Counts.GetTimes.Observe(time.Duration(s.Now() - begun))
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
