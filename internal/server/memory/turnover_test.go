package memory

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A countedPD counts what is registered in it.
type countedPD struct {
	rdma.PD
	mrs map[rdma.MR]bool
}

func (p *countedPD) RegMR(b []byte, access rdma.Access) (rdma.MR, error) {
	mr, err := p.PD.RegMR(b, access)
	if err != nil {
		return nil, err
	}
	mr = &countedMR{mr, p}
	p.mrs[mr] = true
	return mr, nil
}

type countedMR struct {
	rdma.MR
	pd *countedPD
}

func (m *countedMR) Close() error {
	delete(m.pd.mrs, m)
	return m.MR.Close()
}

// regionRig is n regions over two devices, and a store that has them.
type regionRig struct {
	t     *testing.T
	pds   [2]*countedPD
	r     *Regions
	turns *Turnover

	view  layout.View
	lease func() // called when the turnover waits for a lease
}

func newRegionRig(t *testing.T, n int) *regionRig {
	g := &regionRig{t: t, lease: func() {}}
	var pds []rdma.PD
	for i := range g.pds {
		g.pds[i] = &countedPD{testSink(t).PD, make(map[rdma.MR]bool)}
		pds = append(pds, g.pds[i])
	}
	log := base.NewLog(slog.New(slog.DiscardHandler))
	g.r = NewRegions(RegionsConfig{Kind: mem.Heap}, log, pds...)
	g.turns = NewTurnover(TurnoverConfig{Beat: time.Second, TableTime: 40 * time.Second, SendTimeout: 15 * time.Second}, g.r, g, log)
	for id := range uint32(n) {
		if _, err := g.r.Alloc(id, layout.KindItems, 1<<16); err != nil {
			t.Fatal(err)
		}
		g.view.Regions = append(g.view.Regions, layout.Region{ID: id, Kind: layout.KindItems, Length: 1 << 16})
	}
	t.Cleanup(func() {
		for _, reg := range g.view.Regions {
			if err := g.r.Free(reg.ID); err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

func (g *regionRig) View() layout.View { return g.view }
func (g *regionRig) BumpView() (uint64, error) {
	g.view.Version++
	return g.view.Version, nil
}
func (g *regionRig) AfterLease(f func()) error {
	g.lease()
	f()
	return nil
}
func (g *regionRig) RetireIdle(time.Time, time.Duration) ([]uint32, uint64) { return nil, 0 }
func (g *regionRig) FreeRegion(uint32) error                                { return errors.New("no region goes here") }

// registered fails unless that many registrations are with each device, all of them for
// READs alone.
func (g *regionRig) registered(want ...int) {
	g.t.Helper()
	for i, n := range want {
		if len(g.pds[i].mrs) != n {
			g.t.Errorf("device %d: %d registrations, want %d", i, len(g.pds[i].mrs), n)
		}
		for mr := range g.pds[i].mrs {
			if mr.Access() != rdma.AccessRemoteRead {
				g.t.Errorf("device %d: a region is registered with %v", i, mr.Access())
			}
		}
	}
}

// TestRotationCountsItsRegions: regions that come between the order for a rotation
// and its begin are among those that the status counts.
func TestRotationCountsItsRegions(t *testing.T) {
	g := newRegionRig(t, 5)
	later := g.view.Regions
	g.view.Regions = later[:2]
	if err := g.turns.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.turns.Start(); !errors.Is(err, ErrRotating) {
		t.Errorf("a second one: %v", err)
	}
	g.view.Regions = later
	g.turns.rotate(t.Context())
	if st := g.turns.Stat(); st.Running || st.Renewed != 5 || st.Regions != 5 || st.Error != "" || g.turns.Renewed.Load() != 5 {
		t.Errorf("%+v", st)
	}
	g.registered(5, 5)
}

// TestRenewedThenDetached: registrations that were replaced go with their device, and
// those of the other device stay until their time. The device comes back.
func TestRenewedThenDetached(t *testing.T) {
	g := newRegionRig(t, 3)
	for id := range uint32(3) {
		if ok, err := g.r.renew(id); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	g.registered(6, 6)
	if err := g.r.Detach(1); err != nil {
		t.Fatal(err)
	}
	g.registered(6, 0)
	if err := g.r.dropOld([]uint32{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	g.registered(3, 0)
	if _, ok := g.r.Wire(1, g.view.Regions[0]); ok {
		t.Error("a region is shown with a device that is gone")
	}
	if err := g.r.Attach(t.Context(), 1, g.pds[1]); err != nil {
		t.Fatal(err)
	}
	g.registered(3, 3)
}

// A silentReader notes when it is asked to go.
type silentReader struct {
	mu             sync.Mutex
	begun          time.Time
	dismissed, cut time.Duration
}

func (r *silentReader) Dismiss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dismissed == 0 {
		r.dismissed = time.Since(r.begun)
	}
}

func (r *silentReader) Cut(error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut == 0 {
		r.cut = time.Since(r.begun)
	}
}

// TestFollowers: the turnover waits for a lease and for every session that has learnt of
// an older table, until it has said that it uses the new one, or has gone; one that says
// nothing is asked to go when its time is over, and cut off later.
func TestFollowers(t *testing.T) {
	g := newRegionRig(t, 0)
	synctest.Test(t, func(t *testing.T) {
		g.view.Version = 7
		reader := &silentReader{begun: time.Now()}
		var speaks, gone, silent, ignorant, fresh Follower
		for _, f := range []*Follower{&speaks, &gone, &silent, &ignorant, &fresh} {
			g.turns.Followers.Add(f, reader)
		}
		leased := false
		g.lease = func() { leased = true }
		for _, f := range []*Follower{&speaks, &gone, &silent} {
			f.Learns(6)
			f.Learns(7) // the first counts
		}
		fresh.Learns(7)
		ignorant.Uses(3) // it has learnt of none
		done := make(chan error, 1)
		go func() { done <- g.turns.waitTable(t.Context(), 7) }()
		waits := func(n int) {
			t.Helper()
			time.Sleep(2 * g.turns.cfg.Beat)
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("it does not wait: %v", err)
			default:
			}
			if late := len(g.turns.Followers.behind(7)); late != n || !leased {
				t.Fatalf("it waits for %d sessions, want %d; for a lease: %v", late, n, leased)
			}
		}
		waits(3)
		speaks.Uses(7)
		speaks.Uses(6) // an older word changes nothing
		waits(2)
		g.turns.Followers.Remove(&gone)
		waits(1)
		time.Sleep(g.turns.cfg.TableTime + g.turns.cfg.SendTimeout + 2*g.turns.cfg.Beat)
		waits(1)
		g.turns.Followers.Remove(&silent)
		if err := <-done; err != nil {
			t.Error(err)
		}
		reader.mu.Lock()
		defer reader.mu.Unlock()
		if d := reader.dismissed - g.turns.cfg.TableTime; d < 0 || d > 2*g.turns.cfg.Beat {
			t.Errorf("asked to go after %v", reader.dismissed)
		}
		if d := reader.cut - g.turns.cfg.TableTime - g.turns.cfg.SendTimeout; d < 0 || d > 2*g.turns.cfg.Beat {
			t.Errorf("cut off after %v", reader.cut)
		}
	})
}
