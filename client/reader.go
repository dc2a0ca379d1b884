package client

import (
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The one-sided half of a get: layout.Lookup says what to READ and what the
// bytes mean, this file READs it, and decides by the lease whether the answer
// counts.

// maxItemRead is the largest single READ of an item in bytes: the largest class
// that holds an item which is not chunked. Of a larger one only the head is
// READ, its chunks are fetched by large.go.
var maxItemRead = func() uint32 {
	class, ok := layout.ClassFor(layout.MaxWholeItemSize)
	if !ok {
		panic("client: no class for the largest whole item")
	}
	return uint32(layout.ClassSize(class))
}()

// A get is the state of one key's get. It is pooled: nothing in it is allocated
// per call. After ActionFound the item's bytes stand in the batch's buffer
// until release.
type get struct {
	lookup layout.Lookup
	b      *batch
	hash   layout.Hash
	grant  *grant
	low    uint64 // what the server's time was at least, before the first READ

	cached layout.Loc // where the get began to look
	item   layout.ItemView
	loc    layout.Loc

	strange     bool   // it met a place in no region of the view …
	viewVersion uint64 // … of this version

	// For READs that are copies (direct.go).
	stripe int
	sink   []byte
	beat   [layout.BeatSize]byte
}

var getPool = sync.Pool{New: func() any { return &get{stripe: int(nextStripe.Add(1) % stripes)} }}

// release lets go of the buffer.
func (g *get) release() {
	if g.b != nil {
		g.b.release()
		g.b = nil
	}
	g.item, g.grant = layout.ItemView{}, nil
	if len(g.sink) > int(maxItemRead) {
		g.sink = nil // several large candidates: seldom
	}
}

// start begins the lookup of key under the lease in force now.
func (s *session) start(g *get, v *view, key []byte) {
	grant := s.lease.current.Load() // once, before the first READ: rule F4
	hash := layout.HashKey(v.Seed, key)
	cached, dropped := s.cache.find(hash, grant.retired)
	if dropped > 0 {
		s.c.n.reclaimDropped.Add(uint64(dropped))
	}
	if cached.Size != 0 {
		s.c.n.cacheHits.Add(1)
	} else {
		s.c.n.cacheMisses.Add(1)
	}
	s.startAt(g, v, key, hash, cached, grant)
}

// startAt is start where it is known what the cache remembers, by the retired pages
// that grant knows.
func (s *session) startAt(g *get, v *view, key []byte, hash layout.Hash, cached layout.Loc, grant *grant) {
	g.grant = grant
	g.low = s.time.low.Load() // before the first READ: rule F12
	g.hash, g.cached = hash, cached
	shard := cluster.ShardOf(key, int(v.Shards))
	g.lookup.PairByPair = s.direct != nil // a READ costs a cache miss, no round trip
	g.lookup.Start(&v.View, s.dir, shard, key, cached, maxItemRead)
}

// A verdict is what the one-sided way came to.
type verdict uint8

const (
	verdictFound  verdict = iota + 1 // g.item holds the key, g.loc its place
	verdictAbsent                    // the key does not exist
	verdictAsk                       // ask by SEND
)

// leaseTries is how often a get is made again because its lease ran out while
// it was under way.
const leaseTries = 2

// oneSided gets key by READs. An error means that the session is lost, or the
// call's time over.
func (s *session) oneSided(p *patience, g *get, key []byte) (verdict, error) {
	l := &s.lease
	if !l.used.Load() {
		l.used.Store(true)
	}
	for range leaseTries {
		if l.lapsed.Load() {
			s.c.poke() // gets are being made again: renew
			break
		}
		answer, err := s.oneSidedOnce(p, g, key)
		now := g.handled(s)
		switch {
		case err != nil:
			g.release()
			return 0, err
		case answer == verdictAsk:
			g.release()
			if g.strange && s.learnRegions(p, g.viewVersion) {
				continue
			}
			return answer, nil
		case l.holds(g.grant, now):
			if answer == verdictFound && g.item.Expiry != 0 {
				switch s.judgeExpiry(&g.item, g.low, now) {
				case expiryPassed:
					answer = verdictAbsent
				case expiryAsk:
					g.release()
					return verdictAsk, nil
				}
			}
			if answer == verdictAbsent {
				s.cache.drop(g.hash)
			} else if g.loc.Place != g.cached.Place || g.loc.Size > g.cached.Size {
				s.cache.put(g.hash, g.loc, g.grant.retired)
			} // else find has renewed what is still true
			return answer, nil
		}
		// Handled too late: the answer is worth nothing.
		s.c.n.expired.Add(1)
		s.c.n.leaseRetry.Add(1)
		expired := g.grant
		g.release()
		if l.current.Load() == expired {
			l.lapsed.Store(true)
		}
	}
	s.c.n.fbNoLease.Add(1)
	return verdictAsk, nil
}

// oneSidedOnce is one try, under one grant, which the caller compares with the
// clock afterwards.
func (s *session) oneSidedOnce(p *patience, g *get, key []byte) (verdict, error) {
	v := s.view.Load()
	g.strange, g.viewVersion = false, v.Version
	s.start(g, v, key)
	for {
		switch g.lookup.Step() {
		case layout.ActionRead:
			if err := s.readFor(p, g, v); err != nil {
				s.count(&g.lookup.Counts)
				if errors.Is(err, errNoRegion) {
					g.strange = true
					s.askFor(layout.ReasonUnknownRegion)
					return verdictAsk, nil
				}
				return 0, err
			}
		case layout.ActionFound:
			s.count(&g.lookup.Counts)
			g.item, g.loc = g.lookup.Found()
			if teeth.Enabled {
				teeth.At("client.found", uint64(g.item.Version))
			}
			return verdictFound, nil
		case layout.ActionAbsent:
			s.count(&g.lookup.Counts)
			if teeth.Enabled {
				teeth.At("client.absent")
			}
			return verdictAbsent, nil
		default:
			s.count(&g.lookup.Counts)
			s.askFor(g.lookup.Reason)
			if g.lookup.Reason == layout.ReasonRetries && g.lookup.Counts.Torn > 1 {
				s.suspect(key, g.lookup.Torn)
			}
			g.strange = g.lookup.Reason == layout.ReasonUnknownRegion
			return verdictAsk, nil
		}
	}
}

// learnRegions fetches a newer view than the one a get was made with, and
// reports whether there is one now. One get does it, at the cost of the SEND
// that it would have made anyway; those beside it ask for their value.
func (s *session) learnRegions(p *patience, version uint64) bool {
	if s.view.Load().Version > version {
		return true
	}
	if !s.refreshing.CompareAndSwap(false, true) {
		return false
	}
	defer s.refreshing.Store(false)
	if err := s.refreshView(p); err != nil {
		return false // the value's own request will meet the reason again
	}
	return s.view.Load().Version > version
}

// readFor READs what the lookup asks for, as one batch, and takes the beat
// along if one is due.
func (s *session) readFor(p *patience, g *get, v *view) error {
	if s.direct != nil {
		if err := s.readAllDirect(g); err != errUnmapped {
			if g.b != nil { // of READs that were posted before: handled is now
				g.b.release()
				g.b = nil
			}
			return err
		}
	}
	if g.b == nil {
		g.b = s.newBatch(v)
	} else {
		g.b.clear()
	}
	b, reads := g.b, g.lookup.Reads
	for i := range reads {
		if _, err := b.add(reads[i].Place, int(reads[i].Len)); err != nil {
			return err
		}
	}
	if l := &s.lease; l.due.Load() && l.due.CompareAndSwap(true, false) {
		b.addBeat()
	}
	mine, err := b.run(p)
	if !mine {
		g.b = nil
	}
	if err != nil {
		return err
	}
	for i := range reads {
		reads[i].Buf = b.bytes(i)
	}
	return nil
}

// count adds what one lookup met to the client's counters.
func (s *session) count(k *layout.Counts) {
	if k.Rounds|k.Stale|k.Torn|k.Pending|k.Dead|k.Mismatch|k.Misfit|k.Marked == 0 {
		return
	}
	n := &s.c.n
	n.cacheStale.Add(uint64(k.Stale))
	n.torn.Add(uint64(k.Torn))
	n.pending.Add(uint64(k.Pending))
	n.dead.Add(uint64(k.Dead))
	n.mismatch.Add(uint64(k.Mismatch))
	n.misfit.Add(uint64(k.Misfit))
	n.marked.Add(uint64(k.Marked))
}

// askFor counts why READs alone gave no answer.
func (s *session) askFor(r layout.Reason) {
	n := &s.c.n
	switch r {
	case layout.ReasonSlotless:
		n.fbSlotless.Add(1)
	case layout.ReasonPebble:
		n.fbPebble.Add(1)
	case layout.ReasonRetries:
		n.fbRounds.Add(1)
	case layout.ReasonCandidates:
		n.fbNoRoom.Add(1)
	case layout.ReasonUnknownRegion:
		n.fbNoRegion.Add(1)
	default:
		n.fbElse.Add(1)
	}
}
