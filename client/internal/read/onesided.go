package read

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
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

// An attempt is the state of one key's get. It is pooled: nothing in it is allocated
// per call. After ActionFound the item's bytes stand in the batch's buffer
// until release.
type attempt struct {
	lookup layout.Lookup
	b      *session.Reads
	hash   layout.Hash
	grant  *session.Grant
	low    uint64 // what the server's time was at least, before the first READ

	cached layout.Loc // where the get began to look
	item   layout.ItemView
	loc    layout.Loc

	isLed bool  // the key is replicated
	words words // that vouch for it; none where its replica need not lead

	unknownRegion bool   // it met a place in no region of the view …
	viewVersion   uint64 // … of this version

	// For READs that are copies (quick.go).
	stripe int
	sink   []byte
	beat   [layout.BeatSize]byte
}

var getPool = sync.Pool{New: func() any { return &attempt{stripe: int(nextStripe.Add(1) % base.Stripes)} }}

// release lets go of the buffer.
func (g *attempt) release() {
	if g.b != nil {
		g.b.Release()
		g.b = nil
	}
	g.item, g.grant = layout.ItemView{}, nil
	if len(g.sink) > int(maxItemRead) {
		g.sink = nil // several large candidates: seldom
	}
}

// startLookup begins the lookup of key under the lease in force now.
func startLookup(s *session.Session, g *attempt, v *session.View, key []byte) {
	grant := s.Lease.Grant() // once, before the first READ
	hash := layout.HashKey(v.Seed, key)
	cached, dropped := s.Cache.Find(hash, grant.Retired)
	if dropped > 0 {
		s.Counts.ReclaimDropped.Add(uint64(dropped))
	}
	if cached.Size != 0 {
		s.Counts.CacheHits.Add(1)
	} else {
		s.Counts.CacheMisses.Add(1)
	}
	startAt(s, g, v, key, hash, cached, grant)
}

// startAt is startLookup where it is known what the cache remembers, by the retired pages
// that grant knows.
func startAt(s *session.Session, g *attempt, v *session.View, key []byte, hash layout.Hash, cached layout.Loc, grant *session.Grant) {
	g.grant = grant
	g.low = s.Time.Low() // before the first READ, too
	g.hash, g.cached = hash, cached
	shard := cluster.ShardOf(key, int(v.Shards))
	g.lookup.PairByPair = s.Mapped() // a READ costs a cache miss, no round trip
	g.lookup.Start(&v.View, s.Dir, shard, key, cached, maxItemRead)
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
func oneSided(s *session.Session, p *base.Limit, g *attempt, key []byte) (verdict, error) {
	if !g.isLed {
		return oneSidedAt(s, p, g, key)
	}
	// A node that answers no READ may still be believed to lead: the try ends as one by SEND does.
	within, cancel := *p, context.CancelFunc(nil)
	within.Ctx, cancel = p.Bounded()
	defer cancel()
	answer, err := oneSidedAt(s, &within, g, key)
	g.words.end()
	return answer, err
}

func oneSidedAt(s *session.Session, p *base.Limit, g *attempt, key []byte) (verdict, error) {
	l, vouched := &s.Lease, !g.words.of.IsNone()
	l.Use()
	for range leaseTries {
		if l.IsLapsed() {
			s.Owner.Wake() // gets are being made again: renew
			break
		}
		if vouched && !g.words.begin(s, g.stripe) { // before the first READ (R14)
			s.Counts.FallbackWords.Add(1)
			return verdictAsk, nil
		}
		answer, err := oneSidedOnce(s, p, g, key)
		now := g.handled(s)
		switch {
		case err != nil:
			g.release()
			return 0, err
		case answer == verdictAsk:
			g.release()
			g.words.end()
			if g.unknownRegion && s.LearnRegions(p, g.viewVersion) {
				continue
			}
			return answer, nil
		case l.Holds(g.grant, now):
			if vouched && !g.words.hold(s, p, g.stripe) {
				g.release()
				s.Counts.FallbackWords.Add(1)
				return verdictAsk, nil
			}
			if answer == verdictFound && g.item.Expiry != 0 {
				switch judgeExpiry(s, g.item.Expiry, g.low, now, g.isLed) {
				case session.ExpiryPassed:
					answer = verdictAbsent
				case session.ExpiryAsk:
					g.release()
					return verdictAsk, nil
				}
			}
			if answer == verdictAbsent {
				s.Cache.Drop(g.hash)
			} else if g.loc.Place != g.cached.Place || g.loc.Size > g.cached.Size {
				s.Cache.Put(g.hash, g.loc, g.grant.Retired)
			} // else find has renewed what is still true
			return answer, nil
		}
		// Handled too late: the answer is worth nothing.
		s.Counts.LeaseExpired.Add(1)
		s.Counts.RetryLease.Add(1)
		expired := g.grant
		g.release()
		g.words.end()
		l.Lapse(expired)
	}
	s.Counts.FallbackNoLease.Add(1)
	return verdictAsk, nil
}

// judgeExpiry is what can be said of an item that may expire. Of a replicated one that it has expired is said only where the removal is published: the
// leader orders it, and whoever leads next shows no other (R9).
func judgeExpiry(s *session.Session, expiry, low uint64, now int64, isLed bool) session.Verdict {
	if !isLed || expiry == 0 {
		return s.JudgeExpiry(expiry, low, now)
	}
	if s.ExpiryOf(expiry, low, now) == session.ExpiryAlive {
		return session.ExpiryAlive
	}
	s.Counts.FallbackExpiry.Add(1)
	return session.ExpiryAsk
}

// oneSidedOnce is one try, under one grant, which the caller compares with the
// clock afterwards.
func oneSidedOnce(s *session.Session, p *base.Limit, g *attempt, key []byte) (verdict, error) {
	v := s.View()
	g.unknownRegion, g.viewVersion = false, v.Version
	startLookup(s, g, v, key)
	for {
		switch g.lookup.Step() {
		case layout.ActionRead:
			if err := readFor(s, p, g, v); err != nil {
				countLookup(s, &g.lookup.Counts)
				if errors.Is(err, base.ErrNoRegion) {
					g.unknownRegion = true
					countFallback(s, layout.ReasonUnknownRegion)
					return verdictAsk, nil
				}
				return 0, err
			}
		case layout.ActionFound:
			countLookup(s, &g.lookup.Counts)
			g.item, g.loc = g.lookup.Found()
			return verdictFound, nil
		case layout.ActionAbsent:
			countLookup(s, &g.lookup.Counts)
			return verdictAbsent, nil
		default:
			countLookup(s, &g.lookup.Counts)
			countFallback(s, g.lookup.Reason)
			if g.lookup.Reason == layout.ReasonRetries && g.lookup.Counts.Torn > 1 {
				s.Suspect(key, g.lookup.Torn)
			}
			g.unknownRegion = g.lookup.Reason == layout.ReasonUnknownRegion
			return verdictAsk, nil
		}
	}
}

// readFor READs what the lookup asks for, as one batch, and takes the beat
// along if one is due.
func readFor(s *session.Session, p *base.Limit, g *attempt, v *session.View) error {
	if s.Mapped() {
		if err := readAllDirect(s, g); err != errUnmapped {
			if g.b != nil { // of READs that were posted before: handled is now
				g.b.Release()
				g.b = nil
			}
			return err
		}
	}
	if g.b == nil {
		g.b = s.NewReads(v)
	} else {
		g.b.Clear()
	}
	b, reads := g.b, g.lookup.Reads
	for i := range reads {
		if _, err := b.Add(reads[i].Place, int(reads[i].Len)); err != nil {
			return err
		}
	}
	cell := -1
	if g.words.wantsOwn() {
		if i, err := b.Add(g.words.told.Cell, layout.CellRead); err == nil {
			cell = i
		}
	}
	if s.Lease.TakeDue() {
		b.AddBeat()
	}
	// READs of other nodes are under way, and this one may have to wait for memory and space, for which others wait who hold these.
	if g.words.n > 0 && !b.Reserve() {
		g.words.settle(p)
	}
	mine, err := b.Run(p)
	if !mine {
		g.b = nil
	}
	if err != nil {
		return err
	}
	if cell >= 0 {
		g.words.sawOwn(b.Bytes(cell))
	}
	for i := range reads {
		reads[i].Buf = b.Bytes(i)
	}
	return nil
}

// countLookup adds what one lookup met to the client's counters.
func countLookup(s *session.Session, k *layout.Counts) {
	if k.Rounds|k.Stale|k.Torn|k.Pending|k.Dead|k.Mismatch|k.Misfit|k.Marked == 0 {
		return
	}
	n := s.Counts
	n.CacheStale.Add(uint64(k.Stale))
	n.RetryTorn.Add(uint64(k.Torn))
	n.RetryPending.Add(uint64(k.Pending))
	n.RetryDead.Add(uint64(k.Dead))
	n.RetryMismatch.Add(uint64(k.Mismatch))
	n.RetryMisfit.Add(uint64(k.Misfit))
	n.RetryMarked.Add(uint64(k.Marked))
}

// countFallback counts why READs alone gave no answer.
func countFallback(s *session.Session, r layout.Reason) {
	n := s.Counts
	switch r {
	case layout.ReasonSlotless:
		n.FallbackSlotless.Add(1)
	case layout.ReasonPebble:
		n.FallbackPebble.Add(1)
	case layout.ReasonRetries:
		n.FallbackRounds.Add(1)
	case layout.ReasonCandidates:
		n.FallbackNoRoom.Add(1)
	case layout.ReasonUnknownRegion:
		n.FallbackNoRegion.Add(1)
	default:
		n.FallbackOther.Add(1)
	}
}

// handled is Reads.Handled of the last batch of a get, or now.
func (g *attempt) handled(s *session.Session) int64 {
	if g.b != nil {
		return g.b.Handled()
	}
	return s.Now()
}

// countHit counts a hit, and takes it into the sample if it is its turn.
func countHit(s *session.Session, g *attempt) {
	if g.lookup.Counts.Reads > 1 {
		s.Counts.LongHits.Add(1)
	}
	s.Touches.Hit(s.Counts.Hits.Add(1), g.hash)
}
