package space

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/deaf"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store"
)

// idle are handlers of a space to which no session comes.
type idle struct {
	Handlers
	refused atomic.Bool
	over    atomic.Bool
}

func (h *idle) Run(ctx context.Context) { <-ctx.Done(); h.over.Store(true) }
func (h *idle) Refuse()                 { h.refused.Store(true) }

// serving makes a space over one device, without a node, and has it serve.
func serving(t *testing.T) (*Space, *idle) {
	t.Helper()
	h, bounds := &idle{}, &base.Bounds{}
	log := slog.New(slog.DiscardHandler)
	sp := New(Config{
		Store: store.Config{
			Mode: store.Cache, Shards: 1, MemoryLimit: 64 << 20, RegionSize: 8 << 20, IndexRegionSize: 8 << 20,
			Lease: 200 * time.Millisecond, BeatInterval: time.Millisecond, Logger: log,
		},
		Memory:   memory.RegionsConfig{Kind: mem.Heap},
		Turnover: memory.TurnoverConfig{Beat: time.Millisecond, TableTime: time.Minute, SendTimeout: time.Minute},
		Sessions: session.Config{
			Lease: 200 * time.Millisecond, Beat: time.Millisecond, Idle: time.Minute, SendTimeout: time.Minute,
			Credits: 4, InitialCredits: 2, RequestSize: 16 << 10, ReplySize: 16 << 10,
			ReceiveBytes: 1 << 20, ReplyBytes: 1 << 20, MaxSessions: 4, Lanes: 1, MemoryKind: mem.Heap, SharedReceives: session.SharedOff,
		},
		StagingBytes: 1 << 20, Workers: 2, Linger: time.Millisecond, DrainTimeout: 10 * time.Second,
	}, Env{
		Log: base.NewLog(log), Registry: session.NewRegistry(session.RegistryLimits{Sessions: 4, PerHost: 4, Setups: 4, SetupsPerHost: 4}, bounds), Bounds: bounds,
		Line:   memory.NewStageLine(1<<20, func() int64 { return 1 << 20 }, func(*base.Account) {}),
		Shared: func() bool { return false }, MakeHandlers: func(*Space) Handlers { return h },
	})
	r, err := sp.MakeRail(base.NewDevice(nil, "", deaf.Device{}, sp.Draining.Load, func(*base.Device, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	sp.Rails.Add(r)
	if err := sp.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.MakeLanes(1); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := sp.Enter(); ok || sp.Ready() {
		t.Error("a space that does not serve yet lets sessions in")
	}
	sp.Serve()
	return sp, h
}

// TestLife: a space needs no node. Its end waits for whoever has entered, lets nobody in
// meanwhile, and leaves nothing behind.
func TestLife(t *testing.T) {
	defer goleak.VerifyNone(t)
	sp, h := serving(t)
	run, gone, ok := sp.Enter()
	if !ok || !sp.Ready() {
		t.Fatal("a space that serves lets nobody in")
	}
	ended := make(chan error, 1)
	go func() { ended <- sp.Shutdown(context.Background()) }()
	<-run.Done()
	if _, _, ok := sp.Enter(); ok || sp.Ready() || !h.refused.Load() {
		t.Error("a space that ends lets sessions in, or lets requests wait")
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended (%v) with a session in it", err)
	case <-time.After(20 * time.Millisecond):
	}
	gone()
	if err := <-ended; err != nil || sp.Err() != nil || !h.over.Load() {
		t.Errorf("the end: %v, fenced: %v", err, sp.Err())
	}
	if what := sp.Ending.Get(); what != "" {
		t.Errorf("a space that has ended waits for %s", what)
	}
}

// TestFenced: a space that is fenced beats no more, and lets nobody in. One that stood
// down, whose store is well, is closed; of one whose store has failed the end says why.
func TestFenced(t *testing.T) {
	defer goleak.VerifyNone(t)
	why := errors.New("another process is this node")
	sp, _ := serving(t)
	sp.StandDown(why)
	<-sp.BeatDone
	if _, _, ok := sp.Enter(); ok || sp.Ready() || !errors.Is(sp.Err(), why) {
		t.Errorf("it serves, fenced by %v", sp.Err())
	}
	if err := sp.Shutdown(context.Background()); err != nil || !sp.Fence.StoreWell() {
		t.Errorf("the end of one that stood down: %v", err)
	}

	sp, _ = serving(t)
	sp.storeFailed(why)
	<-sp.BeatDone
	if err := sp.Shutdown(context.Background()); !errors.Is(err, why) {
		t.Errorf("the end of one whose store has failed: %v", err)
	}
	sp.Store.Close() // a real process ends here; this one's store is whole
	sp.Staging.Close()
	if err := sp.Rails.Close(); err != nil {
		t.Error(err)
	}
}
