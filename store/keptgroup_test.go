package store

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// TestKeepGroup: what one of the replicas that are left keeps while another one makes the new group is all that its log has; it runs no more, and the log has no entries of it. If the new group is lost, too, the next
// one is made of it, with versions above those of both.
func TestKeepGroup(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "k", "v")
	lead := c.leader(0)
	makes, keeps := c.hosts[(lead.id+1)%3], c.hosts[(lead.id+2)%3]
	for i := range 30 {
		c.put(uint16(i%2*2), fmt.Sprint("k", i), fmt.Sprint("v", i))
	}
	c.settle()
	c.cut(lead.id, true)
	c.cut(makes.id, true) // so that what is kept does not change
	self := consensus.ReplicaID(keeps.id + 1)
	if list := KeptOf(keeps.Store); len(list) != 0 {
		t.Errorf("it keeps %+v", list)
	}
	keep := func(n *node) Kept {
		t.Helper()
		for range 2 { // again does no harm
			if err := KeepGroup(t.Context(), n.Store, pair, self); err != nil {
				t.Fatal(err)
			}
		}
		list := KeptOf(n.Store)
		if len(list) != 1 {
			t.Fatalf("it keeps %+v", list)
		}
		if _, err := EngineOf(n.Store).Status(pair); !errors.Is(err, consensus.ErrNoGroup) {
			t.Errorf("it runs: %v", err)
		}
		if err := Confirm(t.Context(), n.Store, 0); !errors.Is(err, ErrNotLeader) {
			t.Errorf("who asks for its keys is told %v", err)
		}
		if s, ok := SightOf(n.Store, pair); ok && s.Term != 0 {
			t.Errorf("a reader is told %+v", s)
		}
		if first, last := n.journal.Log().Entries(n.groups.of[0].Load().stream); last != list[0].Last || first <= last {
			t.Errorf("the log has entries %d to %d", first, last)
		}
		return list[0]
	}
	kept := keep(keeps.node)
	if kept.Group != pair || kept.Replica != self || kept.Shard != 0 || kept.Last < 31 || kept.Term == 0 || !kept.Votes {
		t.Errorf("%+v", kept)
	}
	if err := RecoverGroup(t.Context(), makes.Store, pair, consensus.ReplicaID(makes.id+1), 1, recovered(9, nameOf(makes.id), 0, 2)); err != nil {
		t.Fatal(err)
	}
	makes.leads(0)
	newest := makes.put(0, "k0", "lost with the new group")
	if err := keeps.Close(); err != nil {
		t.Fatal(err)
	}
	keeps.away()
	cfg := testConfig(keeps.disk)
	cfg.Engine = alone(keeps.disk).Engine
	cfg.Keeps = func(consensus.GroupID, consensus.ReplicaID) bool { return false }
	n := open(t, cfg)
	if again := keep(n); again != kept {
		t.Errorf("behind a restart it keeps %+v, before it %+v", again, kept)
	}
	if err := RecoverGroup(t.Context(), n.Store, pair, self, 2, recovered(10, nameOf(keeps.id), 0, 2)); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	for i := range 30 {
		n.want(i%2*2, fmt.Sprint("k", i), fmt.Sprint("v", i))
	}
	if v := n.put(0, "k0", "w"); v <= newest {
		t.Errorf("version %v behind %v of the group that is lost", v, newest)
	}
	if list := KeptOf(n.Store); len(list) != 0 {
		t.Errorf("it keeps %+v", list)
	}
}

// TestKeepGroupWrong: what is not here is not kept, and neither is what has nothing; what is kept can be given up.
func TestKeepGroupWrong(t *testing.T) {
	n := openWith(t, alone(memFS()), Group{ID: 7, Replica: 4, Shards: []uint16{0}}, aGroup(8, 1))
	n.leads(1)
	n.put(1, "k", "v")
	for _, r := range [][2]uint64{{6, 1}, {8, 2}, {0, 1}} {
		if err := KeepGroup(t.Context(), n.Store, consensus.GroupID(r[0]), consensus.ReplicaID(r[1])); !errors.Is(err, ErrGroups) {
			t.Errorf("%v: %v", r, err)
		}
	}
	n.put(1, "k", "w")
	if err := KeepGroup(t.Context(), n.Store, 7, 4); !errors.Is(err, ErrNothingKept) {
		t.Errorf("it has nothing: %v", err)
	}
	n.remove(7, 4)
	if err := KeepGroup(t.Context(), n.Store, 8, 1); err != nil {
		t.Fatal(err)
	}
	n.remove(8, 1)
	n.wantNothing(8, 1)
	if list := KeptOf(n.Store); len(list) != 0 {
		t.Errorf("it keeps %+v", list)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := KeepGroup(t.Context(), n.Store, 8, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestKeepGroupCrashes cuts the power before every call of the file system that changes something while a replica is kept: all its keys are kept then, and a group can be made of them.
func TestKeepGroupCrashes(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 4
	}
	cuts := newPowerCuts(every)
	n := openWith(t, cuts.config(), aGroup(7, 0, 2))
	n.leads(0)
	for i := range 20 {
		n.put(i%2*2, fmt.Sprint("k", i), "v")
	}
	cuts.begin()
	if err := KeepGroup(t.Context(), n.Store, 7, 1); err != nil {
		t.Fatal(err)
	}
	clones := cuts.end()
	want := KeptOf(n.Store)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if len(clones) < max(2, 4/every) {
		t.Errorf("%d crashes", len(clones))
	}
	for name, left := range clones {
		cfg := alone(left)
		cfg.LogBytes = MinLogBytes
		cfg.Keeps = func(group consensus.GroupID, _ consensus.ReplicaID) bool { return group != 7 }
		n, err := tryOpen(t, cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := KeepGroup(t.Context(), n.Store, 7, 1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := KeptOf(n.Store); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it keeps %+v, want %+v", name, got, want)
		}
		n.recovers(7, 1, recovered(9, "n0", 0, 2))
		n.leads(0)
		for i := range 20 {
			n.want(i%2*2, fmt.Sprint("k", i), "v")
		}
		if err := n.Close(); err != nil || t.Failed() {
			t.Fatalf("%s: %v", name, err)
		}
	}
}
