package read

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Gets of a replicated key that may be as old as d. They go to one of the replicas, whichever that is, and READ the item there and nothing else, because
// what they may believe was learned before, for all keys of the group:
//
//	at time t   cells, as a get READs them    ──▶ the leader, other voters      it led after t, and has published up to entry n
//	then        the word of what is published ──▶ a replica                     n or later: its memory shows all that was acknowledged before t
//	until t+d   the item                      ──▶ that replica
//
// This is a look (route.Seen is what it finds). When half of d is over the next look begins beside the gets. A look compares no clocks: t is the client's own, and d
// is counted by the same clock. The rules (model/words.pml, -DBOUNDED):
//
//	R25  the leader raises the word before it acknowledges, and every replica raises it after its memory shows the entry
//	R26  n is read in a cell that words of a majority vouch for, in READs that were posted after t; else it is that of a leader that has fallen
//	R27  the READ of the item is posted when the replica's own word has shown n, in the same life of its process
//	R28  a client goes over to another replica by a look that began when it had done with the one before: what it has seen there had been published by
//	     the leader then, so n is not below it. Until that look is over it READs the items of neither, and a get that was under way at the former one is made
//	     again. A get that is made without a bound after all shows what the leader has, so the next one waits for a look that begins
//	     when it has ended. So gets with a bound of a client do not go back behind each other
//
// What cannot be got so is got as without a bound: the words fit at no leader, say, because it has fallen, and the last look is older than d.

const (
	// leastBound is the least d for which a look is worth its READs; a get with less is one without a bound.
	leastBound = time.Millisecond
	// boundedPatience is how long a replica may take to answer before another one is taken, and the get is made without a bound.
	boundedPatience = 50 * time.Millisecond
	// lookPatience is how long a replica may take to show what the leader has published.
	lookPatience = 100 * time.Millisecond
	// lookRest is the first rest between two READs of that.
	lookRest = 50 * time.Microsecond
	// lookFailed is for how long nobody looks again after a look in vain.
	lookFailed = 50 * time.Millisecond
	// boundedTries is how often a get begins again because the replica was changed meanwhile.
	boundedTries = 3
)

// errAsk: a get with a bound has no answer at its replica.
var errAsk = errors.New("client: no answer by READs of this replica")

// Bounded answers one key as it was at some time since d before the call, or as Get does. It fails as Get does.
func Bounded(ctx context.Context, f *route.Router, op string, key []byte, w *Query, d time.Duration) error {
	if d == 0 {
		return Get(ctx, f, op, key, w)
	}
	if err := base.CheckKey(key); err != nil {
		return f.Fail(op, key, err)
	}
	led := route.LedOf(f, key)
	if led.IsNone() {
		return Get(ctx, f, op, key, w)
	}
	from := len(w.Dst)
	since := led.Fresh().Now() - int64(d)
	for range boundedTries {
		if d < leastBound {
			break
		}
		seen := lookedSince(ctx, led, since, d)
		if seen == nil {
			break
		}
		err := getBounded(ctx, led, seen, op, key, w)
		if err == nil || errors.Is(err, base.ErrNotFound) {
			return err
		}
		w.Dst, w.Head = w.Dst[:from], nil
		if err != errChanged {
			break
		}
	}
	led.Leader().Counts().FallbackBound.Add(1)
	defer Showed(f, key)
	return Get(ctx, f, op, key, w)
}

// Showed notes that a call which may be as old as its bound has shown key as its leader has it (R28).
func Showed(f *route.Router, key []byte) {
	if led := route.LedOf(f, key); !led.IsNone() {
		led.Fresh().Showed()
	}
}

// errChanged: the client reads another replica by now.
var errChanged = errors.New("client: another replica is read")

// getBounded is one try at the replica that was looked at.
func getBounded(ctx context.Context, led route.Led, seen *route.Seen, op string, key []byte, w *Query) error {
	c, s := seen.Peer, seen.Session
	p := c.Begin(ctx)
	p.Hurry(boundedPatience)
	w.bounded, w.led = true, led
	err := getOn(c, &p, s, key, w)
	w.bounded = false
	switch {
	case err == nil && w.Head == nil || err == base.ErrNotFound:
		c.Counts().Gets.Add(1)
		if !led.Fresh().Reads(s) { // R28
			return errChanged
		}
		c.Counts().Bounded.Add(1)
		if err != nil {
			return c.Fail(op, key, s.Addr, err)
		}
		return nil
	case ctx.Err() == nil && (base.Again(err) || base.TimeOver(err)): // it was lost, or does not answer
		s.Groups.WasSlow()
		led.Fresh().Leave(s)
	}
	return errAsk // a value in parts, too: the get of its parts is one without a bound
}

// lookedSince is what is known of a replica since a time on the lease clock; nil: nothing, and it cannot be learned now. What gets old is
// renewed beside the calls.
func lookedSince(ctx context.Context, led route.Led, since int64, d time.Duration) *route.Seen {
	fresh := led.Fresh()
	if seen := fresh.Since(since); seen != nil {
		switch {
		case seen.At >= since+int64(d/2) || !fresh.TryBegin():
		case rests(fresh):
			fresh.End()
		default:
			seen.Peer.Go(func(ctx context.Context) { // the peer ends it when it is closed
				defer fresh.End()
				look(ctx, led)
			})
		}
		return seen
	}
	looks := fresh.Looks.Load()
	if !fresh.Begin(ctx) {
		return nil
	}
	defer fresh.End()
	if seen := fresh.Since(since); seen != nil || fresh.Looks.Load() != looks { // another call has looked meanwhile, however that went
		return seen
	}
	if !rests(fresh) {
		look(ctx, led)
	}
	return fresh.Since(since)
}

// rests reports whether a look was in vain a moment ago. The caller has begun one.
func rests(fresh *route.Fresh) bool {
	return fresh.Failed != 0 && fresh.Now()-fresh.Failed < int64(lookFailed)
}

// look looks at the leader and at a replica, and notes what it finds. It begins with the replica that this client has come upon, so that clients
// spread over all of them; the next one is read while there is no session with that, and for good if it is slow or behind. The caller has begun it.
func look(ctx context.Context, led route.Led) {
	fresh := led.Fresh()
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	fresh.Looks.Add(1)
	before := fresh.Seen()
	defer func() {
		if fresh.Failed = 0; fresh.Seen() == before {
			fresh.Failed = fresh.Now()
		}
	}()
	if !led.Has(fresh.Node) { // its replica is gone, by a later map
		fresh.Node, _ = led.At(fresh.Node, rand.IntN(led.Len()))
	}
	first, moves := fresh.Node, false
	for i := range led.Len() {
		node, p := led.At(first, i)
		s := p.Current()
		switch {
		case s == nil || s.IsDown():
			p.Replica.Seek()
			continue
		case !s.Words || s.Groups.Slow():
			moves = true
			continue
		}
		s.Lease.Use()
		if s.Lease.IsLapsed() {
			s.Owner.Wake()
			continue
		}
		info := s.Groups.Of(led.Group())
		if info == nil {
			continue
		}
		if !fresh.Reads(s) {
			fresh.Leave(nil) // before the time (R28)
		}
		at := fresh.Now()
		index := published(ctx, led)
		if index == 0 {
			return
		}
		if shows(ctx, p, s, info.Cell, index) {
			if moves {
				fresh.Node = node
			}
			fresh.Found(&route.Seen{Peer: p, Session: s, At: at})
			s.Counts.BoundLooks.Add(1)
			return
		}
		if ctx.Err() != nil {
			return
		}
		moves = true
	}
}

// published is an index up to which the group was published, so that all that was acknowledged before the call is; 0: it was not learned.
func published(ctx context.Context, led route.Led) uint64 {
	c := led.Leader()
	s := c.Current()
	if s == nil || s.IsDown() {
		c.Replica.Seek()
		return 0
	}
	s.Lease.Use()
	if s.Lease.IsLapsed() {
		s.Owner.Wake() // looks are being made again: renew
		return 0
	}
	p := c.Clock.Unlimited(ctx)
	stripe := int(nextStripe.Add(1) % base.Stripes)
	w := words{of: led}
	grant := s.Lease.Grant() // before the READs (R17)
	if !w.begin(s, stripe) {
		return 0
	}
	defer w.end()
	told := w.told
	b := s.NewReads(s.View())
	_, err := b.Add(told.Cell, layout.CellRead)
	if err == nil {
		_, err = b.Add(layout.CellPublished(told.Cell), layout.PublishedRead)
	}
	if err != nil {
		b.Release()
		return 0
	}
	mine, err := b.Run(&p)
	if err != nil {
		if mine {
			b.Release()
		}
		return 0
	}
	index := uint64(0)
	if s.Lease.Holds(grant, b.Handled()) {
		w.sawOwn(b.Bytes(0))
		index, _ = layout.ParsePublished(b.Bytes(1))
	}
	b.Release()
	s.Counts.WordReads.Add(1)
	if index == 0 || !w.hold(s, &p, stripe) { // R26
		return 0
	}
	return index
}

// shows waits until a replica shows an entry, for a while.
func shows(ctx context.Context, c *peer.Peer, s *session.Session, cell layout.Place, index uint64) bool {
	within, cancel := context.WithTimeout(ctx, boundedPatience)
	defer cancel()
	p := c.Clock.Unlimited(within)
	for rest := lookRest; ; rest *= 2 {
		grant := s.Lease.Grant()
		b := s.NewReads(s.View())
		if _, err := b.Add(layout.CellPublished(cell), layout.PublishedRead); err != nil {
			b.Release()
			return false
		}
		if s.Lease.TakeDue() {
			b.AddBeat()
		}
		mine, err := b.Run(&p)
		shown := uint64(0)
		if err == nil && s.Lease.Holds(grant, b.Handled()) {
			shown, _ = layout.ParsePublished(b.Bytes(0))
		}
		if mine {
			b.Release()
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				s.Groups.WasSlow()
			}
			return false
		case shown >= index:
			return true
		}
		s.Counts.WordReads.Add(1)
		if !base.Pause(within, rest) {
			return false
		}
	}
}
