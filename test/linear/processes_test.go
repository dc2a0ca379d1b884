package linear

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/test/node"
)

// lease is that of the nodes here, the shortest there is.
const lease = time.Second

// TestProcesses lets clients work at a kvserver with little memory while it is
// killed and started again, stopped for shorter and for longer than a lease, and
// cut off, and judges what they saw.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes for a minute: make linearizability")
	}
	t.Logf("seed %d", *seedFlag)
	r := startRig(t)
	c := &Checker{
		Name: *fabricFlag, Seed: *seedFlag, Dir: outDir(), Jobs: 2, Limit: 2 * time.Minute,
		// A restart puts the server's clock ahead of ours, for as long as it is
		// behind again it may stand: a deadline may come at any time.
		Slack: Slack{Forget: true},
	}
	w := New(Config{
		Seed: *seedFlag, Ops: *opsFlag, Stores: r.stores, Can: ClientCan, Prefix: watchedPrefix,
		Workers: 12, Objects: 16, OpsPerObject: 600,
		Sizes:      []int{9, 16, 40, 100, 100, 300, 1000, 3000, 20_000, 70_000},
		ShortEvery: 50, ShortUpTo: 20 * time.Millisecond,
		TTLFrom: 20 * time.Millisecond, TTLUpTo: 2 * time.Second,
		Done: func(o *Object) { r.done(c, o) },
	})
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if *secondsFlag > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*secondsFlag)*time.Second)
	}
	defer cancel()
	start := time.Now()
	watch := r.startWatch(ctx, w.Clock())
	faults := r.startFaults(ctx)
	ballast := r.startBallast(ctx)
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	did := faults()
	ballast()
	watch()
	took := time.Since(start)
	if err := w.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	sum, failures := c.Close()
	for _, f := range failures {
		t.Error(f)
	}
	r.countEvictions(t.Context())
	t.Logf("%d operations in %v, judged %v later: %v; kinds %v; %+v", sum.Ops, took.Round(time.Millisecond),
		(time.Since(start) - took).Round(time.Millisecond), sum, sum.ByKind, did)
	events, gaps := r.watched.Count()
	fmt.Printf("linear %s: ops=%d histories=%d keys=%d kills=%d stops=%d cuts=%d unknown=%d refused=%d watched=%d gaps=%d evicted=%d wrong=%d\n",
		*fabricFlag, sum.Ops, sum.Objects, sum.Keys, did.kills, did.stops, did.cuts, sum.Unknown, sum.Refused, events, gaps, r.evicted, sum.Failures)
	if sum.Ops > 10_000 && (events == 0 || sum.Refused == 0) || sum.Ops > 100_000 && r.evicted == 0 {
		t.Error("there were no watch events, no conditions that did not hold, or no evictions")
	}
}

// A rig is a node that is killed and comes back at the same address, and clients
// that stay.
type rig struct {
	t      *testing.T
	dir    string
	node   *node.Node
	proxy  *cutter // nil where the fabric is not TCP
	stores []Store
	heavy  *client.Client // for the ballast, and to watch

	watched *Watched // set before the workers begin
	evicted uint64   // items, by the nodes so far; of the goroutine of the faults, then of the test
}

func startRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	programs.get(t)
	if err := r.start(net.JoinHostPort(*hostFlag, "0")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.node.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the node's standard error:\n%s", r.node.Stderr())
		}
	})
	if *fabricFlag == "iwarp" {
		r.proxy = newCutter(t, r.node.Data)
	}
	for i := range 4 {
		c := r.dial(i%2 == 1, i == 2)
		r.stores = append(r.stores, NewClient(c))
	}
	r.heavy = r.dial(false, false)
	return r
}

// start starts the node.
func (r *rig) start(listen string) error {
	n, err := node.Start(r.t.Context(), node.Options{
		Bin: filepath.Join(programs.dir, "kvserver"),
		Args: []string{"--data-dir", r.dir, "--listen", listen, "--admin-listen", net.JoinHostPort(*hostFlag, "0"), "--fabric", *fabricFlag, "--log-level", "warn",
			"--lease", lease.String(), "--memory-limit", "16MiB", "--expert-region-size", "4MiB", "--expert-index-region-size", "2MiB"},
	})
	if err == nil {
		r.node = n
	}
	return err
}

// dial connects a client, through the proxy if there is one and it is asked for,
// and with or without a cache of places.
func (r *rig) dial(proxied, noCache bool) *client.Client {
	r.t.Helper()
	cfg := client.Config{Servers: []string{r.node.Data}, Fabrics: []rdma.Fabric{newFabric()}, Timeout: 20 * time.Second}
	if proxied && r.proxy != nil {
		cfg.Servers = []string{r.proxy.l.Addr().String()}
	}
	if noCache {
		cfg.CacheEntries = -1
	}
	c, err := client.Dial(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
			r.t.Error(err)
		}
	})
	return c
}

func newFabric() rdma.Fabric {
	switch *fabricFlag {
	case "verbs":
		return verbs.New(verbs.Options{})
	case "shm":
		return shm.New(shm.Options{})
	}
	return iwarp.New(iwarp.Options{})
}

// faultCounts is what was done to a node.
type faultCounts struct{ kills, stops, cuts int }

// startFaults disturbs the node until the context ends or the returned function
// is called, which leaves it running and tells what was done.
func (r *rig) startFaults(ctx context.Context) func() faultCounts {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var did faultCounts
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(*seedFlag, 11))
		var round []int // faults of this round, in an order of its own
		for {
			rest := time.Duration(100+rng.IntN(1400)) * time.Millisecond
			if *fabricFlag != "iwarp" {
				// After a kill there is a lease to wait for, and a guest is slow.
				rest *= 5
			}
			pause(ctx, rest)
			if ctx.Err() != nil {
				return
			}
			if len(round) == 0 {
				round = rng.Perm(numFaults)
			}
			if err := r.fault(ctx, rng, round[0], &did); err != nil {
				r.t.Errorf("seed %d: %v", *seedFlag, err)
				return
			}
			round = round[1:]
		}
	}()
	return func() faultCounts {
		cancel()
		<-done
		return did
	}
}

// numFaults is how many kinds of them there are.
const numFaults = 6

// fault does one to the node.
func (r *rig) fault(ctx context.Context, rng *rand.Rand, kind int, did *faultCounts) error {
	switch {
	case kind < 2:
		did.kills++
		return r.killAndStart(ctx, rng)
	case kind == 2:
		did.stops++
		return r.stopFor(ctx, time.Duration(1+rng.IntN(500))*time.Millisecond)
	case kind == 3:
		did.stops++
		return r.stopFor(ctx, lease+time.Duration(rng.IntN(1000))*time.Millisecond)
	case r.proxy != nil && kind == 4:
		did.cuts++
		r.proxy.cut()
	case r.proxy != nil:
		did.cuts++
		r.proxy.pass(false)
		pause(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
		if rng.IntN(2) == 0 {
			r.proxy.cut()
		}
		r.proxy.pass(true)
	}
	return nil
}

// killAndStart kills the node, and starts it again at the same address.
func (r *rig) killAndStart(ctx context.Context, rng *rand.Rand) error {
	addr := r.node.Data
	r.countEvictions(ctx)
	if err := r.node.Kill(); err != nil {
		return err
	}
	pause(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
	if r.t.Context().Err() != nil {
		return nil
	}
	return r.start(addr)
}

// countEvictions asks the node how many items it has evicted since it was
// started. One that does not answer soon is not asked again.
func (r *rig) countEvictions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stats, err := admin.Of(r.heavy).Stats(ctx)
	var server struct {
		Store struct {
			Evicted uint64 `json:"evicted"`
		}
	}
	if err != nil || json.Unmarshal(stats.Server, &server) != nil {
		return
	}
	r.evicted += server.Store.Evicted
}

// stopFor stops every thread of the node and lets it go on.
func (r *rig) stopFor(ctx context.Context, d time.Duration) error {
	if err := r.node.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, d)
	return r.node.Signal(syscall.SIGCONT)
}
