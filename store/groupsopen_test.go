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
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestGroupConfig: groups that cannot be are refused, each fault by its name, before anything is written.
func TestGroupConfig(t *testing.T) {
	engine := func(EngineEnv) (Engine, error) { t.Error("an engine is made"); return nil, errors.New("none") }
	one := consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n0"}}}
	good := Group{ID: 7, Replica: 1, Shards: []uint16{0, 2}, Founders: one}
	for _, c := range []struct {
		want string
		set  func(*Config)
	}{
		{"without an engine", func(c *Config) { c.Engine = nil }},
		{"sync always", func(c *Config) { c.Sync = Interval }},
		{"sync always", func(c *Config) { c.Mode = Cache }},
		{"watching", func(c *Config) { c.WatchBytes = MinWatchBytes }},
		{"two of it", func(c *Config) { c.Groups = []Group{good, {ID: 7, Replica: 1, Shards: []uint16{1}}} }},
		{"replica 0", func(c *Config) { c.Groups[0].Replica = 0 }},
		{"no shards", func(c *Config) { c.Groups[0].Shards = nil }},
		{"shard 4 of 4", func(c *Config) { c.Groups[0].Shards = []uint16{4} }},
		{"shard 2 is in groups 7 and 8", func(c *Config) { c.Groups = []Group{good, {ID: 8, Replica: 1, Shards: []uint16{2}}} }},
		{"shard 2 is in groups 7 and 7", func(c *Config) { c.Groups[0].Shards = []uint16{2, 2} }},
		{"index 2, not 1", func(c *Config) { c.Groups[0].Founders.Index = 2 }},
		{"ids begin at 1", func(c *Config) { c.Groups[0].Founders.Voters = []consensus.Member{{ID: 0, Node: "n0"}} }},
		{"voters", func(c *Config) {
			c.Groups[0].Founders = consensus.Config{Index: 1, Learners: one.Voters}
		}},
	} {
		cfg := testConfig(memFS())
		cfg.Engine, cfg.Groups = engine, []Group{good}
		c.set(&cfg)
		s, err := Open(context.Background(), cfg)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
		if names, err := cfg.FS.List("/"); err != nil || len(names) > 0 {
			t.Errorf("%s: %q are on the disk, %v", c.want, names, err)
		}
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

// TestGroupBegins: a start that ends between the engine's knowledge of a group and the base's is gone on with by the next one, and a group
// that is there does not begin again, whatever its founders are said to be by then.
func TestGroupBegins(t *testing.T) {
	one := func(name string) consensus.Config {
		return consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: name}}}
	}
	disk := memFS()
	start := func(fail consensus.GroupID, before bool, founder string) (*node, error) {
		cfg := testConfig(disk)
		cfg.PredecessorGone = true
		cfg.Groups = []Group{{ID: 7, Replica: 1, Shards: []uint16{0}, Founders: one(founder)}, {ID: 8, Replica: 1, Shards: []uint16{1}, Founders: one(founder)}}
		cfg.Engine = func(e EngineEnv) (Engine, error) {
			n := driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}})
			return &brokenEngine{n, fail, before}, nil
		}
		return tryOpen(t, cfg)
	}
	for _, fail := range []consensus.GroupID{7, 8} {
		for _, before := range []bool{true, false} {
			if _, err := start(fail, before, "n0"); !errors.Is(err, errBroken) {
				t.Fatalf("at group %d, %v: %v", fail, before, err)
			}
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
		}
	}
	n, err := start(0, false, "n0")
	if err != nil {
		t.Fatal(err)
	}
	lead := func() {
		t.Helper()
		waitFor(t, "the only replica to lead", func() bool { return n.groups.orders(0) && n.groups.orders(1) })
	}
	lead()
	first := n.put(0, "k", "v")
	n.put(1, "k", "w")
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	if n, err = start(0, false, "another"); err != nil {
		t.Fatal(err)
	}
	lead()
	n.want(0, "k", "v")
	n.want(1, "k", "w")
	if v := n.put(0, "k", "x"); v <= first {
		t.Errorf("version %v behind %v", v, first)
	}
	if st, err := EngineOf(n.Store).Status(7); err != nil || st.Config.Node(1) != "n0" {
		t.Errorf("%+v, %v", st, err)
	}
}

// nobody is a network without other nodes.
type nobody struct{ consensus.Link }

func (nobody) Send(string, bool, []byte) {}

// TestGroupCloseWithoutMajority: a store closes although no majority hears it, and says of what is under way that its outcome is not
// known.
func TestGroupCloseWithoutMajority(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "k", "v")
	lead := c.leader(0)
	c.cut(lead.id, true)
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("lost, perhaps")}}
	done := make(chan error, 1)
	w.Done = func(w *Write) { done <- w.Err }
	if err := lead.Submit(w); err != nil {
		t.Fatal(err)
	}
	lead.stop()
	if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write that no majority has heard of: %v", err)
	}
	c.cut(lead.id, false)
	lead.start()
	c.put(0, "k", "w")
	c.settle()
	lead.want(0, "k", "w")
}

// alone is the configuration of a store that is the only replica of its groups.
func alone(disk vfs.FS, groups ...Group) Config {
	cfg := testConfig(disk)
	cfg.PredecessorGone = true
	cfg.Groups = groups
	cfg.Engine = func(e EngineEnv) (Engine, error) {
		return driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}}), nil
	}
	return cfg
}

// aGroup is one whose only replica is here.
func aGroup(id consensus.GroupID, shards ...uint16) Group {
	return Group{ID: id, Replica: 1, Shards: shards, Founders: consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n0"}}}}
}

// TestGroupsOfADirectory: a directory is started with the groups that it has, and with their shards; and a group begins with nothing.
func TestGroupsOfADirectory(t *testing.T) {
	disk := memFS()
	n := open(t, alone(disk, aGroup(7, 2, 0)))
	waitFor(t, "it to lead", func() bool { return n.groups.orders(0) })
	n.put(0, "k", "v")
	n.put(1, "own", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for name, groups := range map[string][]Group{
		"without its group":       nil,
		"with another":            {aGroup(8, 3)},
		"with fewer shards":       {aGroup(7, 0)},
		"with other shards":       {aGroup(7, 0, 3)},
		"with more of its shards": {aGroup(7, 0, 2, 3)},
		"a shard with keys":       {aGroup(7, 0, 2), aGroup(8, 1)},
	} {
		cfg := alone(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), groups...)
		if s, err := Open(context.Background(), cfg); !errors.Is(err, ErrGroups) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	n = open(t, alone(disk, aGroup(7, 0, 2), aGroup(9, 3)))
	n.want(0, "k", "v")
	n.want(1, "own", "v")
}

// TestGroupKeysInTheLog: a shard whose keys stand in the log alone has keys, too.
func TestGroupKeysInTheLog(t *testing.T) {
	disk := memFS()
	cfg := testConfig(disk)
	cfg.checkpoints = time.Hour
	n := open(t, cfg)
	n.put(2, "k", "v")
	if s, err := Open(context.Background(), alone(disk.CrashClone(vfs.CrashCloneCfg{}), aGroup(7, 2))); !errors.Is(err, ErrGroups) {
		t.Errorf("%v", err)
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestGroupWaitsForReaders: behind a kill a replica takes no part before no reader believes the last life's memory (R18).
func TestGroupWaitsForReaders(t *testing.T) {
	disk := memFS()
	n := open(t, alone(disk, aGroup(7, 0)))
	waitFor(t, "it to lead", func() bool { return n.groups.orders(0) })
	n.put(0, "k", "v")
	cfg := alone(disk.CrashClone(vfs.CrashCloneCfg{}), aGroup(7, 0))
	cfg.PredecessorGone, cfg.Lease = false, 700*time.Millisecond
	begun := time.Now()
	n = open(t, cfg)
	if _, err := EngineOf(n.Store).Status(7); !errors.Is(err, consensus.ErrNoGroup) && time.Since(begun) < cfg.Lease {
		t.Errorf("it takes part at once: %v", err)
	}
	waitFor(t, "it to lead", func() bool { return n.groups.orders(0) })
	if took := time.Since(begun); took < cfg.Lease {
		t.Errorf("it leads after %v, and a lease is %v", took, cfg.Lease)
	}
	n.want(0, "k", "v")
}

// TestReceiveHostile: a snapshot that is not what its head says, not of the group's shards, cut short or altered is refused, and leaves
// nothing behind; so does one that is given up, and one for which there is no space.
func TestReceiveHostile(t *testing.T) {
	from := open(t, alone(memFS(), aGroup(7, 0, 2)))
	waitFor(t, "it to lead", func() bool { return from.groups.orders(0) })
	for i := range 50 {
		from.put(i%2*2, fmt.Sprint("k", i), pattern(1000, "v"))
	}
	from.checkpoint()
	snap, err := (&machine{from.groups.of[0], from.Store}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snap)
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	head := snap.State()
	disk := memFS()
	n := open(t, alone(disk, aGroup(7, 0, 2), aGroup(8, 1)))
	m := &machine{n.groups.of[0], n.Store}
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
		"another group's": {&machine{n.groups.of[1], n.Store}, head, bytes.NewReader(data)},
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
	open(t, alone(disk, aGroup(7, 0, 2), aGroup(8, 1)))
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
	n := open(t, alone(memFS(), g))
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
