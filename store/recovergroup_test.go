package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// recovers has a store make a group of what it has of another one.
func (n *node) recovers(from consensus.GroupID, replica consensus.ReplicaID, to Group) {
	n.t.Helper()
	if err := RecoverGroup(n.t.Context(), n.Store, from, replica, 1, to); err != nil {
		n.t.Fatal(err)
	}
}

// recovered is the group that is made at a node.
func recovered(id consensus.GroupID, node string, shards ...uint16) Group {
	return Group{ID: id, Replica: 1, Shards: shards, Founders: consensus.Config{Index: 1, Voters: []consensus.Member{{ID: 1, Node: node}}}}
}

// TestRecoverGroup: what a group of three has acknowledged, the one replica that is left has, though it has not heard that the newest of it is committed; versions rise, retries are known, who watches is told of a
// gap, and words of before are believed by nobody. All of that is so behind a restart, too.
func TestRecoverGroup(t *testing.T) {
	behind := 0
	for range 3 {
		c := newCluster(t, func(cfg *Config) { cfg.WatchBytes = MinWatchBytes })
		c.put(0, "k", "v")
		lead := c.leader(0)
		left, lost := c.hosts[(lead.id+1)%3], c.hosts[(lead.id+2)%3]
		id := RequestID{Client: [16]byte{7}, Seq: 1}
		once := Op{Kind: OpIncrement, Shard: 2, Key: []byte("n"), Delta: 5, ID: id}
		if r := c.do(once); r.Number != 5 {
			t.Fatalf("%+v", r)
		}
		c.settle()
		page, err := WatchGroup(left.Store, 0, WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		c.cut(lost.id, true)
		newest := layout.Version(0)
		for i := range 30 {
			newest = max(newest, c.put(uint16(i%2*2), fmt.Sprint("k", i), fmt.Sprint("v", i)))
		}
		c.cut(lead.id, true)
		old := left.groups.of[0].Load()
		cell := func() layout.Cell {
			off := int(old.cell.place.Byte())
			got, err := layout.ParseCell(left.mem.Table.Root()[off : off+layout.CellRead])
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if at := cell(); at.Word == 0 || at.Word == layout.EndedWord {
			t.Fatalf("the replica that is left has a cell %+v", at)
		}
		if st, err := EngineOf(left.Store).Status(pair); err != nil || st.Last == 0 {
			t.Fatalf("%+v, %v", st, err)
		} else if st.Applied < st.Last {
			behind++
		}
		self := consensus.ReplicaID(left.id + 1)
		to := recovered(9, nameOf(left.id), 0, 2)
		left.recovers(pair, self, to)
		left.recovers(pair, self, to) // again
		if at := cell(); at.Word != layout.EndedWord || at.Ready != 0 {
			t.Errorf("a reader who knows the old group finds %+v", at)
		}
		if _, err := EngineOf(left.Store).Status(pair); !errors.Is(err, consensus.ErrNoGroup) {
			t.Errorf("the engine runs the old replica: %v", err)
		}
		check := func(n *node) {
			t.Helper()
			n.leads(0)
			for i := range 30 {
				n.want(i%2*2, fmt.Sprint("k", i), fmt.Sprint("v", i))
			}
			n.want(0, "k", "v")
			w := &Write{Op: once}
			w.ID.Age = time.Second
			if err := n.Do(t.Context(), w); err != nil || w.Result.Number != 5 {
				t.Errorf("a retry: %v, %+v", err, w.Result)
			}
			if v := n.put(0, "later", "v"); v.Number() <= newest.Number()+recoverGap/2 {
				t.Errorf("version %v behind %v", v, newest)
			}
			if all := ReplicasOf(n.Store); !reflect.DeepEqual(all[len(all)-1], Group{ID: 9, Replica: 1, Shards: []uint16{0, 2}}) || len(all) != 2 {
				t.Errorf("it has %+v", all)
			}
		}
		check(left.node)
		if got, err := WatchGroup(left.Store, 0, WatchRequest{From: page.Next}); err != nil || !got.Skipped {
			t.Errorf("who has watched the old group is told of no gap: %+v, %v", got, err)
		}
		if old == left.groups.of[0].Load() {
			t.Error("the old replica has the shards")
		}
		if err := left.Close(); err != nil {
			t.Fatal(err)
		}
		left.away()
		cfg := testConfig(left.disk)
		cfg.Lease, cfg.BeatInterval = 20*time.Millisecond, 5*time.Millisecond
		cfg.Engine = alone(left.disk).Engine
		n := open(t, cfg)
		check(n)
	}
	if behind == 0 {
		t.Error("the replica that was left had always heard of all that was committed: this test shows too little")
	}
}

// TestRecoverGroupWrong: what cannot be is refused, and the replica goes on.
func TestRecoverGroupWrong(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(7, 0, 2), aGroup(8, 1))
	n.leads(0)
	n.leads(1)
	n.put(0, "k", "v")
	for name, c := range map[string]struct {
		from    consensus.GroupID
		replica consensus.ReplicaID
		to      Group
	}{
		"a lower id":        {7, 1, recovered(6, "n0", 0, 2)},
		"the same id":       {7, 1, recovered(7, "n0", 0, 2)},
		"another replica":   {7, 2, recovered(9, "n0", 0, 2)},
		"another group":     {6, 1, recovered(9, "n0", 0, 2)},
		"other shards":      {7, 1, recovered(9, "n0", 0)},
		"another's shards":  {7, 1, recovered(9, "n0", 1)},
		"the one that is":   {7, 1, recovered(8, "n0", 0, 2)},
		"no founder":        {7, 1, Group{ID: 9, Replica: 1, Shards: []uint16{0, 2}}},
		"another founder":   {7, 1, Group{ID: 9, Replica: 2, Shards: []uint16{0, 2}, Founders: aGroup(9, 0).Founders}},
		"shards of nothing": {7, 1, recovered(9, "n0", 0, 77)},
		"the meta group":    {0, 1, recovered(9, "n0", 0, 2)},
	} {
		if err := RecoverGroup(t.Context(), n.Store, c.from, c.replica, 1, c.to); !errors.Is(err, ErrGroups) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.put(0, "k", "w")
	n.want(0, "k", "w")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RecoverGroup(t.Context(), n.Store, 7, 1, 1, recovered(9, "n0", 0, 2)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestRecoverGroupOfNothing: a replica that has got nothing from the others yet, and one whose log is gone, are no beginning of a group.
func TestRecoverGroupOfNothing(t *testing.T) {
	n := openWith(t, alone(memFS()), Group{ID: 7, Replica: 4, Shards: []uint16{0}}, aGroup(8, 1))
	if err := RecoverGroup(t.Context(), n.Store, 7, 4, 1, recovered(9, "n0", 0)); !errors.Is(err, ErrGroups) {
		t.Errorf("a replica with nothing: %v", err)
	}
	n.leads(1)
	if err := EngineOf(n.Store).Stop(8, true); err != nil {
		t.Fatal(err)
	}
	if err := RecoverGroup(t.Context(), n.Store, 8, 1, 1, recovered(9, "n0", 1)); !errors.Is(err, consensus.ErrNoLog) {
		t.Errorf("a replica without a log: %v", err)
	}
}

// TestKeeps: a replica that its node is to give up does not take part, whatever it has promised; a group is made of it all the same.
func TestKeeps(t *testing.T) {
	fs := memFS()
	n := openWith(t, alone(fs), aGroup(7, 0), aGroup(8, 1))
	n.leads(0)
	n.leads(1)
	n.put(0, "k", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := alone(fs)
	asked := make(chan struct{}, 2)
	cfg.Keeps = func(group consensus.GroupID, replica consensus.ReplicaID) bool {
		if group == 7 && replica == 1 {
			asked <- struct{}{}
		}
		return group != 7
	}
	n = open(t, cfg)
	n.leads(1)
	<-asked
	if _, err := EngineOf(n.Store).Status(7); !errors.Is(err, consensus.ErrNoGroup) {
		t.Errorf("it takes part: %v", err)
	}
	if err := Confirm(t.Context(), n.Store, 0); !errors.Is(err, ErrNotLeader) {
		t.Errorf("who asks for its keys is told %v", err)
	}
	n.recovers(7, 1, recovered(9, "n0", 0))
	n.leads(0)
	n.want(0, "k", "v")
}

// TestRecoverGroupEnds: a call whose context ends ends, and the next one finishes what it has begun.
func TestRecoverGroupEnds(t *testing.T) {
	n := openWith(t, alone(memFS()), aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	in, out := make(chan struct{}), make(chan struct{})
	go func() { _ = n.ckpt.Alone(context.Background(), func() error { close(in); <-out; return nil }) }()
	<-in
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RecoverGroup(ctx, n.Store, 7, 1, 1, recovered(9, "n0", 0)) }()
	waitFor(t, "the replica to be stopped", func() bool { _, err := EngineOf(n.Store).Status(7); return err != nil })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if all := ReplicasOf(n.Store); len(all) != 1 || all[0].ID != 7 {
		t.Errorf("it has %+v", all)
	}
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); !errors.Is(err, ErrGroups) {
		t.Errorf("a replica that goes is said to be there: %v", err)
	}
	close(out)
	n.recovers(7, 1, recovered(9, "n0", 0))
	n.leads(0)
	n.want(0, "k", "v")
	n.put(0, "k", "w")
}

// TestRecoverGroupCrashes cuts the power before every call of the file system that changes something while a group is made of a replica: the old replica is left whole, or the new one is, with every key
// and every result; and it is made then.
func TestRecoverGroupCrashes(t *testing.T) {
	every := 2
	if testing.Short() {
		every = 6
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
		n.recovers(7, 1, recovered(9, "n0", 0, 2))
		clones := cuts.end()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		old, made := 0, 0
		for name, clone := range clones {
			if !outlives(t, name, clone) {
				made++
			} else if old++; name == "when it returns" {
				t.Error("the call has returned, and the old replica is there")
			}
		}
		if t.Logf("%d crashes before the group was made, %d behind", old, made); old == 0 || made < 2 {
			t.Error("there should be some of both")
		}
	}
}

// outlives opens what a crash has left, and makes the group. old: it was not made before.
func outlives(t *testing.T, when string, left *crashfs.Disk) (old bool) {
	cfg := alone(left)
	cfg.LogBytes = MinLogBytes
	n, err := tryOpen(t, cfg)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	n.leads(1)
	n.want(1, "k", "v")
	n.want(3, "own", "v")
	all := ReplicasOf(n.Store)
	if len(all) != 2 || all[0].ID == 9 || all[1].ID != 9 && all[0].ID != 7 {
		t.Fatalf("%s: it has %+v", when, all)
	}
	old = all[0].ID == 7
	n.recovers(7, 1, recovered(9, "n0", 0, 2))
	n.leads(0)
	for i := range 20 {
		n.want(i%2*2, fmt.Sprint("k", i), "v")
	}
	n.put(0, "k0", "w")
	if err := n.Close(); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	in, err := Inspect(t.Context(), "/store", InspectOptions{FS: left})
	if err != nil || in.ProblemCount != 0 || len(in.Replicas) != 2 || in.Keys != 22 {
		t.Errorf("%s: %v, %v, %d keys, %+v", when, err, in.Problems, in.Keys, in.Replicas)
	}
	if t.Failed() {
		t.Fatalf("%s: see above", when)
	}
	return old
}
