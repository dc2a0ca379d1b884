package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/sim"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

const serverAddr = "10.0.0.1:7400"

// A World is a network with one node and its clients. It lives in one bubble.
type World struct {
	seed uint64
	rng  *rand.Rand // of what is done to the world; one goroutine's
	net  *sim.Network
	host *sim.Host
	fs   *crashfs.Disk
	sync time.Duration // what a sync takes at most
	// patience is how long clients wait for a server that does not answer; 0:
	// their default.
	patience time.Duration
	short    bool // Scenario.Short
	conf     server.Config
	srv      *server.Server
	began    time.Time

	clients []*client.Client
	hosts   []*sim.Host

	kills, pauses, cuts int // what was done; of the goroutine that disturbs

	zombies sync.WaitGroup // dead servers that clear up

	mu sync.Mutex
	// aheads is by how much the clock of each incarnation was ahead of the wall clock
	// when it began: it comes nearer from then on. What is still starting has mostAhead.
	aheads []time.Duration
}

// mostAhead is what a server promises of its clock.
const mostAhead = 6 * time.Second

// lives is how many incarnations of the server there were.
func (w *World) lives() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.aheads)
}

// ahead returns by how much, in nanoseconds, the clock may have been ahead for a
// write that began when there were so many incarnations and is over now.
func (w *World) ahead(before int) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(max(0, slices.Max(w.aheads[before-1:])))
}

// newWorld makes a network with a node and clients on it.
func newWorld(seed uint64, sc *Scenario, log func(string)) (*World, error) {
	w := &World{seed: seed, sync: sc.Disk, short: sc.Short, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), fs: crashfs.New()}
	w.net = sim.New(sim.Options{Seed: seed, Log: log})
	var err error
	if w.host, err = w.net.Host("server", "10.0.0.1"); err != nil {
		return nil, err
	}
	if sc.Steady {
		w.patience = time.Minute
	}
	w.conf = server.Config{
		Fabric: w.host, Listen: serverAddr, DataDir: "data", Shards: 2,
		MemoryLimit: 16 << 20, RegionSize: 1 << 20, IndexRegionSize: 1 << 20,
		StagingBytes: 80 << 20, ScrubRate: 2 << 10, CacheBytes: 4 << 20, MinFreeBytes: -1, LogBytes: store.MinLogBytes, Workers: 8, MemoryKind: memoryKind(),
		SharedReceives: server.Shared(w.rng.IntN(3)),
	}
	if log != nil {
		w.conf.Logger = slog.New(slog.NewTextHandler(lineWriter{log}, nil))
	}
	if sc.Config != nil {
		sc.Config(&w.conf)
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	for i := range 3 {
		if err := w.dial(i); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	w.net.SetAdversity(sc.Adversity)
	return w, nil
}

// A lineWriter gives each line to the run's log.
type lineWriter struct{ log func(string) }

func (l lineWriter) Write(b []byte) (int, error) {
	l.log(string(b[:max(0, len(b)-1)]))
	return len(b), nil
}

func memoryKind() mem.Kind {
	if underRace {
		return mem.Heap // the race detector sees what the fabric does with it
	}
	return mem.Mmap
}

// start starts a node on what the file system holds.
func (w *World) start() error {
	w.conf.FS = w.disk()
	srv, err := server.New(w.conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w.mu.Lock()
	w.aheads = append(w.aheads, mostAhead)
	n := len(w.aheads)
	w.mu.Unlock()
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("start of the server: %w", err)
	}
	st, err := srv.Stats()
	if err != nil {
		return fmt.Errorf("statistics of the server: %w", err)
	}
	if st.Store.ClockAhead > mostAhead {
		return fmt.Errorf("the server's clock is %v ahead, %v at most is promised", st.Store.ClockAhead, mostAhead)
	}
	w.mu.Lock()
	w.aheads[n-1] = st.Store.ClockAhead
	w.mu.Unlock()
	w.srv = srv
	return nil
}

// dial makes a client on a host of its own, whose clock runs up to 2 % faster or
// slower than the server's: both may be wrong by 1 %.
func (w *World) dial(i int) error {
	h, err := w.net.Host(fmt.Sprintf("client%d", i), fmt.Sprintf("10.0.1.%d", i+1))
	if err != nil {
		return err
	}
	rate := []float64{1, 0.981, 1.019}[i%3]
	cfg := client.Config{
		Servers: []string{serverAddr}, Fabrics: []rdma.Fabric{h}, Spin: -1,
		BufferBytes: 4 << 20, StagingBytes: 4 << 20, Logger: w.conf.Logger,
	}
	if w.patience > 0 {
		cfg.Timeout, cfg.DialTimeout = w.patience, w.patience
	}
	if w.short {
		// Some READs end within that time, others are late.
		cfg.Wait, cfg.Spin = wait.Poll, 200*time.Microsecond
	}
	if i == 1 {
		cfg.CacheEntries = -1 // every get looks its key up
	}
	c, err := client.Dial(world.With(context.Background(), world.World{
		Now: func() int64 { return int64(float64(time.Since(w.began)) * rate) }, Heap: underRace,
	}), cfg)
	if err != nil {
		return fmt.Errorf("client %d: %w", i, err)
	}
	w.clients = append(w.clients, c)
	w.hosts = append(w.hosts, h)
	return nil
}

// crash kills the server as kill -9 and a power failure do together: of what was
// not synced, a part is lost. Its memory can be read for the time linger if no
// write is under way, else it is gone with the program: the next incarnation
// answers by SEND at once, so a write that was durable and not yet published could
// be told by it while the value before it is READ from the memory of the old one
// (docs/correctness.md, section 15). Then a new incarnation starts on the data.
func (w *World) crash(linger time.Duration) error {
	w.kills++
	old := w.srv
	if w.rng.IntN(2) == 0 || !w.stopQuiet() {
		linger = 0
	}
	w.host.Kill(linger)
	w.fs = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.seed, w.rng.Uint64()))})
	w.zombies.Go(func() {
		// The node is cut off. What it says of its clearing up does not matter,
		// but it must end.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = old.Shutdown(ctx)
	})
	return w.start()
}

// stopQuiet stops the server's program in a moment in which no write is between
// its acceptance and its publication, and reports whether there was one. Requests
// that were on their way when the program stops are lost with it.
func (w *World) stopQuiet() bool {
	for range 1000 {
		before, err := w.srv.Stats()
		if err != nil {
			return false
		}
		if before.Store.Inflight == 0 {
			w.host.Pause()
			// A write may have come, and even gone, until the program stood.
			after, err := w.srv.Stats()
			if err == nil && after.Store.Inflight == 0 && after.Store.Published == before.Store.Published {
				return true
			}
			w.host.Resume()
		}
		time.Sleep(100 * time.Microsecond)
	}
	return false
}

// pause stops the server's program for a while; its adapter works on.
func (w *World) pause(d time.Duration) {
	w.pauses++
	w.host.Pause()
	time.Sleep(d)
	w.host.Resume()
}

// close ends everything, and says what did not end well.
func (w *World) close() error {
	w.net.SetAdversity(sim.Adversity{})
	var errs []error
	for _, c := range w.clients {
		errs = append(errs, c.Close())
	}
	if w.srv != nil {
		errs = append(errs, w.srv.Shutdown(context.Background()))
	}
	w.zombies.Wait()
	return errors.Join(errs...)
}
