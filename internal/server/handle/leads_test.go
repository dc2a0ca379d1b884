package handle

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// replicated has node "a" serve all shards of groups of replicas.
func replicated(t *testing.T, leaderOf func(consensus.GroupID, consensus.ReplicaID) string) func(*Env) {
	m, err := cluster.ProposeReplicas([16]byte{1}, "red", 4, []cluster.MapNode{{ID: "a"}}, cluster.Want{Replicas: 1, Groups: 2, Stores: [][16]byte{{1}}})
	if err != nil {
		t.Fatal(err)
	}
	return func(e *Env) {
		e.Owned = new(base.Ownership)
		e.Owned.Set(m, "a")
		e.LeaderOf = leaderOf
	}
}

// TestShardOfNoGroupYet: a map with replicas came a moment ago, and the store does not have its groups yet: nothing is ordered as the store's own,
// because it would be on this node alone.
func TestShardOfNoGroupYet(t *testing.T) {
	for name, c := range map[string]struct {
		leaderOf func(consensus.GroupID, consensus.ReplicaID) string
		want     wire.Status
	}{
		"the node's own keys":           {func(consensus.GroupID, consensus.ReplicaID) string { return "b" }, wire.StatusNotLeader},
		"a tenant's, which have no one": {nil, wire.StatusUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, replicated(t, c.leaderOf))
			g.submitTo = func(w *store.Write) error { t.Errorf("%q is ordered", w.Key); return store.ErrClosed }
			s, q, end := g.open("")
			part := wire.AppendBatchPart(nil, wire.BatchPart{Key: []byte("k"), Value: []byte("v")})
			for i, msg := range [][]byte{
				putOf(1, "k"),
				wire.AppendDelete(nil, 2, wire.Delete{Key: []byte("k")}),
				wire.AppendUpdate(nil, 3, wire.Update{Op: wire.UpdateIncrement, Delta: 1, Key: []byte("k")}),
				wire.AppendBatch(nil, 4, wire.RequestID{}, 1, part),
				wire.AppendGet(nil, 5, wire.Get{Key: []byte("k")}),
				wire.AppendExists(nil, 6, wire.Key{Key: []byte("k")}),
			} {
				feed(t, s, q, msg)
				if q.Last.Status != c.want {
					t.Errorf("request %d: %v", i+1, q.Last)
				}
			}
			end()
		})
	}
}

// TestScanOfAGroup: a scan is for the keys of a group where shards have replicas, and for no group where they have none; who does not lead the
// group says so, and who has no replica of it, where it is.
func TestScanOfAGroup(t *testing.T) {
	alone := func(*Env) {}
	owners := func(e *Env) {
		m, err := cluster.Propose([16]byte{1}, "red", 4, []cluster.MapNode{{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		e.Owned = new(base.Ownership)
		e.Owned.Set(m, "a")
	}
	noMap := func(e *Env) { e.Owned = new(base.Ownership) }
	ours := replicated(t, func(consensus.GroupID, consensus.ReplicaID) string { return "b" })
	others := func(e *Env) {
		ours(e)
		e.Owned.Set(e.Owned.Shards().Map, "c")
	}
	for _, c := range []struct {
		name   string
		change func(*Env)
		group  uint32
		want   wire.Status
	}{
		{"a server that is alone", alone, 0, wire.StatusUnsupported}, // because the store of the test has no disk
		{"a group of a server that is alone", alone, 1, wire.StatusBadRequest},
		{"before there is a map", noMap, 1, wire.StatusNoMap},
		{"a node whose shards have no replicas", owners, 0, wire.StatusUnsupported},
		{"a group of such a node", owners, 1, wire.StatusBadRequest},
		{"no group, and there are groups", ours, 0, wire.StatusUnsupported},
		{"a group that is not there", ours, 3, wire.StatusBadRequest},
		{"a group that is led by others", ours, 2, wire.StatusNotLeader},
		{"a group that is elsewhere", others, 2, wire.StatusMoved},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, c.change)
			s, q, end := g.open("")
			defer end()
			feed(t, s, q, wire.AppendScan(nil, 1, wire.Scan{Group: c.group}))
			if q.Last.Status != c.want {
				t.Errorf("%v, want %v", q.Last, c.want)
			}
		})
	}
}

// TestWriteOfAReign: a write carries the reign that was looked at before it was decided on, so that the store orders it in no other.
func TestWriteOfAReign(t *testing.T) {
	g := newRig(t, nil)
	r := &op{c: g.newConn(nil), reign: 7}
	r.prepare(store.Write{Op: store.Op{Key: []byte("k")}})
	if r.write.Reign != 7 {
		t.Errorf("reign %d", r.write.Reign)
	}
}

// TestNotLeaderIsNoUnknown: a write whose outcome is not known is told so, whatever has made it so: a client takes "not leader" for "nothing was
// changed".
func TestNotLeaderIsNoUnknown(t *testing.T) {
	err := fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, &store.NotLeaderError{Group: 1})
	if refusedLeader(&op{}, err) {
		t.Error("it is answered as one that does not lead")
	}
	if st, _ := statusOf(err); st != wire.StatusUnknown {
		t.Errorf("status %v", st)
	}
}
