package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/image"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// Groups that begin with what a store has in its shards.

// adopted is a group that begins with what the store n0 has.
func adopted(id consensus.GroupID, shards ...uint16) Group {
	g := aGroup(id, shards...)
	g.Adopts = true
	return g
}

// adopts has a store's shards become a group's.
func (n *node) adopts(g Group) {
	n.t.Helper()
	if err := AddGroup(n.t.Context(), n.Store, g); err != nil {
		n.t.Fatal(err)
	}
}

// An estate is what a store has before a group begins with it, of every kind that a base has.
type estate struct {
	values map[string]string // of shards 0 and 2, by the last digit of the key
	newest layout.Version
	once   Op
}

// shard is that of a key of an estate.
func (e *estate) shard(key string) int { return int(key[len(key)-1]-'0') % 2 * 2 }

// newEstate writes it: small values, values that stand apart, values in tables of values, all of them overwritten or deleted here and there, one that expires in an hour, and the result of a request.
func newEstate(n *node) *estate {
	n.t.Helper()
	e := &estate{values: make(map[string]string), once: Op{Kind: OpIncrement, Shard: 2, Key: []byte("n1"), Delta: 5, ID: RequestID{Client: [16]byte{7}, Seq: 1}}}
	for round := range 2 {
		for i := range 60 {
			key := fmt.Sprint("k", i)
			value := pattern([]int{10, disk.SeparateFrom + 10, 5000, 70_000}[i%4], fmt.Sprint(key, round))
			if round == 1 && i%3 == 0 {
				continue
			}
			e.newest = max(e.newest, n.put(e.shard(key), key, value))
			e.values[key] = value
		}
		if round == 0 {
			n.checkpoint()
		}
	}
	for _, key := range []string{"k2", "k3", "k7"} {
		n.del(e.shard(key), key)
		delete(e.values, key)
	}
	w := n.do(Write{Op: Op{Kind: OpPut, Shard: 0, Key: []byte("soon0"), Value: []byte("v"), TTL: time.Hour}})
	e.values["soon0"] = "v"
	if w := n.do(Write{Op: e.once}); w.Result.Number != 5 {
		n.t.Fatalf("%+v", w.Result)
	} else {
		e.newest = max(e.newest, w.Result.Version)
	}
	e.newest = max(e.newest, w.Result.Version)
	return e
}

// check looks whether a store that leads has all of it, and knows the request.
func (e *estate) check(n *node) {
	n.t.Helper()
	for key, value := range e.values {
		n.want(e.shard(key), key, value)
	}
	for _, key := range []string{"k2", "k3", "k7"} {
		n.wantAbsent(e.shard(key), key)
	}
	w := &Write{Op: e.once}
	w.ID.Age = time.Second
	if err := n.Do(n.t.Context(), w); err != nil || w.Result.Number != 5 {
		n.t.Errorf("a retry: %v, %+v", err, w.Result)
	}
	if info, err := n.Stat(n.t.Context(), 0, []byte("soon0")); err != nil || info.Expiry == 0 {
		n.t.Errorf("what expires in an hour: %+v, %v", info, err)
	}
}

// TestAdopt: a group that begins with what a store has has all of it, in memory and behind starts, and knows the requests; versions rise; shards of no group go on; and who watches is told of a gap.
func TestAdopt(t *testing.T) {
	fs := memFS()
	cfg := alone(fs)
	cfg.WatchBytes = MinWatchBytes
	n := open(t, cfg)
	e := newEstate(n)
	n.put(3, "own", "v")
	if v, err := n.Put(t.Context(), 1, []byte("other"), []byte("v")); err != nil {
		t.Fatal(err)
	} else {
		e.newest = max(e.newest, v)
	}
	g := adopted(7, 0, 2)
	n.adopts(g)
	n.adopts(g) // again
	n.adopts(adopted(8, 1))
	check := func(round string) {
		t.Helper()
		n.leads(0)
		n.leads(1)
		e.check(n)
		n.want(1, "other", "v")
		n.want(3, "own", "v")
		v := n.put(0, "k0", "later"+round)
		if e.values["k0"] = "later" + round; v <= e.newest || v.NumberedShard() != 0 {
			t.Errorf("version %v behind %v", v, e.newest)
		}
		e.newest = v
		n.put(3, "own", "v")
		if all := ReplicasOf(n.Store); len(all) != 2 || all[0].ID != 7 || all[1].ID != 8 {
			t.Errorf("it has %+v", all)
		}
	}
	check("a")
	if page, err := WatchGroup(n.Store, 0, WatchRequest{From: WatchCursor{Incarnation: 1, Version: 1}}); err != nil || !page.Skipped {
		t.Errorf("who has watched the store is told of no gap: %+v, %v", page, err)
	}
	for _, inBase := range []bool{false, true} {
		if inBase {
			n.checkpoint()
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = open(t, alone(fs))
		check(fmt.Sprint(inBase))
	}
	in := inspect(t, n, fs)
	if in.ProblemCount != 0 {
		t.Error(in.Problems)
	}
}

// inspect closes a store and looks at its directory.
func inspect(t *testing.T, n *node, fs vfs.FS) Inspection {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := Inspect(t.Context(), "/store", InspectOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestAdoptUnderWrites: while writes come, shards become a group's. Each write that was acknowledged is there, each counts once, and none has a version that is not above the one before.
func TestAdoptUnderWrites(t *testing.T) {
	fs := memFS()
	n := open(t, alone(fs))
	const writers = 8
	var counts [writers]atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			key, newest := fmt.Sprint("n", i), layout.Version(0)
			for seq := uint64(1); ; seq++ {
				select {
				case <-stop:
					return
				default:
				}
				op := Op{Kind: OpIncrement, Shard: uint16(i % 2 * 2), Key: []byte(key), Delta: 1, ID: RequestID{Client: [16]byte{byte(i + 1)}, Seq: seq}}
				for {
					w := &Write{Op: op}
					err := n.Do(context.Background(), w)
					if err == nil {
						if int64(seq) != w.Result.Number || w.Result.Version <= newest {
							t.Errorf("%s is %d behind %d increments, with version %v behind %v", key, w.Result.Number, seq, w.Result.Version, newest)
						}
						newest = w.Result.Version
						break
					}
					if op.ID.Age = time.Second; !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOverloaded) {
						t.Errorf("%s: %v", key, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
				counts[i].Store(int64(seq))
			}
		})
	}
	many := func(beyond [writers]int64) {
		waitFor(t, "writes", func() bool {
			for i := range counts {
				if counts[i].Load() < beyond[i]+20 {
					return false
				}
			}
			return !t.Failed()
		})
	}
	many([writers]int64{})
	n.adopts(adopted(7, 0, 2))
	var at [writers]int64
	for i := range counts {
		at[i] = counts[i].Load()
	}
	many(at)
	close(stop)
	all.Wait()
	check := func() {
		t.Helper()
		n.leads(0)
		for i := range counts {
			n.want(i%2*2, fmt.Sprint("n", i), fmt.Sprint(counts[i].Load()))
		}
	}
	check()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, alone(fs))
	check()
}

// TestAdoptedIsSent: a learner gets all that a group began with, the values of tables among that, by a snapshot, and then serves it alone.
func TestAdoptedIsSent(t *testing.T) {
	c := newClusterOf(t, nil, func(int) []Group { return nil })
	first, second := c.hosts[0], c.hosts[1]
	e := newEstate(first.node)
	g := adopted(pair, 0, 2)
	first.adopts(g)
	first.leads(0)
	c.join(second, 2)
	waitFor(t, "it to have come by a snapshot", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.snapshots[pair] > 0
	})
	c.lead(pair, second)
	c.change(pair, 0, func(now *consensus.Config) { now.Voters = without(now.Voters, 1) })
	c.cut(0, true)
	e.check(second.node)
	second.checkpoint()
	second.stop()
	second.start()
	second.leads(0)
	e.check(second.node)
}

// TestAdoptWrong: what cannot be is refused, each fault by its name, and the shards stay the store's own with what they have.
func TestAdoptWrong(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(9, 3))
	n.put(0, "k", "v")
	two := adopted(7, 0)
	two.Founders.Voters = append(two.Founders.Voters, consensus.Member{ID: 2, Node: "n1"})
	other := adopted(7, 0)
	other.Replica = 2
	for _, c := range []struct {
		want string
		g    Group
	}{
		{"with 2 founders", two},
		{"with 1 founders", other},
		{"with 0 founders", Group{ID: 7, Replica: 1, Shards: []uint16{0}, Adopts: true}},
		{"shard 3 is of group 9", adopted(7, 0, 3)},
		{"shard 0 has keys", aGroup(7, 0)}, // which does not adopt
		{"of shards [3]", adopted(9, 0)},
	} {
		if err := AddGroup(t.Context(), n.Store, c.g); !errors.Is(err, ErrGroups) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		n.want(0, "k", "v")
		n.put(0, "k", "v")
	}
	for adopts, want := range map[bool]string{true: "", false: "shard 0 has keys"} {
		if err := MayAddGroups(t.Context(), n.Store, []uint16{0, 1}, adopts); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("it may, adopts %v: %v", adopts, err)
		}
	}
	if err := MayAddGroups(t.Context(), n.Store, []uint16{0, 3}, true); !errors.Is(err, ErrGroups) {
		t.Errorf("a shard of a group is said to be free: %v", err)
	}
	if err := MayAddGroups(t.Context(), n.Store, []uint16{77}, true); !errors.Is(err, ErrShard) {
		t.Errorf("a shard that there is not is said to be free: %v", err)
	}
}

// TestAdoptEnds: a call that is given up leaves the shards the store's own, which are written on, and the next one makes the group of all.
func TestAdoptEnds(t *testing.T) {
	n := open(t, alone(memFS()))
	n.put(0, "k", "v")
	in, out := make(chan struct{}), make(chan struct{})
	go func() { _ = n.ckpt.Alone(context.Background(), func() error { close(in); <-out; return nil }) }()
	<-in
	n.put(0, "k", "w") // so that a checkpoint has to be waited for
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- AddGroup(ctx, n.Store, adopted(7, 0, 2)) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	n.put(0, "k", "x")
	close(out)
	n.adopts(adopted(7, 0, 2))
	n.leads(0)
	n.want(0, "k", "x")
}

// TestAdoptCrashes cuts the power before every call of the file system that changes something while a group begins with what a store has: the shards are the store's own, or the group's, with
// every key and every result in both cases, and the group begins then.
func TestAdoptCrashes(t *testing.T) {
	every := 2
	if testing.Short() {
		every = 6
	}
	cuts := newPowerCuts(every)
	n := open(t, cuts.config())
	e := newEstate(n)
	n.put(3, "own", "v")
	cuts.begin()
	n.adopts(adopted(7, 0, 2))
	clones := cuts.end()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	own, made := 0, 0
	for name, clone := range clones {
		if adoptOutlives(t, e, name, clone) {
			made++
		} else if own++; name == "when it returns" {
			t.Error("the call has returned, and the group is not there")
		}
	}
	if t.Logf("%d crashes before the group was made, %d behind", own, made); own == 0 || made < 2 {
		t.Error("there should be some of both")
	}
}

// adoptOutlives opens what a crash has left, and has the group begin. made: it had.
func adoptOutlives(t *testing.T, e *estate, when string, left *crashfs.Disk) (made bool) {
	t.Helper()
	cfg := alone(left)
	cfg.LogBytes = MinLogBytes
	n, err := tryOpen(t, cfg)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	made = len(ReplicasOf(n.Store)) == 1
	if !made {
		e.check(n)
	}
	n.adopts(adopted(7, 0, 2))
	n.leads(0)
	e.check(n)
	n.want(3, "own", "v")
	if v := n.put(0, "more0", "w"); v <= e.newest {
		t.Errorf("%s: version %v behind %v", when, v, e.newest)
	}
	if in := inspect(t, n, left); in.ProblemCount != 0 || len(in.Replicas) != 1 {
		t.Errorf("%s: %v, %+v", when, in.Problems, in.Replicas)
	}
	if t.Failed() {
		t.Fatalf("%s: see above", when)
	}
	return made
}

// TestAdoptedBase: a group that began with what a store had, and whose base lacks some of it behind a crash, takes no part (R19).
func TestAdoptedBase(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		fs := memFS()
		n := open(t, alone(fs))
		e := newEstate(n)
		n.adopts(adopted(7, 0, 2))
		left := fs.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 2))})
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if !damaged {
			n = open(t, alone(left))
			n.leads(0)
			e.check(n)
			continue
		}
		cfg := alone(left)
		cfg.Keeps = func(consensus.GroupID, consensus.ReplicaID) bool { return false }
		n = open(t, cfg)
		if m := n.groups.of[0].Load(); m.found.Applied != 1 {
			t.Fatalf("the base is at entry %d", m.found.Applied)
		}
		db := n.disk.ForTests().DB()
		if err := errors.Join(db.Delete(disk.AppendKey(nil, 0, disk.KindData, []byte("k0")), pebble.NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = open(t, alone(left))
		m := n.groups.of[0].Load()
		waitFor(t, "the replica to be refused", func() bool {
			m.part.Lock()
			defer m.part.Unlock()
			return m.gone
		})
		if err := m.beganSo(n.Store); err != nil && !errors.Is(err, image.ErrBase) {
			t.Error(err)
		}
		if _, err := n.Get(t.Context(), 0, []byte("k4"), bytes.Clone(nil)); err == nil && Confirm(t.Context(), n.Store, 0) == nil {
			t.Error("it serves")
		}
	}
}
