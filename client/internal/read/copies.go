package read

import (
	"context"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Many keys where memory is mapped. A get there waits for memory twice, for the place that is remembered and
// for the item, and for nothing else; a processor waits for many lines of memory in the time of one. So each step is
// done for all keys before the next one:
//
//	hash ─▶ ask for the set ─▶ find the place ─▶ ask for the item ─▶ copy ─▶ one clock ─▶ judge each
//
// The READ of the beat, which renews the lease, comes along behind a part if it is due.
//
// What makes an answer right is as in quick: one grant before the first READ, the clock after the last copy, and
// for each item checksum, key and expiry. A key that is not answered so is left to the ways of a single get, which
// begin anew.

const (
	copyKeys  = 64       // keys whose copies are made together
	copyBytes = 32 << 10 // and of how many bytes, because they are read again at once
)

// copies is what one call of copyMany uses; pooled.
type copies struct {
	stripe int
	n      int // keys of the part under way
	which  [copyKeys]int
	hashes [copyKeys]layout.Hash
	reads  [copyKeys]session.Copy
	sink   []byte
	beat   [layout.BeatSize]byte
}

var copiesPool = sync.Pool{New: func() any {
	return &copies{stripe: int(nextStripe.Add(1) % base.Stripes), sink: make([]byte, copyBytes)}
}}

// copyMany answers those keys, of which the indexes are given, that one copy each answers.
func copyMany(ctx context.Context, s *session.Session, keys [][]byte, results []base.Result, which []int) {
	q := copiesPool.Get().(*copies)
	for len(which) > 0 {
		l := &s.Lease
		if s.BySend || s.IsDown() || l.IsLapsed() || ctx.Err() != nil {
			break // no READ would count
		}
		l.Use()
		n := min(len(which), copyKeys)
		q.part(s, keys, results, which[:n])
		which = which[n:]
		if l.TakeDue() {
			readBeatDirect(s, q.stripe, q.beat[:])
		}
	}
	copiesPool.Put(q)
}

// part does what copyMany does for at most copyKeys keys.
func (q *copies) part(s *session.Session, keys [][]byte, results []base.Result, which []int) {
	grant := s.Lease.Grant() // once, before the first READ
	low := s.Time.Low()      // before the first READ, too
	seed := s.View().Seed
	q.n = 0
	for _, i := range which {
		if base.CheckKey(keys[i]) != nil {
			continue // the single get says so
		}
		h := layout.HashKey(seed, keys[i])
		s.Cache.Ahead(h)
		q.hashes[q.n], q.which[q.n] = h, i
		q.n++
	}
	q.find(s, grant)
	session.Copies(q.reads[:q.n]).Read(s, q.stripe)
	now := s.Now()
	if !s.Lease.Holds(grant, now) {
		return
	}
	q.judge(s, keys, results, low, now)
}

// find leaves those keys whose place is remembered, each with a READ of its place.
func (q *copies) find(s *session.Session, grant *session.Grant) {
	rest, found, dropped := q.sink, 0, 0
	for j := range q.n {
		loc, gone := s.Cache.Find(q.hashes[j], grant.Retired)
		dropped += gone
		if loc.Size == 0 || int(loc.Size) > len(rest) {
			continue
		}
		q.hashes[found], q.which[found] = q.hashes[j], q.which[j]
		q.reads[found] = session.Copy{Place: loc.Place, Sink: rest[:loc.Size:loc.Size]}
		rest = rest[loc.Size:]
		found++
	}
	q.n = found
	if dropped > 0 {
		s.Counts.ReclaimDropped.Add(uint64(dropped))
	}
}

// judge answers the keys whose items were found.
func (q *copies) judge(s *session.Session, keys [][]byte, results []base.Result, low uint64, now int64) {
	st := &s.Counts.Quick[q.stripe]
	var hits, bytes uint64
	room := arena{more: q.n}
	for j := range q.n {
		c, i := &q.reads[j], q.which[j]
		if !c.Known || c.Status != rdma.StatusSuccess {
			continue
		}
		item, mine := layout.AcceptWhole(c.Sink, s.Incarnation, c.Place, keys[i])
		if !mine || item.Expiry != 0 && s.ExpiryOf(item.Expiry, low, now) != session.ExpiryAlive {
			continue
		}
		r := &results[i]
		r.Value = append(room.of(r.Value, item.To-item.From), c.Sink[item.From:item.To]...)
		r.Err = nil
		q.hashes[hits] = q.hashes[j]
		hits++
		bytes += uint64(len(c.Sink))
	}
	if hits == 0 {
		return
	}
	st.Bytes.Add(bytes)
	last := st.Hits.Add(hits)
	for j := range hits {
		s.Touches.Hit((last-j)<<4|uint64(q.stripe), q.hashes[j])
	}
}

// An arena is memory for the small values of one call, which share an allocation: a value that its owner keeps
// keeps up to arenaBytes.
type arena struct {
	free []byte
	more int // how many values may still come
}

const (
	arenaBytes = 8 << 10
	arenaMost  = 512 // bytes of a value that shares
)

// of returns memory for a value of n bytes: dst if that has the capacity for it.
func (a *arena) of(dst []byte, n int) []byte {
	switch {
	case dst != nil && cap(dst) >= n:
		return dst[:0]
	case n > arenaMost || n == 0:
		return make([]byte, 0, n)
	}
	if len(a.free) < n {
		a.free = make([]byte, max(n, min(n*a.more, arenaBytes)))
	}
	a.more--
	room := a.free[:0:n]
	a.free = a.free[n:]
	return room
}
