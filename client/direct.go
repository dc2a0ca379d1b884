package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The way of a get where the server's memory is mapped (rdma.DirectReader): a READ
// is a copy that the caller does itself, into a buffer of its own. So there is
// nothing to register, to queue, to complete or to wait for, and what is left is
// what makes the answer right: the lease that was in force before the first READ,
// the view that the READ goes by, the checksum, the key, the expiry, the clock.
//
//	quick      a remembered place, one READ, the answer is there: nearly all gets
//	reader.go  everything else, as on any fabric, each READ of a batch a copy
//
// quick says only yes. Whatever else it meets it leaves to the other way, which
// begins anew, under a lease of its own.

// stripes is into how many parts counters are cut that every direct get writes, so
// that two processors seldom write the same line.
const stripes = 16

// A stripe is a part of the counters of quick.
type stripe struct {
	hits, bytes atomic.Uint64
	_           [48]byte
}

// A paddedCount has a line of its own.
type paddedCount struct {
	n atomic.Int64
	_ [56]byte
}

// A quick is what one call of session.quick uses. It is pooled, and so nearly one
// for each processor.
type quick struct {
	stripe int
	sink   []byte
	item   layout.ItemView
}

// sinkBytes is what a quick begins with; it grows up to maxItemRead.
const sinkBytes = 1 << 10

var (
	quickPool   = sync.Pool{New: func() any { return newQuick() }}
	nextStripe  atomic.Uint32
	monoStarted = time.Now()
)

func newQuick() *quick {
	return &quick{stripe: int(nextStripe.Add(1) % stripes), sink: make([]byte, sinkBytes)}
}

// monoNanos is the lease clock of a session with a server on the same machine: the
// two sleep together, so the clock need not count suspend (bootNanos), and this one
// is no system call.
func monoNanos() int64 { return int64(time.Since(monoStarted)) }

// readDirect READs from a place by the view in force. It is false if that view does
// not have the place.
func (s *session) readDirect(stripe int, p layout.Place, sink []byte) (rdma.Status, bool) {
	for {
		v := s.view.Load()
		under := &v.direct[stripe].n
		under.Add(1)
		if s.view.Load() != v { // as batch.enterView
			under.Add(-1)
			continue
		}
		remote, ok := v.at(p, len(sink))
		status := rdma.StatusSuccess
		if ok {
			status = s.direct.ReadDirect(sink, remote)
		}
		under.Add(-1)
		return status, ok
	}
}

// getQuickly is quick where there is reason to try it.
func (s *session) getQuickly(ctx context.Context, key []byte, w *want) bool {
	l := &s.lease
	if s.sendOnly || l.due.Load() || l.lapsed.Load() || ctx.Err() != nil {
		return false // a READ of the beat is due, or no READ would count
	}
	if !l.used.Load() {
		l.used.Store(true)
	}
	q := quickPool.Get().(*quick)
	ok := s.quick(q, key, w)
	quickPool.Put(q)
	return ok
}

// quick answers a get by one READ of the place where its key is remembered to be,
// if that is all it takes.
func (s *session) quick(q *quick, key []byte, w *want) bool {
	st := &s.c.n.quick[q.stripe]
	var begun int64
	timed := st.hits.Load()%latencyEvery == 0
	if timed {
		begun = s.now()
	}
	grant := s.lease.current.Load() // once, before the first READ: rule F4
	low := s.time.low.Load()        // likewise: rule F12
	hash := layout.HashKey(s.view.Load().Seed, key)
	loc, dropped := s.cache.find(hash, grant.retired)
	if dropped > 0 {
		s.c.n.reclaimDropped.Add(uint64(dropped))
	}
	if loc.Size == 0 || loc.Size > maxItemRead {
		return false
	}
	if int(loc.Size) > len(q.sink) {
		q.sink = make([]byte, maxItemRead)
	}
	sink := q.sink[:loc.Size]
	if status, ok := s.readDirect(q.stripe, loc.Place, sink); !ok || status != rdma.StatusSuccess {
		return false
	}
	item := &q.item
	mine := item.Accept(sink, s.incarnation, loc.Place, key)
	if teeth.Enabled && mine {
		teeth.At("client.found", uint64(item.Version))
	}
	now := s.now()
	if !mine || item.Chunks > 0 || !s.lease.holds(grant, now) ||
		item.Expiry != 0 && s.expiryOf(item, low, now) != expiryAlive {
		return false
	}
	if !w.infoOnly && w.take(item.Value()) != nil {
		return false
	}
	w.info = Info{Size: int64(item.ValLen), Version: uint64(item.Version), Expiry: expiryTime(item.Expiry)}
	w.path = PathOneRead
	st.bytes.Add(uint64(len(sink)))
	s.touches.hit(st.hits.Add(1)<<4|uint64(q.stripe), hash)
	if timed {
		s.c.n.getTimes.observe(time.Duration(s.now() - begun))
	}
	return true
}

// errUnmapped: the memory cannot be read directly; a posted READ may.
var errUnmapped = errors.New("memory that is not mapped")

// readAllDirect does what readFor does, by copies.
func (s *session) readAllDirect(g *get) error {
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
		if err := directError(s.readDirect(g.stripe, r.Place, r.Buf)); err != nil {
			return err
		}
	}
	n := &s.c.n
	n.readBatches.Add(1)
	n.reads.Add(uint64(len(reads)))
	n.readBytes.Add(uint64(total))
	if l := &s.lease; l.due.Load() && l.due.CompareAndSwap(true, false) {
		s.readBeatDirect(g)
	}
	return nil
}

// readBeatDirect renews the lease on the way.
func (s *session) readBeatDirect(g *get) {
	raw := g.beat[:]
	posted := s.now()
	if directError(s.readDirect(g.stripe, s.view.Load().BeatPlace(), raw)) != nil {
		return
	}
	s.c.n.reads.Add(1)
	s.c.n.readBytes.Add(uint64(len(raw)))
	s.observeBeat(raw, posted)
}

func directError(status rdma.Status, known bool) error {
	switch {
	case !known:
		return errNoRegion
	case status == rdma.StatusSuccess:
		return nil
	case status == rdma.StatusLocQPOpErr:
		return errUnmapped
	}
	return errLost // the cause stands in the QP; watchQP fetches it
}
