package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// remove has a store give up a replica.
func (n *node) remove(g consensus.GroupID, id consensus.ReplicaID) {
	n.t.Helper()
	if err := RemoveGroup(n.t.Context(), n.Store, g, id); err != nil {
		n.t.Fatal(err)
	}
}

// wantNothing wants nothing of a group to be left: in memory, in the base, in the log, and of what is told of the store.
func (n *node) wantNothing(g consensus.GroupID, shards ...uint16) {
	n.t.Helper()
	for _, id := range shards {
		sh := n.shards[id]
		ix, keys := sh.Counts()
		writes, _ := sh.DirtyCounts()
		if marks := sh.Marks(); keys != 0 || ix.Pebble != 0 || ix.Slotless != 0 || writes != 0 || marks.Flying != 0 || marks.Ordered != marks.Published {
			n.t.Errorf("shard %d has %d keys in memory, %d slots of others, %d newer than the base, %+v", id, keys, ix.Pebble, writes, marks)
		}
		if sh.Agreed.Load() || n.groups.of[id].Load() != nil || n.Events.of[id].Load() != nil {
			n.t.Errorf("shard %d is a group's still", id)
		}
		if err := isEmpty(n.Store, id); err != nil {
			n.t.Error(err)
		}
	}
	all, err := n.disk.Replicas()
	if err != nil || slices.ContainsFunc(all, func(r disk.Replica) bool { return r.Group == uint32(g) }) {
		n.t.Errorf("the base has %+v, %v", all, err)
	}
	n.journal.Log().Streams(func(i log.Info) {
		if uint32(i.Stream) == uint32(g) && isOfGroup(i.Stream) && (!i.Dropped || i.Oldest != 0) {
			n.t.Errorf("the log has a stream of it: %+v", i)
		}
	})
	if _, ok := SightOf(n.Store, g); ok || slices.ContainsFunc(ReplicasOf(n.Store), func(c Group) bool { return c.ID == g }) {
		n.t.Error("it is told of")
	}
	if _, err := EngineOf(n.Store).Status(g); !errors.Is(err, consensus.ErrNoGroup) {
		n.t.Errorf("the engine runs it: %v", err)
	}
}

// live is how many items there are in memory.
func (n *node) live() (items uint64) {
	for i := range n.shards {
		_, keys := n.shards[i].Counts()
		items += keys
	}
	return items
}

// TestRemoveGroup: a replica that is given up is gone, wherever something of it was, and nothing else is; another one with a higher id comes in its place, in
// the same life and in another, and finds nothing.
func TestRemoveGroup(t *testing.T) {
	fs := memFS()
	cfg := func() Config {
		c := alone(fs)
		c.WatchBytes = MinWatchBytes
		return c
	}
	n := openWith(t, cfg(), aGroup(7, 0, 2), aGroup(8, 1))
	n.put(3, "own", "stays")
	n.leads(1)
	n.put(1, "k", "another group's")
	n.fill()
	id := RequestID{Client: [16]byte{1}, Seq: 5}
	for round := range 4 {
		self := consensus.ReplicaID(round + 1)
		n.leads(0)
		before, items := n.Stats(), n.live()
		for i := range 100 {
			n.put(i%2*2, fmt.Sprint("k", i), pattern(100*i, "v"))
			if i == 60 {
				n.checkpoint()
			}
		}
		w := &Write{Op: Op{Kind: OpIncrement, Shard: 2, Key: []byte("n"), Delta: 1, ID: id}}
		id.Seq++
		if err := n.Do(t.Context(), w); err != nil || w.Result.Number != 1 {
			t.Fatalf("round %d: %v, %+v", round, err, w.Result)
		}
		if want := []Group{{ID: 7, Replica: self, Shards: []uint16{0, 2}}, {ID: 8, Replica: 1, Shards: []uint16{1}}}; !reflect.DeepEqual(ReplicasOf(n.Store), want) {
			t.Errorf("it has %+v", ReplicasOf(n.Store))
		}
		woken := make(chan struct{}, 1)
		page, err := WatchGroup(n.Store, 0, WatchRequest{})
		if err != nil || AwaitGroup(n.Store, 0, nil, page.Next, func() { woken <- struct{}{} }) == nil {
			t.Fatalf("nobody can wait for an event: %v", err)
		}
		told := GroupStatsOf(n.Store)
		n.remove(7, self)
		<-woken
		if _, err := WatchGroup(n.Store, 0, WatchRequest{From: page.Next}); !errors.Is(err, ErrShard) {
			t.Errorf("who watches is told %v", err)
		}
		n.wantNothing(7, 0, 2)
		n.lease()
		if after := n.Stats(); after.ItemLive > before.ItemLive || n.live() != items {
			t.Errorf("%d bytes of items, %d before; %d items, %d before", after.ItemLive, before.ItemLive, n.live(), items)
		}
		if now := GroupStatsOf(n.Store); now.Elected < told.Elected || now.Entries < told.Entries {
			t.Errorf("counters fall: %+v, before %+v", now, told)
		}
		for _, err := range []error{
			Confirm(t.Context(), n.Store, 0),
			func() error { _, err := n.Get(t.Context(), 0, []byte("k0"), nil); return err }(),
			func() error { _, err := n.Stat(t.Context(), 2, []byte("k1")); return err }(),
			func() error { _, err := n.Scan(t.Context(), ScanRequest{Shards: []uint16{0, 2}}); return err }(),
		} {
			if !errors.Is(err, ErrNotLeader) {
				t.Errorf("who asks for a key of it is told %v", err)
			}
		}
		n.remove(7, self) // once more
		n.remove(7, 99)
		n.want(3, "own", "stays")
		n.want(1, "k", "another group's")
		waitFor(t, "the shards to count as filled", func() bool { return n.Stats().ShardsFilled == 4 })
		if round%2 == 1 {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			in, err := Inspect(t.Context(), "/store", InspectOptions{FS: fs})
			if err != nil || in.ProblemCount != 0 || in.Keys != 2 || len(in.Replicas) != 1 {
				t.Errorf("%v, %v, %d keys, %+v", err, in.Problems, in.Keys, in.Replicas)
			}
			n = open(t, cfg())
			n.wantNothing(7, 0, 2)
			n.leads(1)
			n.fill()
		}
		for old := range self + 1 {
			g := aGroup(7, 0, 2)
			if g.Replica = old; old > 0 {
				if err := AddGroup(t.Context(), n.Store, g); !errors.Is(err, ErrGroups) {
					t.Fatalf("replica %d comes back: %v", old, err)
				}
			}
		}
		g := aGroup(7, 0, 2)
		g.Replica, g.Founders.Voters[0].ID = self+1, self+1
		if err := AddGroup(t.Context(), n.Store, g); err != nil {
			t.Fatal(err)
		}
		n.leads(0)
		for i := range 100 {
			n.wantAbsent(i%2*2, fmt.Sprint("k", i))
		}
	}
}

// TestRemoveGroupWrong: a replica that is not the one that is there is not given up in its place, and what is not there need not be.
func TestRemoveGroupWrong(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	for _, id := range []consensus.ReplicaID{0, 2, 1 << 40} {
		if err := RemoveGroup(t.Context(), n.Store, 7, id); !errors.Is(err, ErrGroups) {
			t.Errorf("replica %d: %v", id, err)
		}
	}
	n.remove(9, 1)
	n.want(0, "k", "v")
	n.put(0, "k", "w")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RemoveGroup(t.Context(), n.Store, 7, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := RemoveGroup(t.Context(), open(t, testConfig(memFS())).Store, 7, 1); err != nil {
		t.Errorf("a store without replicas: %v", err)
	}
}

// TestRemoveGroupStates: a replica goes whatever state it is in, and what waits at it is answered.
func TestRemoveGroupStates(t *testing.T) {
	never := make(chan struct{})
	for name, c := range map[string]struct {
		set func(*Config)
		do  func(t *testing.T, n *node, broken *failingEngine)
	}{
		"it leads":         {nil, func(*testing.T, *node, *failingEngine) {}},
		"it is fenced":     {nil, func(t *testing.T, n *node, broken *failingEngine) { fence(t, n, broken) }},
		"its log is gone":  {nil, func(t *testing.T, n *node, broken *failingEngine) { _ = broken.Stop(7, true) }},
		"it was stopped":   {nil, func(t *testing.T, n *node, broken *failingEngine) { _ = broken.Stop(7, false) }},
		"it has not begun": {func(c *Config) { c.TakePart = never }, func(*testing.T, *node, *failingEngine) {}},
	} {
		t.Run(name, func(t *testing.T) {
			broken := &failingEngine{fail: 7}
			fs := memFS()
			cfg := func() Config {
				cfg := alone(fs)
				cfg.Engine = func(e EngineEnv) (Engine, error) {
					broken.on.Store(false)
					broken.Node = driver.New(driver.Config{Name: "n0", Log: e.Log, Stream: e.Stream, Fenced: e.Fenced, Link: nobody{}})
					return broken, nil
				}
				if c.set != nil {
					c.set(&cfg)
				}
				return cfg
			}
			n := openWith(t, cfg(), aGroup(7, 0))
			if c.set == nil {
				n.leads(0)
				n.put(0, "k", "v")
			}
			c.do(t, n, broken)
			n.remove(7, 1)
			n.wantNothing(7, 0)
			if err := n.Close(); err != nil && !errors.Is(err, consensus.ErrFenced) {
				t.Fatal(err)
			}
			n = open(t, cfg())
			n.wantNothing(7, 0)
		})
	}
}

// fence has the replica of group 7 be stopped by an error.
func fence(t *testing.T, n *node, broken *failingEngine) {
	broken.on.Store(true)
	_ = n.Submit(&Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("w")}, Done: func(*Write) {}})
	waitFor(t, "the replica to be fenced", func() bool { st, _ := broken.Status(7); return st.Fenced != nil })
}

// TestRemoveGroupWithoutLog: a replica whose log is gone at the start takes no part, and can be given up.
func TestRemoveGroupWithoutLog(t *testing.T) {
	fs := memFS()
	n := openWith(t, alone(fs), aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	n.checkpoint()
	if err := EngineOf(n.Store).Stop(7, true); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, alone(fs))
	if len(ReplicasOf(n.Store)) != 1 {
		t.Errorf("%+v", ReplicasOf(n.Store))
	}
	n.remove(7, 1)
	n.wantNothing(7, 0)
	g := aGroup(7, 0)
	g.Replica, g.Founders.Voters[0].ID = 2, 2
	if err := AddGroup(t.Context(), n.Store, g); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	n.wantAbsent(0, "k")
}

// TestRemoveGroupAnswers: writes that are under way when their replica is given up are answered, and with an outcome that is not known if they are in an entry.
func TestRemoveGroupAnswers(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.groupPatience = time.Hour })
	c.put(0, "k", "v")
	lead := c.leader(0)
	c.cut(lead.id, true)
	done := make(chan error, 100)
	for i := range 100 {
		w := &Write{Op: Op{Shard: uint16(i % 2 * 2), Key: fmt.Append(nil, i), Value: []byte("v")}, Done: func(w *Write) { done <- w.Err }}
		if err := lead.Submit(w); err != nil {
			done <- err
		}
	}
	lead.remove(pair, consensus.ReplicaID(lead.id+1))
	for range 100 {
		if err := <-done; !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("a write that nobody has heard of: %v", err)
		}
	}
	if bytes, writes := lead.gate.Inside(); bytes != 0 || writes != 0 {
		t.Errorf("%d bytes of %d writes are in the gate", bytes, writes)
	}
	lead.wantNothing(pair, 0, 2)
}

// TestRemoveGroupEnds: a call whose context ends, or whose store is closed, ends, and leaves a replica that is given up by the next one, or that is there
// again behind a start.
func TestRemoveGroupEnds(t *testing.T) {
	fs := memFS()
	n := openWith(t, alone(fs), aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	// A checkpoint is under way, and does not end.
	in, out := make(chan struct{}), make(chan struct{})
	go func() { _ = n.ckpt.Alone(context.Background(), func() error { close(in); <-out; return nil }) }()
	<-in
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RemoveGroup(ctx, n.Store, 7, 1) }()
	waitFor(t, "the replica to be stopped", func() bool { _, err := EngineOf(n.Store).Status(7); return err != nil })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if len(ReplicasOf(n.Store)) != 1 {
		t.Error("it is given up")
	}
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); !errors.Is(err, ErrGroups) {
		t.Errorf("a replica that is being given up is said to be there: %v", err)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	close(out)
	n.remove(7, 1)
	n.wantNothing(7, 0)
	again := open(t, alone(crashed))
	again.leads(0)
	again.want(0, "k", "v")
}

// TestRemoveGroupCrashes cuts the power before every call of the file system that changes something while a replica is given up: what is left is all of it or
// nothing, and it can be given up then. Everything else is there.
func TestRemoveGroupCrashes(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 4
	}
	for _, inBase := range []bool{true, false} {
		cuts := newPowerCuts(every)
		n := openWith(t, cuts.config(), aGroup(7, 0, 2), aGroup(8, 1))
		n.leads(0)
		n.leads(1)
		n.put(1, "k", "v")
		n.put(3, "own", "v")
		for i := range 20 {
			n.put(i%2*2, fmt.Sprint("k", i), "v")
		}
		if inBase {
			n.checkpoint()
		}
		cuts.begin()
		n.remove(7, 1)
		clones := cuts.end()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		whole, gone := 0, 0
		for name, clone := range clones {
			if !survives(t, name, clone) {
				gone++
			} else if whole++; name == "when it returns" {
				t.Error("the call has returned, and the replica is there")
			}
		}
		if t.Logf("%d crashes before the replica was gone, %d behind", whole, gone); whole == 0 || gone < 2 {
			t.Error("there should be some of both")
		}
	}
}

// survives opens what a crash has left, and gives the replica up. whole: it was there still.
func survives(t *testing.T, when string, left *crashfs.Disk) (whole bool) {
	cfg := alone(left)
	cfg.LogBytes = MinLogBytes
	n, err := tryOpen(t, cfg)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	n.leads(1)
	n.want(1, "k", "v")
	n.want(3, "own", "v")
	if whole = len(ReplicasOf(n.Store)) == 2; whole {
		n.leads(0)
		for i := range 20 {
			n.want(i%2*2, fmt.Sprint("k", i), "v")
		}
	} else {
		n.wantNothing(7, 0, 2) // and no stream
	}
	n.remove(7, 1)
	n.wantNothing(7, 0, 2)
	if err := n.Close(); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if t.Failed() {
		t.Fatalf("%s: see above", when)
	}
	return whole
}

// TestOrphanStream: what a crash leaves in the log of a replica that the base has no more is dropped by the next start, and by the next replica that is added or
// given up.
func TestOrphanStream(t *testing.T) {
	orphan := func(n *node) {
		n.groups.streams.Store(consensus.GroupID(9), firstStream(9))
		if err := EngineOf(n.Store).Create(9, 4, consensus.State{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, end := range map[string]func(*node, *Config) *node{
		"start": func(n *node, c *Config) *node {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, *c)
		},
		"add": func(n *node, _ *Config) *node {
			if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); err != nil {
				t.Fatal(err)
			}
			return n
		},
		"add of the group": func(n *node, _ *Config) *node {
			if err := AddGroup(t.Context(), n.Store, aGroup(9, 0)); err != nil {
				t.Fatal(err)
			}
			n.leads(0)
			return n
		},
		"removal": func(n *node, _ *Config) *node { n.remove(9, 1); return n },
	} {
		fs := memFS()
		cfg := alone(fs)
		n := open(t, cfg)
		orphan(n)
		cfg = alone(fs)
		n = end(n, &cfg)
		n.journal.Log().Streams(func(i log.Info) {
			if i.Stream == firstStream(9) && !i.Dropped {
				t.Errorf("%s: it is there still: %+v", name, i)
			}
		})
	}
}

// TestDropMeta: what the log has of a replica of the meta group goes, and nothing of another one; nothing is left of it after a restart, and to drop it again does no harm.
func TestDropMeta(t *testing.T) {
	fs := memFS()
	n := open(t, alone(fs))
	for id := consensus.ReplicaID(3); id <= 4; id++ {
		MetaReplica(n.Store, id)
		if err := EngineOf(n.Store).Create(0, id, consensus.State{}); err != nil {
			t.Fatal(err)
		}
	}
	has := func() (list []uint64) {
		n.journal.Log().Streams(func(i log.Info) {
			if uint32(i.Stream) == 0 && i.Stream != 0 && !i.Dropped {
				list = append(list, i.Stream>>32)
			}
		})
		slices.Sort(list)
		return list
	}
	for range 2 {
		if err := errors.Join(DropMeta(n.Store, 3), DropMeta(n.Store, 9)); err != nil || !slices.Equal(has(), []uint64{4}) {
			t.Fatalf("replicas %v are left, %v", has(), err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n = open(t, alone(fs)); !slices.Equal(has(), []uint64{4}) {
		t.Errorf("behind a restart replicas %v are left", has())
	}
}

// TestCellsOfRemoved: the cell of a replica that is given up is believed by nobody; it is no other group's in this life, and of the same group it is
// again, with a word that is not below the last one.
func TestCellsOfRemoved(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(7, 0), aGroup(8, 1))
	n.leads(0)
	n.leads(1)
	n.put(0, "k", "v")
	word := func(p layout.Place, at int) uint64 { return layout.LoadWord(n.mem.Table.Root(), int(p.Byte())+at) }
	old, ok := SightOf(n.Store, 7)
	other, _ := SightOf(n.Store, 8)
	if !ok || old.Term == 0 || word(old.Cell, 0) != old.Term {
		t.Fatalf("%+v", old)
	}
	n.remove(7, 1)
	if w, ready := word(old.Cell, 0), word(old.Cell, 16); w != layout.EndedWord || ready != 0 {
		t.Errorf("its word is %d, ready is %d", w, ready)
	}
	for i, g := range []Group{aGroup(9, 2), aGroup(10, 3)} {
		if err := AddGroup(t.Context(), n.Store, g); err != nil {
			t.Fatal(err)
		}
		if s, ok := SightOf(n.Store, g.ID); !ok || s.Cell == old.Cell || s.Cell == other.Cell {
			t.Errorf("group %d, %d behind: %+v, cell of the first one %v", g.ID, i, s, old.Cell)
		}
	}
	if w := word(old.Cell, 0); w != layout.EndedWord {
		t.Errorf("its word is %d", w)
	}
	joins := Group{ID: 7, Replica: 2, Shards: []uint16{0}}
	if err := AddGroup(t.Context(), n.Store, joins); err != nil {
		t.Fatal(err)
	}
	m := n.groups.of[0].Load()
	if m.cell.place != old.Cell || word(old.Cell, 0) < old.Term || word(old.Cell, 0) == layout.EndedWord || word(layout.CellPublished(old.Cell), 0) != 0 || word(old.Cell, 8) != 0 {
		t.Errorf("it has cell %v, first %v: word %d behind %d", m.cell.place, old.Cell, word(old.Cell, 0), old.Term)
	}
	n.remove(7, 2)
	anew := aGroup(7, 0)
	anew.Replica, anew.Founders.Voters[0].ID = 3, 3
	if err := AddGroup(t.Context(), n.Store, anew); err != nil {
		t.Fatal(err)
	}
	if w := word(old.Cell, 0); w <= old.Term || w == layout.EndedWord {
		t.Errorf("a group that begins anew shows word %d, the one before it %d", w, old.Term)
	}
}
