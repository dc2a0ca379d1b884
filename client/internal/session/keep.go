package session

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/places"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Keep does what the session has to do by itself, and no get should wait for. It
// takes a few round trips at most.
func (s *Session) Keep(ctx context.Context) {
	keepLease(ctx, s)
	examine(ctx, s)
	if s.viewWanted.Load() > s.view.Load().Version && s.refreshing.CompareAndSwap(false, true) {
		// A goroutine of its own: a server with stuck handlers must not keep the
		// keeper from the lease.
		s.Owner.Go(func(ctx context.Context) { keepView(ctx, s) })
	}
}

func keepView(ctx context.Context, s *Session) {
	defer s.refreshing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, s.Config.Timeout)
	defer cancel()
	want := s.viewWanted.Load()
	p := s.Clock.Unlimited(ctx)
	if err := s.RefreshView(&p); err != nil {
		s.Log.Info("refreshing the region table failed", "server", s.Addr, "err", err)
		return
	}
	// A version that was guessed, and does not exist, is not asked for again.
	s.viewWanted.CompareAndSwap(want, 0)
}

// keepLease READs a beat if one is wanted, and the reclaim list if a proved
// lease waits for it.
func keepLease(ctx context.Context, s *Session) {
	if s.SendOnly {
		return // it READs nothing, so no beat
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.Welcome.Lease, time.Second))
	defer cancel()
	p := s.Clock.Unlimited(ctx)
	l := &s.Lease
	old := l.lapsed.Load() && s.Now()-l.lastPost() >= int64(s.Welcome.Beat)
	if s.beatWanted.Swap(false) || old {
		b := s.NewReads(s.view.Load())
		b.AddBeat()
		if !b.HasBeat() {
			b.Release()
		} else if mine, err := b.Run(&p); mine {
			b.Release()
			if err != nil {
				return
			}
		}
	}
	for range 4 { // each turn may show that the list has grown
		want, ok := l.wanted()
		if !ok || !readReclaims(s, &p, want) {
			return
		}
	}
}

// readReclaims READs the list of retired pages up to version want, and takes the
// lease that waits for it into use.
func readReclaims(s *Session, p *base.Limit, want uint64) bool {
	log := s.Lease.current.Load().Retired
	if want <= log.Version {
		return false
	}
	v := s.view.Load()
	s.Counts.Reclaims.Add(1)
	n1, n2, ok := places.RingSpan(log.Version, want, v.ReclaimEntries)
	if !ok { // we lag too far: every place remembered counts as retired
		s.Lease.reclaimed(log.Forget(want))
		return true
	}
	b := s.NewReads(v)
	_, err := b.Add(v.RetiredPlace(log.Version+1), n1*layout.RetiredSize)
	if err == nil && n2 > 0 {
		_, err = b.Add(v.RetiredPlace(log.Version+1+uint64(n1)), n2*layout.RetiredSize)
	}
	if err != nil {
		b.Release()
		return false
	}
	mine, err := b.Run(p)
	if !mine {
		return false
	}
	defer b.Release()
	if err != nil {
		return false
	}
	entries, ok := places.ParseRing(nil, b.Bytes(0), log.Version+1, n1)
	if ok && n2 > 0 {
		entries, ok = places.ParseRing(entries, b.Bytes(1), log.Version+1+uint64(n1), n2)
	}
	if !ok {
		s.Lease.reclaimed(log.Forget(want))
		return true
	}
	s.Lease.reclaimed(log.Extend(entries))
	return true
}

// ObserveBeat takes a beat that a READ posted at the given time has shown. What
// must be asked or read because of it is left to the watch: no get waits for it.
func (s *Session) ObserveBeat(raw []byte, posted int64) {
	beat, err := layout.ParseBeat(raw, s.Incarnation)
	if err != nil {
		return // not begun to beat yet
	}
	s.Time.beat(beat.TimeMicros, posted)
	before := s.Lease.current.Load()
	_, behind := s.Lease.Observe(beat, posted)
	if g := s.Lease.current.Load(); g != before {
		s.Counts.Renewals.Add(1)
		if s.Lease.lapsed.Load() && s.Now() < g.deadline {
			s.Lease.lapsed.Store(false)
		}
	}
	if behind {
		s.Owner.Wake()
	}
	s.sawView(beat.ViewVersion)
}
