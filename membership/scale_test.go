package membership

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestThousandByThousand holds the tables of a thousand nodes with a thousand
// regions each, as one node of such a cluster would, and logs what that takes:
// the figures of docs/decisions. The bounds are those that the arithmetic
// there relies on.
func TestThousandByThousand(t *testing.T) {
	const nodes, each = 1000, 1000
	m := bare()
	for i := range nodes {
		id := fmt.Sprintf("node-%04d", i)
		m.peers[id] = &peer{Member: cluster.Member{ID: id, Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7, TableVersion: each,
			Endpoints: []cluster.Endpoint{{Fabric: "verbs", Addr: "10.0.0.1:7400"}, {Fabric: "iwarp", Addr: "10.0.0.1:7400"}}}}
		m.byHash[cluster.Hash(id)] = id
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := regions(each)
	table.Incarnation, table.Version = 7, each
	begun := time.Now()
	for id := range m.peers {
		table.Node = id
		if !m.offer(table) {
			t.Fatalf("the table of %s is not taken", id)
		}
	}
	took := time.Since(begun)
	runtime.GC()
	runtime.ReadMemStats(&after)
	m.mu.Lock()
	encoded := m.tableBytes
	m.mu.Unlock()
	if want := nodes * each * 40; encoded > want {
		t.Errorf("%d bytes of tables, more than 40 a region", encoded)
	}
	t.Logf("%d tables of %d regions: %d bytes encoded, %d of heap, taken in %v", nodes, each, encoded, after.HeapAlloc-before.HeapAlloc, took)

	begun = time.Now()
	push, join := m.localState(false), m.localState(true)
	t.Logf("a push/pull carries %d bytes of ours, one with a joiner %d; made in %v", len(push), len(join), time.Since(begun))
	if len(push) > maxState || len(join) > maxJoin+maxState {
		t.Errorf("a state of %d bytes, with tables %d: nobody would take it", len(push), len(join))
	}

	own := regions(each)
	if err := m.Publish(own); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	if err := m.Publish(regions(each + 1)); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	d := m.history.Delta(maxAdvert - 1)
	m.mu.Unlock()
	advert := cluster.AppendDelta(nil, d)
	t.Logf("one region more: published in %v; the advert of %d bytes leads from version %d to %d", time.Since(begun), len(advert), d.From, d.To)
	d.Node, d.Incarnation, d.From, d.To = "node-0500", 7, each, each+1
	begun = time.Now()
	if _, err := m.peers["node-0500"].table.decode().Apply(d); err == nil {
		t.Error("a delta of another table fits")
	}
	t.Logf("an advert is judged in %v", time.Since(begun))

	m.publishView()
	begun = time.Now()
	view := cluster.AppendView(nil, m.View())
	if _, err := cluster.ParseView(view); err != nil {
		t.Fatal(err)
	}
	t.Logf("the view of %d members has %d bytes, encoded and parsed in %v", len(m.View().Members), len(view), time.Since(begun))
}
