package membership

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestThousandNodes holds the tables of a thousand nodes, as one node of such a
// cluster would, and logs what that takes and what its messages carry: the figures of
// docs/decisions. The bounds are those that the arithmetic there relies on.
func TestThousandNodes(t *testing.T) {
	for _, each := range []int{10, 128, cluster.MaxGossip} {
		t.Run(fmt.Sprint(each), func(t *testing.T) { thousandNodes(t, each) })
	}
}

func thousandNodes(t *testing.T, each int) {
	const nodes = 1000
	m := bare()
	for i := range nodes {
		id := fmt.Sprintf("node-%04d", i)
		m.peers[id] = &peer{Member: cluster.Member{ID: id, Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7, TableVersion: 7,
			Endpoints: []cluster.Endpoint{{Fabric: "verbs", Addr: "10.0.0.1:7400"}, {Fabric: "iwarp", Addr: "10.0.0.1:7400"}}}}
		life := statement{Life: Life{Incarnation: 7, Epoch: 1}, node: id, addr: "10.0.0.1:7946"}
		m.referee.lives[id] = &life
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := regions(each)
	table.Incarnation, table.Version = 7, 7
	begun := time.Now()
	for id := range m.peers {
		table.Node = id
		if !m.tables.offer(table) {
			t.Fatalf("the table of %s is not taken", id)
		}
	}
	took := time.Since(begun)
	runtime.GC()
	runtime.ReadMemStats(&after)
	m.mu.Lock()
	encoded := m.tables.bytes
	m.mu.Unlock()
	if want := nodes * (60 + each*37); encoded > want {
		t.Errorf("%d bytes of tables, more than %d", encoded, want)
	}
	t.Logf("%d tables of %d regions: %d bytes encoded, %d of heap, taken in %v", nodes, each, encoded, after.HeapAlloc-before.HeapAlloc, took)

	if err := m.Publish(regions(each)); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	push, join := m.tables.localState(false), m.tables.localState(true)
	t.Logf("a push/pull carries %d bytes of ours, one with a joiner %d; both made in %v", len(push), len(join), time.Since(begun))
	if len(push) > maxPush+maxState || len(join) > maxJoin+maxState {
		t.Errorf("a state of %d bytes, with a joiner %d: nobody would take it", len(push), len(join))
	}
	begun = time.Now()
	s, err := parseState(join)
	if err != nil {
		t.Fatal(err)
	}
	m.tables.merge(s)
	t.Logf("%d of the tables come with a push/pull and %d with that of a joiner, which is judged in %v", tablesIn(t, push), len(s.tables), time.Since(begun))

	begun = time.Now()
	next := regions(each)
	next.Regions[0].Keys[0].RKey++
	if err := m.Publish(next); err != nil {
		t.Fatal(err)
	}
	t.Logf("one region changed: published in %v; the advert has %d bytes, and goes to %d nodes at once", time.Since(begun), 1+len(m.tables.encoded.bytes), hurryNodes)

	m.publishView()
	begun = time.Now()
	view := cluster.AppendView(nil, m.View())
	if _, err := cluster.ParseView(view); err != nil {
		t.Fatal(err)
	}
	t.Logf("the view of %d members has %d bytes, encoded and parsed in %v", len(m.View().Members), len(view), time.Since(begun))
}

func tablesIn(t *testing.T, b []byte) int {
	t.Helper()
	s, err := parseState(b)
	if err != nil {
		t.Fatal(err)
	}
	return len(s.tables)
}
