package simcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/sim"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

const (
	nodes   = 5
	clients = 3
	shards  = 4
)

// A World is a network with the nodes of a cluster and its clients. It lives in one bubble.
type World struct {
	seed  uint64
	sc    *Scenario
	net   *sim.Network
	talk  *gossipNet
	log   func(string) // nil: nobody reads it
	began time.Time
	nodes []*Node

	clients []*client.Client
	hosts   []string // of the clients

	zombies sync.WaitGroup // lives that were ended and clear up

	watch *watcher
	rng   *rand.Rand // of what is done to the world; of the goroutine that disturbs

	mu       sync.Mutex
	groupIDs []uint32
	cuts     map[[2]string]bool // host names, from and to
	done     Done

	want map[uint32]int // replicas of each group at the end, where nodes come and go
}

// Done is what was done to a world.
type Done struct {
	Kills, Blackouts, Stops, Pauses, Cuts, OneWay, Hangs, Lost, Clocks, Transfers, Changes, Cancels int
}

// A Node is one machine of the cluster, over its lives.
type Node struct {
	w    *World
	id   string
	ip   string
	host *sim.Host
	fs   *crashfs.Disk
	rng  *rand.Rand // of its disk and its crashes
	// drift is by how much its clocks run faster.
	drift float64
	skew  atomic.Int64 // its wall clock is ahead by so many nanoseconds

	busy sync.Mutex // held by the one fault that is done to it

	mu     sync.Mutex
	srv    *server.Server // nil: it is down
	life   int            // how many there were
	gossip *gossipEnd
	disk   *slowDisk
}

func (n *Node) addr() string { return n.ip + ":7400" }

// newWorld makes a cluster in which the shards have replicas, and its clients.
func newWorld(seed uint64, sc *Scenario, log func(string)) (*World, error) {
	w := &World{seed: seed, sc: sc, log: log, began: time.Now(), rng: rand.New(rand.NewPCG(seed, 1)), cuts: map[[2]string]bool{}}
	w.net = sim.New(sim.Options{Seed: seed, Log: log})
	w.watch = newWatcher(w)
	w.talk = &gossipNet{ends: map[string]*gossipEnd{}, cut: w.separated}
	for i := range nodes {
		n := &Node{w: w, id: fmt.Sprintf("n%d", i+1), ip: fmt.Sprintf("10.0.0.%d", i+1), fs: crashfs.New(), rng: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		if sc.Skew > 0 {
			n.drift = 0.01 * (n.rng.Float64() - 0.5)
			n.skew.Store(sc.skew(n.rng))
		}
		var err error
		if n.host, err = w.net.Host(n.id, n.ip); err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		if err := n.start(); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	for i := range clients {
		if err := w.dial(i); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err := w.found(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.net.SetAdversity(sc.Adversity)
	return w, nil
}

// found agrees on the map.
func (w *World) found() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a := admin.Of(w.clients[0])
	var list []admin.NodeWeight
	for i, n := range w.nodes {
		list = append(list, admin.NodeWeight{ID: n.id, Weight: 1, Out: w.sc.Founders > 0 && i >= w.sc.Founders})
	}
	for {
		_, err := a.ClusterInitWith(ctx, list, admin.InitOptions{Replicas: w.replicas(), Groups: w.sc.Groups})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return w.learn()
}

// learn notes the groups of the map.
func (w *World) learn() error {
	for range 1000 {
		ids := map[uint32]bool{}
		for _, n := range w.nodes {
			for _, g := range n.groups() {
				ids[g.ID] = true
			}
		}
		if len(ids) == w.sc.Groups {
			w.mu.Lock()
			w.groupIDs = slices.Sorted(maps.Keys(ids))
			w.mu.Unlock()
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the groups of the map are not all there")
}

// replicas is on how many nodes each key is.
func (w *World) replicas() int {
	if w.sc.Replicas > 0 {
		return w.sc.Replicas
	}
	return 3 + 2*int(w.seed%2)
}

// start begins a life of a node on what its disk holds.
func (n *Node) start() error {
	w := n.w
	gossip := w.talk.begin(n.ip)
	disk := &slowDisk{dead: make(chan struct{}), most: w.sc.Disk, rng: rand.New(rand.NewPCG(w.seed, n.rng.Uint64())), seen: map[string]bool{}}
	cfg := server.Config{
		Fabric: n.host, Listen: n.addr(), DataDir: "data", FS: disk.wrap(n.fs), Shards: shards,
		MemoryLimit: 8 << 20, RegionSize: 1 << 20, IndexRegionSize: 1 << 20, WatchBytes: store.MinWatchBytes,
		StagingBytes: 80 << 20, ScrubRate: 2 << 10, CacheBytes: 1 << 20, MinFreeBytes: -1, LogBytes: store.MinLogBytes, Simulated: store.Simulated{GroupEntry: 192 << 10, Clock: n.clock}, Workers: 4, MemoryKind: memoryKind(),
		LeaderQuiet: 5 * time.Second, ReplicaAbsent: time.Duration(w.seed%2) * time.Second,
		Cluster: &server.ClusterConfig{NodeID: n.id, Name: "red", Insecure: true, Transport: gossip},
	}
	for _, other := range w.nodes {
		if other != n {
			cfg.Cluster.Join = append(cfg.Cluster.Join, fmt.Sprintf("%s:%d", other.ip, gossipPort))
		}
	}
	if w.log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(lineWriter{w.log, n.id}, nil))
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("start of %s: %w", n.id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.srv, n.gossip, n.disk = srv, gossip, disk
	n.life++
	return nil
}

// clock is a node's: its wall clock may be set, and both run up to 0.5 % faster or slower than the world's.
func (n *Node) clock() (wall time.Time, mono time.Duration) {
	now := time.Now()
	passed := now.Sub(n.w.began)
	passed += time.Duration(float64(passed) * n.drift)
	return n.w.began.Add(passed + time.Duration(n.skew.Load())), passed
}

// A lineWriter gives each line to the run's log.
type lineWriter struct {
	log  func(string)
	node string
}

func (l lineWriter) Write(b []byte) (int, error) {
	l.log(l.node + " " + string(b[:max(0, len(b)-1)]))
	return len(b), nil
}

func memoryKind() mem.Kind {
	if underRace {
		return mem.Heap // the race detector sees what the fabric does with it
	}
	return mem.Mmap
}

// dial makes a client on a host of its own, whose clock runs up to 2 % faster or slower than the servers': both may be wrong by 1 %.
func (w *World) dial(i int) error {
	name := fmt.Sprintf("c%d", i+1)
	h, err := w.net.Host(name, fmt.Sprintf("10.0.1.%d", i+1))
	if err != nil {
		return err
	}
	rate := []float64{1, 0.981, 1.019}[i%3]
	cfg := client.Config{Fabrics: []rdma.Fabric{h}, Spin: -1, BufferBytes: 4 << 20, StagingBytes: 4 << 20}
	for j := range w.nodes { // not all ask the same one first
		cfg.Servers = append(cfg.Servers, w.nodes[(i+j)%nodes].addr())
	}
	if w.log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(lineWriter{w.log, name}, nil))
	}
	if i == 1 {
		cfg.CacheEntries = -1 // every get looks its key up
	}
	c, err := client.Dial(world.With(context.Background(), world.World{
		Now: func() int64 { return int64(float64(time.Since(w.began)) * rate) }, Heap: underRace,
	}), cfg)
	if err != nil {
		return fmt.Errorf("client %s: %w", name, err)
	}
	w.clients, w.hosts = append(w.clients, c), append(w.hosts, name)
	return nil
}

// server is the life of a node that runs; nil: none does.
func (n *Node) server() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// down ends the life of a node for the world, and returns it.
func (n *Node) down() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	srv := n.srv
	n.srv = nil
	return srv
}

// kill kills a node as kill -9 and a power failure do together: of what was not synced a part is lost, and its memory can be READ for
// the time linger. Its next life may begin at once: it takes part in its groups when nobody believes that memory any more (R18).
func (n *Node) kill(linger time.Duration) {
	n.mu.Lock()
	if n.srv != nil {
		n.w.watch.look(n) // what others may have READ until now
		n.host.Kill(linger)
	}
	n.mu.Unlock()
	srv := n.down()
	if srv == nil {
		return
	}
	_ = n.gossip.Shutdown()
	n.fs = n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: n.rng.IntN(101), RNG: rand.New(rand.NewPCG(n.w.seed, n.rng.Uint64()))})
	close(n.disk.dead)
	n.w.zombies.Go(func() {
		// It is cut off. What it says of its clearing up does not matter, but it must end.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
}

// stop stops a node as an operator does.
func (n *Node) stop() error {
	srv := n.down()
	if srv == nil {
		return nil
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		return fmt.Errorf("stop of %s: %w", n.id, err)
	}
	return nil
}

// cutWay cuts the way from one host to another, or mends it.
func (w *World) cutWay(from, to string, on bool) {
	w.mu.Lock()
	w.cuts[[2]string{from, to}] = on
	w.mu.Unlock()
	w.net.CutWay(from, to, on)
}

// separated says whether nothing comes from one IP address to another.
func (w *World) separated(from, to string) bool {
	name := func(ip string) string {
		if i := slices.IndexFunc(w.nodes, func(n *Node) bool { return n.ip == ip }); i >= 0 {
			return w.nodes[i].id
		}
		return ip
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[[2]string{name(from), name(to)}]
}

// close ends everything, and says what did not end well.
func (w *World) close() error {
	w.net.SetAdversity(sim.Adversity{})
	var errs []error
	for _, c := range w.clients {
		errs = append(errs, c.Close())
	}
	var wg sync.WaitGroup
	ends := make([]error, len(w.nodes))
	for i, n := range w.nodes {
		wg.Go(func() { ends[i] = n.stop() })
	}
	wg.Wait()
	w.zombies.Wait()
	time.Sleep(10 * time.Second) // the probes of gossip that were under way end by themselves
	return errors.Join(append(errs, ends...)...)
}
