package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// alone is the configuration of a store that is the only replica of its groups.
func alone(disk vfs.FS) Config {
	cfg := testConfig(disk)
	cfg.PredecessorGone = true
	cfg.Engine = func(e EngineEnv) (Engine, error) {
		return driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}}), nil
	}
	return cfg
}

// aGroup is one whose only replica is here.
func aGroup(id consensus.GroupID, shards ...uint16) Group {
	return Group{ID: id, Replica: 1, Shards: shards, Founders: consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n0"}}}}
}

// openWith opens a store that has groups.
func openWith(t *testing.T, cfg Config, groups ...Group) *node {
	t.Helper()
	n := open(t, cfg)
	for _, g := range groups {
		if err := AddGroup(t.Context(), n.Store, g); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// leads waits until a store leads the group of a shard.
func (n *node) leads(shard uint16) {
	n.t.Helper()
	waitFor(n.t, "it to lead", func() bool { return n.groups.of[shard].Load() != nil && n.groups.orders(shard) })
}

// TestAddGroupBad: groups that cannot be are refused, each fault by its name, and the shards stay the store's own.
func TestAddGroupBad(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(9, 3))
	n.put(1, "k", "v")
	for _, c := range []struct {
		want string
		set  func(*Group)
	}{
		{"replica 0", func(g *Group) { g.Replica = 0 }},
		{"no shards", func(g *Group) { g.Shards = nil }},
		{"shard 4 of 4", func(g *Group) { g.Shards = []uint16{4} }},
		{"shard 2 twice", func(g *Group) { g.Shards = []uint16{2, 2} }},
		{"shard 3 is of group 9", func(g *Group) { g.Shards = []uint16{2, 3} }},
		{"shard 1 has keys", func(g *Group) { g.Shards = []uint16{1, 2} }},
		{"index 2, not 1", func(g *Group) { g.Founders.Index = 2 }},
		{"ids begin at 1", func(g *Group) { g.Founders.Voters = []consensus.Member{{ID: 0, Node: "n0"}} }},
		{"voters", func(g *Group) { g.Founders = consensus.Config{Index: 1, Learners: g.Founders.Voters} }},
		{"replica 1 of group 9 is here", func(g *Group) { g.ID = 9 }},
		{"replica 1 of group 9 is here", func(g *Group) { g.ID, g.Replica, g.Shards = 9, 2, []uint16{3} }},
	} {
		g := aGroup(7, 0, 2)
		c.set(&g)
		if err := AddGroup(t.Context(), n.Store, g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	for i := range 3 {
		n.put(i, "k", "still the store's own")
	}
	if err := AddGroup(t.Context(), n.Store, aGroup(9, 3)); err != nil {
		t.Errorf("a group that is here: %v", err)
	}
	interval := alone(memFS())
	interval.Sync = Interval
	cache := alone(memFS())
	cache.Mode = Cache
	for want, cfg := range map[string]Config{"sync always": interval, "runs replicas": testConfig(memFS()), "nothing that runs": cache} {
		n := open(t, cfg)
		if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); !errors.Is(err, ErrGroups) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A brokenEngine fails at Create of a group, before or behind it.
type brokenEngine struct {
	*driver.Node
	fail   consensus.GroupID
	before bool
}

var errBroken = errors.New("broken")

func (e *brokenEngine) Create(g consensus.GroupID, id consensus.ReplicaID, s consensus.State) error {
	if g == e.fail && e.before {
		return errBroken
	}
	if err := e.Node.Create(g, id, s); err != nil || g != e.fail {
		return err
	}
	return errBroken
}

// TestGroupBegins: a beginning that ends between the engine's knowledge of a group and the base's is gone on with by the next one, in the same life
// or another; and a group that is there does not begin again, whatever its founders are said to be by then.
func TestGroupBegins(t *testing.T) {
	disk := memFS()
	start := func(fail consensus.GroupID, before bool) (*node, *brokenEngine) {
		broken := &brokenEngine{fail: fail, before: before}
		cfg := alone(disk)
		cfg.Engine = func(e EngineEnv) (Engine, error) {
			broken.Node = driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}})
			return broken, nil
		}
		return open(t, cfg), broken
	}
	for _, fail := range []consensus.GroupID{7, 8} {
		for _, before := range []bool{true, false} {
			n, _ := start(fail, before)
			for i := range 2 {
				if fail == 8 {
					if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); err != nil {
						t.Fatal(err)
					}
				}
				if err := AddGroup(t.Context(), n.Store, aGroup(fail, uint16(fail-7))); !errors.Is(err, errBroken) {
					t.Fatalf("at group %d, %v, time %d: %v", fail, before, i, err)
				}
			}
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
		}
	}
	n, broken := start(8, false)
	if err := AddGroup(t.Context(), n.Store, aGroup(8, 1)); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	n.put(1, "own", "v") // the shard is the store's own until then
	n.del(1, "own")
	n.checkpoint()
	broken.fail = 0
	for _, g := range []Group{aGroup(7, 0), aGroup(8, 1)} {
		if err := AddGroup(t.Context(), n.Store, g); err != nil {
			t.Fatal(err)
		}
	}
	n.leads(0)
	n.leads(1)
	first := n.put(0, "k", "v")
	n.put(1, "k", "w")
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	n, _ = start(0, false)
	other := aGroup(7, 0)
	other.Founders.Voters[0].Node = "another"
	if err := AddGroup(t.Context(), n.Store, other); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	n.leads(1) // it is there without a word
	n.want(0, "k", "v")
	n.want(1, "k", "w")
	if v := n.put(0, "k", "x"); v <= first {
		t.Errorf("version %v behind %v", v, first)
	}
	if st, err := EngineOf(n.Store).Status(7); err != nil || st.Config.Node(1) != "n0" {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestAddGroupBesideWriters: a shard that is written to is not made a group's; what was under way is done, and what comes meanwhile is
// told so. Once it has no key any more, it is, and numbers from the group's first number on.
func TestAddGroupBesideWriters(t *testing.T) {
	n := open(t, alone(memFS()))
	n.put(0, "there all the time", "v")
	stop := make(chan struct{})
	var all sync.WaitGroup
	var refused atomic.Int64
	for w := range 3 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				err := n.Do(context.Background(), &Write{Op: Op{Shard: 0, Key: fmt.Appendf(nil, "w%d", w), Value: []byte("v"), Kind: deleteIf(i%2 == 1)}})
				if errors.Is(err, ErrNotLeader) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		if err := AddGroup(t.Context(), n.Store, aGroup(7, 0, 2)); !errors.Is(err, ErrGroups) {
			t.Fatal(err)
		}
	}
	close(stop)
	all.Wait()
	t.Logf("%d writes were refused", refused.Load())
	for w := range 3 {
		n.del(0, fmt.Sprintf("w%d", w))
	}
	n.del(0, "there all the time")
	n.checkpoint()
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0, 2)); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	if v := n.put(0, "k", "v"); v != layout.NumberedVersion(1, 0) {
		t.Errorf("the first version is %v", v)
	}
	n.checkpoint()
	n.put(1, "own", "v")
	n.checkpoint()
	n.put(0, "k", "w")
	n.checkpoint()
	n.want(0, "k", "w")
	if st := n.Stats(); st.Log.DirtyWrites != 0 {
		t.Errorf("%d writes are newer than the base", st.Log.DirtyWrites)
	}
}

// TestLateWriteOfTheStore: a write that asked who orders its shard before that was a group's, and comes behind the word that it is, is not
// ordered as one of the store's own.
func TestLateWriteOfTheStore(t *testing.T) {
	of := make([]atomic.Pointer[member], 2)
	of[1].Store(&member{})
	l := &lonely{of: of} // without a pipeline, which would order it
	if err := l.Push(&flight.Flight{Shard: 1}); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	// One that was decided on while the shard was a group's, which could not be added after all.
	if err := l.Push(&flight.Flight{Shard: 0, Reign: 3}); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
}

// nobody is a network without other nodes.
type nobody struct{ consensus.Link }

func (nobody) Send(string, bool, []byte) {}

// TestGroupCloseWithoutMajority: a store closes although no majority hears it, and says of what is under way that its outcome is not
// known.
func TestGroupCloseWithoutMajority(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.groupPatience = time.Hour })
	c.put(0, "k", "v")
	lead := c.leader(0)
	c.cut(lead.id, true)
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("lost, perhaps")}}
	done := make(chan error, 1)
	w.Done = func(w *Write) { done <- w.Err }
	if err := lead.Submit(w); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { defer close(closed); lead.stop() }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("it has not closed in 20 s")
		c.cut(lead.id, false)
		<-closed
	}
	if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write that no majority has heard of: %v", err)
	}
	c.cut(lead.id, false)
	lead.start()
	c.put(0, "k", "w")
	c.settle()
	lead.want(0, "k", "w")
}

// TestGroupAnswersWithoutMajority: a store that is cut off answers what waits at it, and holds nothing of it: a write's outcome is not known, and who
// reads a key whose time is over is told that the store does not lead. What the others do meanwhile is here when they are reached again.
func TestGroupAnswersWithoutMajority(t *testing.T) {
	c := newCluster(t, nil)
	for try := 0; ; try++ {
		if try == 10 {
			t.Fatal("the leader does not stay one")
		}
		var old *host
		waitFor(t, "a leader", func() bool { old = c.leader(0); return old != nil })
		c.do(Op{Shard: 0, Key: []byte("ttl"), Value: []byte("v"), TTL: 50 * time.Millisecond})
		time.Sleep(60 * time.Millisecond)
		id := RequestID{Client: [16]byte{9}, Seq: uint64(try + 1)}
		key := fmt.Appendf(nil, "n%d", try)
		done := make(chan error, 1)
		c.cut(old.id, true)
		w := &Write{Op: Op{Kind: OpIncrement, Shard: 0, Key: key, Delta: 1, ID: id}}
		w.Done = func(w *Write) { done <- w.Err }
		if err := old.Submit(w); err != nil {
			c.cut(old.id, false)
			continue
		}
		_, read := old.Get(t.Context(), 0, []byte("ttl"), nil)
		err := <-done
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("a write that no majority has heard of: %v", err)
		}
		if !errors.Is(read, ErrNotLeader) || errors.Is(read, ErrOutcomeUnknown) {
			t.Errorf("a read of a key whose time is over: %v", read)
		}
		waitFor(t, "nothing to be held", func() bool { bytes, writes := old.gate.Inside(); return bytes == 0 && writes == 0 })
		id.Age = time.Second
		for range 2 {
			if got := c.do(Op{Kind: OpIncrement, Shard: 0, Key: key, Delta: 1, ID: id}); got.Number != 1 {
				t.Errorf("asked again under its name, one increment makes %d", got.Number)
			}
		}
		c.cut(old.id, false)
		c.settle()
		old.want(0, string(key), "1")
		return
	}
}

// TestGroupsOfADirectory: a directory with replicas is not served without what runs them, and has its groups and their shards for ever.
func TestGroupsOfADirectory(t *testing.T) {
	disk := memFS()
	n := openWith(t, alone(disk), aGroup(7, 2, 0))
	n.leads(0)
	n.put(0, "k", "v")
	n.put(1, "own", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []SyncPolicy{Always, Interval} {
		cfg := testConfig(disk)
		if cfg.Sync = policy; policy == Interval {
			cfg.Engine = alone(disk).Engine
		}
		if s, err := Open(context.Background(), cfg); !errors.Is(err, ErrGroups) {
			t.Errorf("it is served: %v", err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	n = openWith(t, alone(disk), aGroup(7, 0, 2), aGroup(9, 3))
	for _, shards := range [][]uint16{{0}, {0, 3}, {0, 1, 2}} {
		if err := AddGroup(t.Context(), n.Store, aGroup(7, shards...)); !errors.Is(err, ErrGroups) {
			t.Errorf("the group is said to have shards %v: %v", shards, err)
		}
	}
	n.leads(0)
	n.want(0, "k", "v")
	n.want(1, "own", "v")
	if _, err := n.Watch(WatchRequest{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("events of a store with replicas: %v", err)
	}
}

// TestGroupKeysInTheLog: a shard whose keys stand in the log alone has keys, too.
func TestGroupKeysInTheLog(t *testing.T) {
	cfg := alone(memFS())
	cfg.checkpoints = time.Hour
	n := open(t, cfg)
	n.put(2, "k", "v")
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 2)); !errors.Is(err, ErrGroups) {
		t.Error(err)
	}
	n.del(2, "k")
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 2)); err != nil {
		t.Error(err)
	}
}

// TestGroupWaitsForReaders: behind a kill a replica takes no part before no reader believes the last life's memory (R18).
func TestGroupWaitsForReaders(t *testing.T) { virtual(groupWaitsForReaders)(t) }

func groupWaitsForReaders(t *testing.T) {
	disk := memFS()
	n := openWith(t, alone(disk), aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	cfg := alone(disk.CrashClone(vfs.CrashCloneCfg{}))
	may := make(chan struct{})
	cfg.PredecessorGone, cfg.Lease, cfg.TakePart = false, 700*time.Millisecond, may
	begun := time.Now()
	n = open(t, cfg)
	if _, err := EngineOf(n.Store).Status(7); !errors.Is(err, consensus.ErrNoGroup) && time.Since(begun) < cfg.Lease {
		t.Errorf("it takes part at once: %v", err)
	}
	time.AfterFunc(cfg.Lease/2, func() { close(may) })
	n.leads(0)
	if took := time.Since(begun); took < cfg.Lease {
		t.Errorf("it leads after %v, and a lease is %v", took, cfg.Lease)
	}
	n.want(0, "k", "v")
	cfg = alone(disk.CrashClone(vfs.CrashCloneCfg{}))
	may = make(chan struct{})
	cfg.TakePart = may
	n = open(t, cfg)
	time.Sleep(100 * time.Millisecond)
	if _, err := EngineOf(n.Store).Status(7); !errors.Is(err, consensus.ErrNoGroup) {
		t.Errorf("it takes part, and nobody knows whether it may: %v", err)
	}
	close(may)
	n.leads(0)
}

// TestReceiveHostile: a snapshot that is not what its head says, not of the group's shards, cut short or altered is refused, and leaves
// nothing behind; so does one that is given up, and one for which there is no space.
func TestReceiveHostile(t *testing.T) {
	from := openWith(t, alone(memFS()), aGroup(7, 0, 2))
	from.leads(0)
	for i := range 50 {
		from.put(i%2*2, fmt.Sprint("k", i), pattern(1000, "v"))
	}
	from.checkpoint()
	snap, err := (&machine{from.groups.of[0].Load(), from.Store}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snap)
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	head := snap.State()
	disk := memFS()
	n := openWith(t, alone(disk), aGroup(7, 0, 2), aGroup(8, 1))
	m := &machine{n.groups.of[0].Load(), n.Store}
	left := func() int {
		names, err := disk.List("/store/tables/group.7")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	good, err := m.Receive(t.Context(), head, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if left() == 0 || good.State().Applied != head.Applied {
		t.Errorf("%d files, %+v", left(), good.State())
	}
	if err := good.Close(); err != nil || left() != 0 {
		t.Errorf("%v, %d files are left", err, left())
	}
	later, altered := head, bytes.Clone(data)
	later.Applied++
	altered[len(altered)/2] ^= 4
	for name, c := range map[string]struct {
		m    *machine
		head consensus.State
		data io.Reader
	}{
		"another head":    {m, later, bytes.NewReader(data)},
		"cut short":       {m, head, bytes.NewReader(data[:len(data)/2])},
		"altered":         {m, head, bytes.NewReader(altered)},
		"nothing":         {m, head, bytes.NewReader(nil)},
		"another group's": {&machine{n.groups.of[1].Load(), n.Store}, head, bytes.NewReader(data)},
		"a broken line":   {m, head, iotest.TimeoutReader(bytes.NewReader(data))},
	} {
		if r, err := c.m.Receive(t.Context(), c.head, c.data); err == nil {
			t.Errorf("%s: it is taken", name)
			_ = r.Close()
		}
		if n := left(); n != 0 {
			t.Errorf("%s: %d files are left", name, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Receive(ctx, head, bytes.NewReader(data)); !errors.Is(err, context.Canceled) || left() != 0 {
		t.Errorf("given up: %v, %d files", err, left())
	}
	if err := m.Adopt(strange{}); err == nil {
		t.Error("what was received elsewhere is adopted")
	}
	// What a crash leaves of one is gone behind the next start.
	if _, err = m.Receive(t.Context(), head, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	openWith(t, alone(disk), aGroup(7, 0, 2), aGroup(8, 1))
	if names, err := disk.List("/store/tables"); err != nil || slices.Contains(names, "group.7") {
		t.Errorf("%q are left, %v", names, err)
	}
}

// A strange state was received by nobody here.
type strange struct{ consensus.Received }

// TestGroupRoom: a write of a group keeps no room in the log for itself, because the engine sets it aside for the entry: neither one that
// is under way, nor one that was not taken.
func TestGroupRoom(t *testing.T) {
	g := aGroup(7, 0)
	g.Founders.Voters = append(g.Founders.Voters, consensus.Member{ID: 2, Node: "n1"}) // who never comes
	n := openWith(t, alone(memFS()), g)
	waitFor(t, "a log that has its files", func() bool { return n.journal.Log().Stats().Free >= 3 })
	before, _ := n.journal.Room(log.Puts)
	const writes, size = 2000, 1000
	for range writes {
		w := &Write{Op: Op{Key: []byte("k"), Value: make([]byte, size)}, Done: func(*Write) {}}
		if err := n.Submit(w); !errors.Is(err, ErrNotLeader) {
			t.Fatal(err)
		}
	}
	if after, _ := n.journal.Room(log.Puts); before-after > writes*size/2 {
		t.Errorf("writes that were not taken keep %d bytes of the log", before-after)
	}
	if bytes, writes := n.gate.Inside(); bytes != 0 || writes != 0 {
		t.Errorf("%d bytes of %d writes are in the gate", bytes, writes)
	}
}

// TestInspectGroups: a stopped directory with replicas is whole, though its versions are of no epoch; and the replicas are told.
func TestInspectGroups(t *testing.T) {
	disk := memFS()
	n := openWith(t, alone(disk), aGroup(7, 0, 2))
	n.leads(0)
	for i := range 100 {
		n.put(i%2*2, fmt.Sprint("k", i), "v")
	}
	n.put(1, "own", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := Inspect(t.Context(), "/store", InspectOptions{FS: disk})
	if err != nil || in.ProblemCount != 0 || in.Keys != 101 {
		t.Errorf("%v, %v, %d keys", err, in.Problems, in.Keys)
	}
	if len(in.Replicas) != 1 || in.Replicas[0].Group != 7 || in.Replicas[0].ID != 1 || !slices.Equal(in.Replicas[0].Shards, []uint16{0, 2}) {
		t.Errorf("%+v", in.Replicas)
	}
}
