package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// Stores that are replicas of each other: the engine itself, on disks that lose power, over a network of this process.

// A cluster is three stores with the same groups.
type cluster struct {
	t     *testing.T
	hosts [3]*host
	has   func(id int) []Group // which each store has from its first start on

	mu        sync.Mutex
	out       map[[2]int]bool           // ways that are cut, from and to
	snapshots map[consensus.GroupID]int // that have arrived
}

// A host is the disk of a store, which stays, and the store that runs on it.
type host struct {
	*node
	c      *cluster
	id     int
	disk   *crashfs.Disk
	config func(*Config)

	mu     sync.Mutex   // guards node, for others than the test's own goroutine, and engine
	engine *driver.Node // nil: it is away
}

func nameOf(id int) string { return fmt.Sprint("n", id) }

// Shards 0 and 2 are a group, shard 1 is another, and shard 3 is each store's own.
const (
	pair   consensus.GroupID = 7
	single consensus.GroupID = 8
)

func groupsOf(id int) []Group {
	founders := consensus.Config{Index: 1}
	for i := range 3 {
		founders.Voters = append(founders.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: nameOf(i)})
	}
	self := consensus.ReplicaID(id + 1)
	return []Group{
		{ID: pair, Replica: self, Shards: []uint16{0, 2}, Founders: founders},
		{ID: single, Replica: self, Shards: []uint16{1}, Founders: founders},
	}
}

// newCluster starts three new stores.
func newCluster(t *testing.T, config func(*Config)) *cluster {
	return newClusterOf(t, config, groupsOf)
}

// newClusterOf starts three new stores that have these groups.
func newClusterOf(t *testing.T, config func(*Config), has func(id int) []Group) *cluster {
	c := &cluster{t: t, has: has, out: map[[2]int]bool{}, snapshots: map[consensus.GroupID]int{}}
	for i := range c.hosts {
		c.hosts[i] = &host{c: c, id: i, disk: memFS(), config: config}
	}
	for _, h := range c.hosts {
		h.start()
	}
	t.Cleanup(func() {
		for _, h := range c.hosts {
			h.stop()
		}
	})
	return c
}

// shortly is for how long the logs keep what an absent replica lacks: tests are about snapshots.
const shortly = 500 * time.Millisecond

// start begins a life of a store.
func (h *host) start() {
	h.c.t.Helper()
	cfg := testConfig(h.disk)
	cfg.Lease, cfg.BeatInterval = 20*time.Millisecond, 5*time.Millisecond
	cfg.Engine = func(e EngineEnv) (Engine, error) {
		n := driver.New(driver.Config{Name: nameOf(h.id), Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: &link{h.c, h.id}, Absent: shortly})
		h.mu.Lock()
		h.engine = n
		h.mu.Unlock()
		return n, nil
	}
	if h.config != nil {
		h.config(&cfg)
	}
	s, err := Open(context.Background(), cfg)
	if err != nil {
		h.c.t.Fatalf("store %d: %v", h.id, err)
	}
	for _, g := range h.c.has(h.id) {
		if err := AddGroup(context.Background(), s, g); err != nil {
			h.c.t.Fatalf("store %d: %v", h.id, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.node = &node{Store: s, t: h.c.t, heap: cfg.Memory.(*heapMemory), now: time.Now()}
}

// store is the store that runs; nil: there is none.
func (h *host) store() *Store {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil || h.node == nil {
		return nil
	}
	return h.Store
}

// away takes a store off the network; false: it was.
func (h *host) away() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.engine != nil
	h.engine = nil
	return was
}

// stop ends a life of a store as it should.
func (h *host) stop() {
	if !h.running() {
		return
	}
	if err := h.Close(); err != nil {
		h.c.t.Errorf("store %d: Close: %v", h.id, err)
	}
	h.away()
}

// kill cuts the power of a store.
func (h *host) kill(rng *rand.Rand) {
	if !h.away() {
		return
	}
	clone := h.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))})
	_ = h.Close() // of the world in which nothing happened, but that nobody is heard of
	h.disk = clone
}

func (h *host) running() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.engine != nil
}

// A link takes messages from a store, with some delay and in no order.
type link struct {
	c    *cluster
	from int
}

// to is the engine of another store; nil: it is not reached.
func (l *link) to(node string) *driver.Node {
	if !l.c.hosts[l.from].running() {
		return nil
	}
	for i, h := range l.c.hosts {
		if nameOf(i) != node {
			continue
		}
		l.c.mu.Lock()
		cut := l.c.out[[2]int{l.from, i}]
		l.c.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		if cut {
			return nil
		}
		return h.engine
	}
	return nil
}

func (l *link) Send(node string, _ bool, b []byte) {
	b = bytes.Clone(b)
	go func() {
		if e := l.to(node); e != nil {
			_ = e.Deliver(nameOf(l.from), b)
		}
	}()
}

func (l *link) Snapshot(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	e := l.to(node)
	if e == nil {
		return errors.New("not reached")
	}
	err := e.Receive(ctx, nameOf(l.from), h, data)
	if err == nil {
		l.c.mu.Lock()
		l.c.snapshots[h.Group]++
		l.c.mu.Unlock()
	}
	return err
}

// cut cuts a store off the others, or mends that.
func (c *cluster) cut(id int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.hosts {
		c.out[[2]int{id, i}], c.out[[2]int{i, id}] = on, on
	}
}

// leader is a store that orders writes of a shard, as it thinks; nil: none does.
func (c *cluster) leader(shard uint16) *host {
	best, lead := uint64(0), (*host)(nil)
	for _, h := range c.hosts {
		s := h.store()
		if s == nil {
			continue
		}
		if m := s.groups.of[shard].Load(); m != nil {
			if reign, ok := m.Ready(); ok && reign > best {
				best, lead = reign, h
			}
		}
	}
	return lead
}

// do has a write done, by whoever leads, however often that takes.
func (c *cluster) do(op Op) Result {
	c.t.Helper()
	for deadline := time.Now().Add(testPatience); ; op.ID.Age = time.Second {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s of %s: nobody does it", op.Kind, op.Key)
		}
		h := c.leader(op.Shard)
		if h == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		s := h.store()
		if s == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		w := &Write{Op: op}
		err := s.Do(ctx, w)
		cancel()
		switch {
		case err == nil && h.store() != s:
			// Nobody was told: its power was cut before, and it went on in the world in which that did not happen.
		case err == nil:
			return w.Result
		case errors.Is(err, ErrNotLeader), errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrClosed), errors.Is(err, ErrOverloaded), errors.Is(err, context.DeadlineExceeded):
			time.Sleep(time.Millisecond)
		default:
			c.t.Fatalf("%s of %s: %v", op.Kind, op.Key, err)
		}
	}
}

func (c *cluster) put(shard uint16, key, value string) layout.Version {
	c.t.Helper()
	return c.do(Op{Shard: shard, Key: []byte(key), Value: []byte(value)}).Version
}

// settle waits until the replicas of all stores that run have the same entries published.
func (c *cluster) settle() {
	c.t.Helper()
	waitFor(c.t, "all replicas to have the same entries", func() bool {
		for _, g := range []uint16{0, 1} {
			lead := c.leader(g)
			if lead == nil {
				return false
			}
			want, _ := lead.groups.of[g].Load().Published()
			for _, h := range c.hosts {
				if got, _ := h.groups.of[g].Load().Published(); h.running() && got != want {
					return false
				}
			}
		}
		return true
	})
}

// TestGroups: what one store has acknowledged, all have, with the same versions, in memory and on their disks, over stops and
// starts of each of them; and shards of no group are each store's own.
func TestGroups(t *testing.T) {
	c := newCluster(t, nil)
	versions := map[string]layout.Version{}
	write := func(round string) {
		for i := range 20 {
			key := fmt.Sprintf("k%d", i)
			versions[key] = c.put(uint16(i%3), key, pattern(10+i*100, round+key))
		}
		c.do(Op{Kind: OpDelete, Shard: 0, Key: []byte("k0")})
		delete(versions, "k0")
	}
	check := func(round string) {
		t.Helper()
		for _, h := range c.hosts {
			h.wantAbsent(0, "k0")
			for i := range 20 {
				key := fmt.Sprintf("k%d", i)
				if i == 0 {
					continue
				}
				h.want(i%3, key, pattern(10+i*100, round+key))
				info, err := h.Stat(context.Background(), uint16(i%3), []byte(key))
				if err != nil || info.Version != versions[key] {
					t.Errorf("store %d: %s has version %v (%v), acknowledged was %v", h.id, key, info.Version, err, versions[key])
				}
			}
		}
	}
	write("a")
	c.settle()
	check("a")
	for _, h := range c.hosts {
		h.node.put(3, "own", fmt.Sprint(h.id))
		h.checkpoint()
	}
	check("a")
	write("b")
	c.settle()
	check("b")
	for _, h := range c.hosts {
		h.stop()
		h.start()
		write("c")
	}
	c.settle()
	check("c")
	for _, h := range c.hosts {
		h.want(3, "own", fmt.Sprint(h.id))
		for i := range 3 {
			if err := h.Store.Do(context.Background(), &Write{Op: Op{Shard: uint16(i), Key: []byte("x"), Value: []byte("y")}}); err != nil && !errors.Is(err, ErrNotLeader) {
				t.Errorf("store %d: %v", h.id, err)
			}
		}
	}
}

// TestGroupSnapshot: a store that was away so long that the log of the others has no entries for it any more gets their state, in the
// place of what it has: in its base, in its memory, and for those who ask again for a request. It can lead from then on.
func TestGroupSnapshot(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.LogBytes, cfg.WatchBytes = 2*MinLogBytes, MinWatchBytes })
	away := c.hosts[2]
	gone := []string{"gone-1", "gone-2"}
	for i := range 30 {
		c.put(uint16(i%3), fmt.Sprintf("old-%d", i), "old")
	}
	for _, k := range gone {
		c.put(0, k, "to be deleted")
	}
	c.put(1, "ttl", "for ever")
	c.settle()
	away.checkpoint()
	away.put3()
	for i := range 30 {
		c.put(uint16(i%3), fmt.Sprintf("dirty-%d", i), "not in the base of the store that goes away")
	}
	c.settle()
	away.fill()
	watched := away.events(0, WatchCursor{})
	for round := 0; c.arrived() == 0; round++ {
		if round == 10 {
			t.Fatal("no snapshot was needed")
		}
		c.cut(away.id, true)
		for i := range 60 {
			c.put(uint16(i%3), fmt.Sprintf("old-%d", i%45), pattern(30_000, fmt.Sprint(round, i)))
		}
		for _, k := range gone {
			c.do(Op{Kind: OpDelete, Shard: 0, Key: []byte(k)})
		}
		for i := range 30 {
			c.put(uint16(i%3), fmt.Sprintf("dirty-%d", i), "newer")
		}
		c.do(Op{Kind: OpIncrement, Shard: 1, Key: []byte("n"), Delta: 1, ID: RequestID{Client: [16]byte{1}, Seq: uint64(round + 1)}})
		c.do(Op{Shard: 1, Key: []byte("ttl"), Value: []byte("an hour"), TTL: time.Hour})
		waitFor(t, "the log to let entries go that the base has", func() bool {
			all := true
			for _, h := range c.hosts[:2] {
				h.checkpoint()
				for _, g := range []consensus.GroupID{pair, single} {
					st, err := EngineOf(h.Store).Status(g)
					all = all && err == nil && st.First+5 > st.Applied
				}
			}
			return all
		})
		c.cut(away.id, false)
		c.settle()
	}
	if p := away.events(0, watched.Next); !p.Skipped {
		t.Errorf("the events between its state and the one that it got are missing, and it tells of no gap: %d events", len(p.Events))
	}
	check := func(when string) {
		t.Helper()
		for i := range 45 {
			key := fmt.Sprintf("old-%d", i)
			want, _ := c.leader(uint16(i%3)).get(i%3, key)
			away.want(i%3, key, want)
		}
		for _, k := range gone {
			away.wantAbsent(0, k)
		}
		for i := range 30 {
			away.want(i%3, fmt.Sprintf("dirty-%d", i), "newer")
		}
		away.want(3, "own", "stays")
		if v, err := away.Get(context.Background(), 1, []byte("ttl"), nil); err != nil || v.Expiry == 0 {
			t.Errorf("%s: %v, expiry %d", when, err, v.Expiry)
		}
	}
	check("while the fill goes on")
	away.fill()
	check("filled")
	r := away.reader()
	for i := range 45 {
		key := fmt.Sprintf("old-%d", i)
		want, _ := away.get(i%3, key)
		r.want(i%3, key, want)
	}
	for _, k := range gone {
		r.wantAbsent(0, k)
	}
	// It leads, and judges what it got.
	c.lead(pair, away)
	c.lead(single, away)
	n, _ := away.get(1, "n")
	again := &Write{Op: Op{Kind: OpIncrement, Shard: 1, Key: []byte("n"), Delta: 1, ID: RequestID{Client: [16]byte{1}, Seq: 1, Age: time.Second}}}
	if err := away.Do(context.Background(), again); err != nil && !errors.Is(err, ErrOutcomeUnknown) {
		t.Error(err)
	}
	away.want(1, "n", n)
	c.put(0, "old-0", "after")
	c.settle()
	for _, h := range c.hosts {
		h.want(0, "old-0", "after")
		h.wantAbsent(0, "gone-1")
	}
	away.kill(rand.New(rand.NewPCG(1, 1)))
	away.start()
	c.settle()
	away.want(0, "old-0", "after")
	check2 := func(k string, i int) { away.want(i%3, k, "newer") }
	for i := range 30 {
		check2(fmt.Sprintf("dirty-%d", i), i)
	}
}

// put3 puts a key into the shard that is no group's.
func (h *host) put3() { h.node.put(3, "own", "stays") }

// arrived is how many snapshots have arrived of the group that had the fewest.
func (c *cluster) arrived() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.snapshots[pair], c.snapshots[single])
}

// TestGroupStorm: increments and puts by clients that ask again, while stores lose power, are cut off, checkpoint, hand over, and get
// snapshots. Each increment that was acknowledged is there once, each put that was acknowledged is there unless
// another came later, and all stores have the same.
func TestGroupStorm(t *testing.T) {
	seed := rand.Uint64N(1 << 40)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t, func(cfg *Config) { cfg.LogBytes, cfg.checkpoints = MinLogBytes, 50*time.Millisecond })
	span := 15 * time.Second
	if testing.Short() {
		span = 4 * time.Second
	}
	ends := time.Now().Add(span)
	var mu sync.Mutex
	sums := map[string]int64{}
	last := map[string]string{} // of the puts, each client's
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client+2)))
			for seq := uint64(1); time.Now().Before(ends); seq++ {
				shard, id := uint16(seq%3), RequestID{Client: [16]byte{byte(client + 1)}, Seq: seq}
				if rng.IntN(3) > 0 {
					key := string(rune('a' + rng.IntN(3)))
					c.do(Op{Kind: OpIncrement, Shard: shard, Key: []byte(key), Delta: 1, ID: id})
					mu.Lock()
					sums[fmt.Sprint(shard, key)]++
					mu.Unlock()
					continue
				}
				key, value := fmt.Sprintf("c%d-%d", client, rng.IntN(5)), pattern(rng.IntN(20_000), fmt.Sprint(client, seq))
				del := rng.IntN(5) == 0
				c.do(Op{Kind: deleteIf(del), Shard: shard, Key: []byte(key), Value: map[bool][]byte{false: []byte(value)}[del], ID: id})
				mu.Lock()
				if last[fmt.Sprint(shard, key)] = value; del {
					last[fmt.Sprint(shard, key)] = "-"
				}
				mu.Unlock()
			}
		})
	}
	compared := 0
	clients.Go(func() { compared = c.compareUntil(ends) })
	kills, cuts, transfers := 0, 0, 0
	for time.Now().Before(ends) {
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		h := c.hosts[rng.IntN(3)]
		if lead := c.leader(uint16(rng.IntN(3))); lead != nil && rng.IntN(2) == 0 {
			h = lead
		}
		switch rng.IntN(4) {
		case 0, 1:
			kills++
			h.kill(rng)
			time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
			h.start()
		case 2:
			cuts++
			c.cut(h.id, true)
			time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
			c.cut(h.id, false)
		default:
			transfers++
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = EngineOf(h.Store).Transfer(ctx, pair, consensus.ReplicaID(rng.IntN(3)+1))
			cancel()
		}
	}
	clients.Wait()
	// One that was killed last may wait for its readers still, with all entries in its base.
	waitFor(t, "all replicas to take part", func() bool {
		for _, h := range c.hosts {
			for _, g := range []consensus.GroupID{pair, single} {
				if _, err := EngineOf(h.Store).Status(g); err != nil {
					return false
				}
			}
		}
		return true
	})
	c.settle()
	for id, shard := range map[consensus.GroupID]uint16{pair: 0, single: 1} {
		_, of := c.check(id, shard)
		c.wantAlike(fmt.Sprint("at the end, group ", id), of)
	}
	t.Logf("%d digests of replicas were compared meanwhile", compared)
	all := 0
	for _, h := range c.hosts {
		for id := range 3 {
			for _, k := range []string{"a", "b", "c"} {
				want := sums[fmt.Sprint(id, k)]
				if h == c.hosts[0] {
					all += int(want)
				}
				if got, _ := h.get(id, k); got != fmt.Sprint(want) && (want != 0 || got != "") {
					t.Errorf("store %d: %s in shard %d is %q, and %d increments were acknowledged", h.id, k, id, got, want)
				}
			}
			for client := range 4 {
				for i := range 5 {
					key := fmt.Sprintf("c%d-%d", client, i)
					want, put := last[fmt.Sprint(id, key)]
					got, there := h.get(id, key)
					if there != (put && want != "-") || there && got != want {
						t.Errorf("store %d: %s in shard %d is %q, %v; acknowledged was %q", h.id, key, id, clip(got), there, clip(want))
					}
				}
			}
		}
		if err := h.fence.Failed(); err != nil {
			t.Errorf("store %d is fenced: %v", h.id, err)
		}
		for _, g := range []consensus.GroupID{pair, single} {
			if st, err := EngineOf(h.Store).Status(g); err != nil || st.Fenced != nil {
				t.Errorf("store %d, group %d: %v, %v", h.id, g, err, st.Fenced)
			}
		}
	}
	t.Logf("%d increments, %d kills, %d cuts, %d transfers, snapshots %v", all, kills, cuts, transfers, c.snapshots)
	if all < 20 || kills == 0 {
		t.Error("that was no storm")
	}
}

// lead has a store lead a group.
func (c *cluster) lead(g consensus.GroupID, h *host) {
	c.t.Helper()
	shard := map[consensus.GroupID]uint16{pair: 0, single: 1}[g]
	waitFor(c.t, "a store to lead", func() bool {
		lead := c.leader(shard)
		if lead != nil && lead != h {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = EngineOf(lead.Store).Transfer(ctx, g, consensus.ReplicaID(h.id+1))
		}
		return lead == h
	})
}

// TestGroupExpiry: a key has expired when the leader's removal is published, whatever the clocks of the others say: nobody says so before, and
// nobody sees the key again after, however slow the clock of the next leader is.
func TestGroupExpiry(t *testing.T) {
	skew := []time.Duration{0, time.Hour, -time.Hour}
	next := 0
	c := newCluster(t, func(cfg *Config) {
		by := skew[next%3]
		next++
		cfg.checkpoints = time.Hour // the expirer knows of what the base lists
		cfg.clock = func() (time.Time, time.Duration) {
			now := time.Now()
			return now.Add(by), time.Duration(now.UnixNano())
		}
	})
	ctx := context.Background()
	right, fast, slow := c.hosts[0], c.hosts[1], c.hosts[2]
	c.lead(pair, right)
	for i := range 3 {
		c.do(Op{Shard: 0, Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v"), TTL: 500 * time.Millisecond})
	}
	c.put(0, "stays", "v")
	c.settle()
	if _, err := fast.Get(ctx, 0, []byte("k0"), nil); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a store whose clock is fast, and which does not lead: %v", err)
	}
	slow.want(0, "k0", "v")
	c.lead(pair, slow)
	time.Sleep(600 * time.Millisecond)
	slow.want(0, "k0", "v") // by its clock
	right.expectErr(0, "k0")
	c.lead(pair, right)
	right.wantAbsent(0, "k0")
	waitFor(t, "the removal to be published", func() bool { _, ok := slow.get(0, "k0"); return !ok })
	c.lead(pair, slow)
	for range 3 {
		slow.wantAbsent(0, "k0")
	}
	slow.want(0, "k1", "v")
	c.settle()
	for _, h := range []*host{slow, fast} {
		page, err := h.Scan(ctx, ScanRequest{KeysOnly: true})
		if err != nil || len(page.Entries) != 3 {
			t.Errorf("%d keys in a scan of store %d, %v", len(page.Entries), h.id, err)
		}
	}
	// Nobody asks for the others: the leader's expirer removes them once its base lists them.
	c.lead(pair, right)
	waitFor(t, "the expirer", func() bool {
		for _, h := range c.hosts {
			h.checkpoint()
		}
		gone := true
		for i := range 3 {
			_, there := slow.get(0, fmt.Sprintf("k%d", i))
			gone = gone && !there
		}
		return gone
	})
	c.settle()
	for _, h := range c.hosts {
		for i := range 3 {
			h.wantAbsent(0, fmt.Sprintf("k%d", i))
		}
		h.want(0, "stays", "v")
	}
}

// expectErr wants a get of a store that does not lead to be left to another.
func (h *host) expectErr(shard uint16, key string) {
	h.t.Helper()
	if _, err := h.Get(context.Background(), shard, []byte(key), nil); !errors.Is(err, ErrNotLeader) {
		h.t.Errorf("Get(%s) at a store that does not lead, and by whose clock it has expired: %v", key, err)
	}
}

// TestConfirm: a store that was cut off shows what others have replaced, and does not confirm it; one that leads confirms what it shows.
func TestConfirm(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "k", "old")
	old := c.leader(0)
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	if err := errors.Join(Confirm(ctx, old.Store, 0), Confirm(ctx, old.Store, 3)); err != nil {
		t.Error(err)
	}
	if err := Confirm(ctx, old.Store, 4); !errors.Is(err, ErrShard) {
		t.Error(err)
	}
	for _, h := range c.hosts {
		if h == old {
			continue
		}
		var not *NotLeaderError
		if err := Confirm(ctx, h.Store, 0); !errors.As(err, &not) || not.Leader != 0 && not.Leader != consensus.ReplicaID(old.id+1) {
			t.Errorf("a store that follows: %v", err)
		}
	}
	c.cut(old.id, true)
	waits := make(chan error, 1)
	go func() { waits <- Confirm(ctx, old.Store, 0) }()
	waitFor(t, "another leader", func() bool { lead := c.leader(0); return lead != nil && lead != old })
	c.put(0, "k", "new")
	if err := <-waits; !errors.Is(err, ErrNotLeader) {
		t.Errorf("a leader that was cut off confirms: %v", err)
	}
	old.want(0, "k", "old")
	if err := Confirm(ctx, old.Store, 0); !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v", err)
	}
	lead := c.leader(0)
	if err := Confirm(ctx, lead.Store, 0); err != nil {
		t.Error(err)
	}
	lead.want(0, "k", "new")
	c.cut(old.id, false)
	c.settle()
	if err := lead.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Confirm(ctx, lead.Store, 0); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("closed: %v", err)
	}
	lead.away()
}
