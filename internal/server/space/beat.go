package space

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
)

// beats are the beat of a space.
type beats struct {
	beat     context.Context
	stopBeat context.CancelFunc
	BeatDone chan struct{}
	lastBeat atomic.Int64 // now
	bump     bumper       // of the clients, for the sake of the cluster's view
}

func newBeats() beats {
	ctx, stop := context.WithCancel(context.Background())
	return beats{beat: ctx, stopBeat: stop, BeatDone: make(chan struct{})}
}

// beatLoop rewrites the beat for as long as the space may serve. It waits for
// nothing but its clock: no handler, no client, no disk, no device, no lock
// that is held over any of them. When it stops, every client stops believing
// its memory within a lease.
func (sp *Space) beatLoop(ctx context.Context) {
	defer close(sp.BeatDone)
	tick := time.NewTicker(sp.Config.Store.BeatInterval)
	defer tick.Stop()
	last := time.Now()
	var lanes session.Pulse
	for {
		select {
		case <-ctx.Done():
			return
		case <-sp.Fence.Done():
			return
		case now := <-tick.C:
			if sp.Err() != nil {
				return // both had come
			}
			sp.Store.WriteBeat(now)
			sp.lastBeat.Store(sp.Clock.Now())
			sp.Counters.Beats.Add(1)
			sp.feelLanes(&lanes)
			// A late beat is what clients notice first when this process gets
			// no processor.
			if late := now.Sub(last) - sp.Config.Store.BeatInterval; late > sp.Config.Store.Lease/2 {
				sp.Counters.LateBeats.Add(1)
				sp.Log.Warn(base.LogLate, "beat is late", "by", late)
			}
			last = now
		}
	}
}

// BeatAge is how long ago the last beat was written.
func (sp *Space) BeatAge() time.Duration { return time.Duration(sp.Clock.Now() - sp.lastBeat.Load()) }

// reclaimLoop frees what has waited for a lease. It may have to wait for locks
// of the store, so it is not the goroutine that beats.
func (sp *Space) reclaimLoop(ctx context.Context) {
	tick := time.NewTicker(sp.Config.Store.BeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sp.Fence.Done():
			return
		case <-tick.C:
			sp.Store.Reclaim(time.Now()) // not the tick's time: that may be older than the last call
		}
	}
}

// bumpEvery is the shortest time between two view versions that are raised for
// the sake of the cluster's view: each has every client of the space come for it
// once.
const bumpEvery = time.Second

// bumper raises the view version of the beat, at most once a second. The zero
// value is ready.
type bumper struct {
	mu    sync.Mutex
	last  time.Time
	timer *time.Timer // one is on its way; nil: none
}

// Bump has the clients of the space learn that there is something new to fetch:
// the view version in the beat (and in the replies to Pings) rises, now or when
// a second has passed since the last time. Calls in between are one. It does not
// wait, and does nothing once the store is closed. To be called once the space serves.
func (sp *Space) Bump() {
	b := &sp.bump
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		return
	}
	if rest := bumpEvery - time.Since(b.last); rest > 0 && !b.last.IsZero() {
		b.timer = time.AfterFunc(rest, func() {
			b.mu.Lock()
			b.timer, b.last = nil, time.Now()
			b.mu.Unlock()
			sp.bumpNow()
		})
		return
	}
	b.last = time.Now()
	sp.bumpNow()
}

func (sp *Space) bumpNow() {
	if sp.Serving.Load() {
		sp.Store.BumpView() // an error: the store has ended, and its clients with it
	}
}
