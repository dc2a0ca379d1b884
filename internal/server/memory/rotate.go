package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Rkeys are capabilities, and change: on request and at an age. A region is
// registered anew beside its old registration, the table with the new rkey is
// published, and the old registration goes when no session can use it any more:
//
//	RegMR ──▶ table says the new rkey ──▶ view version in the beat ──▶ … ──▶ old MR closed
//	                                                                   │
//	                                            a lease and the rate bound, and every
//	                                            session has said that it is past that version
//
// # What must be known before the old MR may go
//
// A READ with an rkey that is no more ends the connection, and one with an rkey
// that has come back names other memory. Two things are waited for, because each
// lacks something:
//
//   - A lease with the rate bound (store/reclaim), counted from the moment at which
//     the version stood in the beat. It bounds what is *believed*: an answer counts
//     only before the deadline in force when its first READ was posted, so nothing
//     that was READ with the old rkey counts any more. It also outlives what the
//     network may still carry, repeated requests among them. It does not bound what
//     is *posted*: a client without a lease READs all the same, if only the beat; one
//     in the middle of a large value that is held for it goes by the hold's time; and
//     a READ may wait in a queue, or be repeated by a NIC while a link is down, for
//     as long as the fabric's own retries last.
//   - The word of every session. A client that has a newer view posts nothing under
//     the old one, waits until what it had posted before has completed, and then says
//     so in a Ping (wire.Ping.View): no READ with a rkey from an older view is under
//     way or ever will be. A session may know old rkeys from the first page of the
//     table that it was sent (Follower.Learns). Its QP is closed before it is taken
//     out of the followers. So no clock decides about it, and no conforming client's
//     QP dies.
//
// A client learns of the version by the beat that its gets carry along, and by the
// reply to each Ping, of which a silent one sends one per Keepalive. One that has
// not spoken after TurnoverConfig.TableTime is told to connect again, and cut off if
// it does not: an end of its session, but no failed call. Its QP is closed before the MR.
//
// The other direction needs no rule. Which rkey a page of the table shows is
// looked up after the session is noted, new rkeys are in place before the version
// rises, and an older version that shows a newer rkey is none the worse for it.
//
// Large puts are READ by the server from the client's memory, staging is local:
// no rkey of either is in the table.
//
// # How much is registered twice
//
// Devices have a number of MRs, and kernels count locked memory once per
// registration. So a rotation goes in waves: the old registrations of one wave are
// gone before the next begins. Where not even one region more can be registered,
// the rotation ends with that error, and what was not renewed stays as it was.
const (
	waveRegions = 64
	// A wave is a quarter of the regions at most (but at least one).
	waveShare = 4
)

// ErrRotating: a rotation was asked for while one runs.
var ErrRotating = errors.New("a rotation is under way")

// Store is what a Turnover asks of the store over the regions.
type Store interface {
	// View is the table of regions as clients see it.
	View() layout.View
	// BumpView raises the version of the view, and returns it when the beat says so.
	BumpView() (uint64, error)
	// AfterLease calls f when a lease (with the rate bound) is over that begins now.
	AfterLease(f func()) error
	// RetireIdle takes the regions out of the view in which nothing has stood for a
	// while, and returns them with the version that they are not in.
	RetireIdle(now time.Time, while time.Duration) (ids []uint32, version uint64)
	// FreeRegion has a retired region deregistered and unmapped (Regions.Free).
	FreeRegion(id uint32) error
}

// TurnoverConfig has the times of a turnover.
type TurnoverConfig struct {
	Beat       time.Duration // how often sessions are looked at while they are waited for
	RegionIdle time.Duration // regions without items are given back after it; 0: never
	MaxAge     time.Duration // rkeys are renewed after it; 0: only when asked
	// TableTime is how long a session may take to say that it uses a new table: the
	// time within which it has had to send something, and as long for the answer.
	TableTime   time.Duration
	SendTimeout time.Duration // how much longer until it is cut off
}

// A Turnover renews the rkeys of regions and gives empty regions back. The goroutine of
// Run does both, so that the two never meet. What is on its way out stays until a lease is
// over and no follower may use it. All methods are safe for concurrent use; Run is called
// once.
type Turnover struct {
	cfg     TurnoverConfig
	regions *Regions
	store   Store
	log     *base.Log

	Followers Followers // the sessions that may READ

	asked   chan struct{} // a rotation is to begin; room for one
	Renewed atomic.Uint64 // regions that got a new rkey
	Gone    atomic.Uint64 // regions given back

	mu sync.Mutex
	st RotationStat // of the rotation under way, or the last
}

// NewTurnover makes a Turnover of regions and of the store that has them. Run begins it.
func NewTurnover(cfg TurnoverConfig, regions *Regions, store Store, log *base.Log) *Turnover {
	return &Turnover{cfg: cfg, regions: regions, store: store, log: log, asked: make(chan struct{}, 1)}
}

// RotationStat is how far the rotation of rkeys is, in one space of the node.
type RotationStat struct {
	Space   string `json:"space"`
	Running bool   `json:"running"`
	Regions int    `json:"regions"` // when it began
	Renewed int    `json:"renewed"` // of them: have a new rkey
	Old     int    `json:"old"`     // old registrations that wait
	// Waiting is how many sessions may still use old rkeys.
	Waiting     int    `json:"waiting_sessions"`
	ViewVersion uint64 `json:"view_version"`
	Began       string `json:"began"` // RFC 3339; empty: never
	Ended       string `json:"ended"` // empty: never, or it runs
	Error       string `json:"error"` // why it ended early
}

// Start begins to renew the rkeys of all regions. It fails with
// ErrRotating. Run does it.
func (t *Turnover) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.st.Running {
		return ErrRotating
	}
	v := t.store.View()
	t.st = RotationStat{
		Running: true, Regions: len(v.Regions), ViewVersion: v.Version, Began: time.Now().UTC().Format(time.RFC3339),
	}
	t.asked <- struct{}{} // there is room: none runs
	return nil
}

// Stat is how far the rotation is, or how the last one ended; without the name of the space.
func (t *Turnover) Stat() RotationStat {
	t.mu.Lock()
	st := t.st
	t.mu.Unlock()
	if st.Old > 0 {
		st.Waiting = len(t.Followers.behind(st.ViewVersion))
	}
	return st
}

func (t *Turnover) note(f func(st *RotationStat)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.st)
}

// rotate renews the rkeys of every region. ctx ends with the node.
func (t *Turnover) rotate(ctx context.Context) {
	begun := time.Now()
	renewed, err := t.renewAll(ctx)
	t.note(func(st *RotationStat) {
		st.Running, st.Ended = false, time.Now().UTC().Format(time.RFC3339)
		if err != nil {
			st.Error = err.Error()
		}
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.log.Error(base.LogMemory, "rotation of rkeys ended early: the other regions keep theirs", "renewed", renewed, "err", err)
	default:
		t.log.Info("rkeys rotated", "regions", renewed, "took", time.Since(begun).Round(time.Millisecond))
	}
}

// renewAll goes over the regions that there are now, wave by wave. A region that
// is added meanwhile has a fresh rkey.
func (t *Turnover) renewAll(ctx context.Context) (renewed int, err error) {
	left := t.store.View().Regions
	// Regions may have come or gone since the rotation was asked for.
	t.note(func(st *RotationStat) { st.Regions = len(left) })
	most := max(1, min(waveRegions, len(left)/waveShare))
	for len(left) > 0 {
		var wave []uint32
		var full error
		for len(wave) < most && len(left) > 0 && full == nil {
			var ok bool
			if ok, full = t.regions.renew(left[0].ID); full == nil {
				if ok {
					wave = append(wave, left[0].ID)
				}
				left = left[1:]
			}
		}
		if len(wave) == 0 {
			if full != nil {
				return renewed, full
			}
			continue
		}
		// What the device or the limit of locked memory has no room for may find
		// some when the old registrations of this wave are gone.
		version, err := t.store.BumpView()
		if err != nil {
			return renewed, err
		}
		renewed += len(wave)
		t.Renewed.Add(uint64(len(wave)))
		t.note(func(st *RotationStat) {
			st.Renewed, st.Old, st.ViewVersion = renewed, len(wave), version
		})
		if err := t.waitTable(ctx, version); err != nil {
			return renewed, err
		}
		if err := t.regions.dropOld(wave); err != nil {
			return renewed, err
		}
		t.note(func(st *RotationStat) { st.Old = 0 })
	}
	return renewed, nil
}

// waitTable waits until nothing can be READ any more that is not in the view of
// that version: a lease, and the word of every session. It fails when ctx ends.
func (t *Turnover) waitTable(ctx context.Context, version uint64) error {
	begun := time.Now()
	over := make(chan struct{})
	if err := t.store.AfterLease(func() { close(over) }); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	tick := time.NewTicker(t.cfg.Beat)
	defer tick.Stop()
	for {
		late := t.Followers.behind(version)
		if len(late) == 0 {
			return nil
		}
		for _, f := range late {
			t.hurry(f, time.Since(begun), version)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hurry ends a session that has not said for too long that it uses the new
// table: first it is asked to go, then it is cut off.
func (t *Turnover) hurry(f *Follower, waited time.Duration, version uint64) {
	switch {
	case waited > t.cfg.TableTime+t.cfg.SendTimeout:
		f.reader.Cut(fmt.Errorf("it uses the region table of version %d, not of %d", f.oldest.Load(), version))
	case waited > t.cfg.TableTime:
		f.reader.Dismiss()
	}
}

// Run renews rkeys and gives back regions, one at a time, until ctx ends or the node is
// fenced.
func (t *Turnover) Run(ctx context.Context, fenced <-chan struct{}) {
	look, stopLook := every(t.cfg.RegionIdle / 4)
	defer stopLook()
	age, stopAge := every(t.cfg.MaxAge)
	defer stopAge()
	fill, stopFill := every(t.regions.gatherPeriod())
	defer stopFill()
	for {
		select {
		case <-ctx.Done():
			return
		case <-fenced:
			return
		case <-t.asked:
			t.rotate(ctx)
		case <-t.regions.gathering.asked:
			t.regions.gather(ctx)
		case <-fill:
			t.regions.gatherFilled(ctx)
		case <-age:
			_ = t.Start() // refused: one is about to begin
		case <-look:
			t.retireIdle(ctx)
		}
	}
}

// every ticks in a period; never if that is 0.
func every(period time.Duration) (<-chan time.Time, func()) {
	if period <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(period)
	return t.C, t.Stop
}

// retireIdle gives back the regions of items in which nothing has stood for
// RegionIdle: they leave the table and are listed as retired, which the beat
// says; then a lease is waited for and the word of every session, as with an old
// rkey; then they are deregistered and unmapped.
//
// Nothing that a client may need is in them: an item that is held or pinned is
// live, and so its region is not empty. A place remembered from before is dropped
// by the list of retired pages before a new lease is used, and lies in no
// region of the newer view, for a place is not used twice: such a get asks.
func (t *Turnover) retireIdle(ctx context.Context) {
	ids, version := t.store.RetireIdle(time.Now(), t.cfg.RegionIdle)
	if len(ids) == 0 {
		return
	}
	t.log.Info("regions without items are given back", "regions", ids, "view", version)
	if err := t.waitTable(ctx, version); err != nil {
		return // the node ends, and frees them with the others
	}
	for _, id := range ids {
		if err := t.store.FreeRegion(id); err != nil {
			t.log.Error(base.LogMemory, "a region cannot be given back: its memory stays", "region", id, "err", err)
			continue
		}
		t.Gone.Add(1)
	}
	t.regions.Changed()
}
