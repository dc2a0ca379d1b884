package membership

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// knowing is a bare node that knows others, each of which has published a table.
func knowing(t *testing.T, size int, ids ...string) *Members {
	t.Helper()
	m := bare()
	for _, id := range ids {
		m.peers[id] = &peer{Member: cluster.Member{ID: id, Role: cluster.RoleServer, State: cluster.Alive, Incarnation: 7, Gossip: id + ":1"}, node: memberlist.Node{Name: id}}
		if !m.tables.offer(tableOf(id, 1, size)) {
			t.Fatalf("the table of %s is not taken", id)
		}
		m.peers[id].TableVersion, m.peers[id].TableDigest, m.peers[id].Regions = 1, m.peers[id].table.digest, uint32(size)
	}
	return m
}

func tableOf(id string, version uint64, size int) *cluster.Table {
	table := regions(size)
	table.Node, table.Incarnation, table.Version = id, 7, version
	return table
}

// TestStateOfEarlierBuild: the state of a push/pull is, byte for byte, what earlier
// builds write and read, because it carries lives, which end nodes that were rolled
// back: two releases in one cluster must not lose them.
func TestStateOfEarlierBuild(t *testing.T) {
	text, err := os.ReadFile("testdata/state.hex")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseState(golden)
	if err != nil {
		t.Fatal(err)
	}
	if s.from != "b" || len(s.digests) != 2 || len(s.tables) != 2 || len(s.lives) != 2 {
		t.Fatalf("state %+v", s)
	}
	if again := s.append(nil); !slices.Equal(again, golden) {
		t.Errorf("%x\n%x", again, golden)
	}
	m := knowing(t, 1, "a", "b")
	m.handle(message{bytes: golden, state: true})
	if got := m.Table("b"); got == nil || got.Version != 4 || len(got.Regions) != 3 {
		t.Errorf("table %+v", got)
	}
	if l := m.referee.lives["a"]; l == nil || l.Epoch != 3 {
		t.Errorf("the life of a is lost: %+v", m.referee.lives)
	}
	// What is written now obeys what that build demands: at most as many tables as
	// digests, and a digest of each.
	ours, err := parseState(m.tables.localState(false))
	if err != nil {
		t.Fatal(err)
	}
	if len(ours.tables) != 2 || len(ours.digests) != 2 || len(ours.lives) < 2 {
		t.Errorf("%d tables, %d digests, %d lives", len(ours.tables), len(ours.digests), len(ours.lives))
	}
}

// TestPushPullIsBounded: a push/pull carries its own table, then those that came last,
// and stays within its budget; every table comes with some of them.
func TestPushPullIsBounded(t *testing.T) {
	var ids []string
	for i := range 120 {
		ids = append(ids, fmt.Sprintf("n%03d", i))
	}
	const size = 500 // 18.5 KB: 56 of them fit
	m := knowing(t, size, ids...)
	own := regions(3)
	if err := m.Publish(own); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for round := 0; len(seen) < len(ids); round++ {
		if round == 1000 {
			t.Fatalf("%d of %d tables came with a thousand push/pulls", len(seen), len(ids))
		}
		b := m.tables.localState(false)
		s, err := parseState(b)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		var names []string
		for _, enc := range s.tables {
			table, err := cluster.ParseTable(enc)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(enc)
			names = append(names, table.Node)
			seen[table.Node] = true
		}
		delete(seen, "self")
		if bytes > maxPush || bytes < maxPush-2*cluster.MaxTable {
			t.Fatalf("%d bytes of tables", bytes)
		}
		if names[0] != "self" || names[1] != "n119" || names[2] != "n118" || names[20] != "n100" {
			t.Fatalf("tables in the order %q", names)
		}
	}
	if s, err := parseState(m.tables.localState(true)); err != nil || len(s.tables) != len(ids)+1 {
		t.Errorf("a node that joins gets %d tables: %v", len(s.tables), err)
	}
	// Nodes that are gone are not told of.
	for _, p := range m.peers {
		p.State = cluster.Dead
	}
	if n := tablesIn(t, m.tables.localState(true)); n != 1 {
		t.Errorf("%d tables, of dead nodes", n)
	}
}

// TestLargeAdvertIsPassedOn: an advert that does not fit into a packet goes to a few
// nodes, and not to the node that it is of; a second one of the same table goes to
// none.
func TestLargeAdvertIsPassedOn(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f", "g"}
	m := knowing(t, 1, ids...)
	advert := cluster.AppendTable([]byte{byte(kindAdvert)}, tableOf("a", 2, 100))
	for range 3 {
		m.handle(message{bytes: advert})
	}
	to := map[string]bool{}
	for len(m.out.queue) > 0 {
		s := <-m.out.queue
		to[s.to.Name] = true
		if !slices.Equal(s.bytes, advert) {
			t.Error("another message was passed on")
		}
	}
	if m.stats.fresh.Load() != 1 || m.stats.old.Load() != 2 || m.queue.NumQueued() != 0 {
		t.Errorf("%d new, %d old, %d queued", m.stats.fresh.Load(), m.stats.old.Load(), m.queue.NumQueued())
	}
	if len(to) != hurryNodes || to["a"] {
		t.Errorf("passed on to %v", to)
	}
}

// TestMendOnce: a node whose table differs from its metadata is asked by one
// push/pull, after some patience, and then waits behind the others.
func TestMendOnce(t *testing.T) {
	m := knowing(t, 3, "a", "b", "c")
	now := time.Now()
	patience := 2*m.time.rejoin + time.Second // no second's worth of tables is held
	if to := m.joiner.mendNow(now.Add(time.Hour)); to != "" {
		t.Errorf("mends %s, of which everything is known", to)
	}
	m.peers["b"].TableVersion = 2
	if to := m.joiner.mendNow(now); to != "" {
		t.Errorf("mends %s at once", to)
	}
	m.peers["c"].TableDigest++
	m.joiner.mendNow(now.Add(time.Millisecond))
	if to := m.joiner.mendNow(now.Add(patience)); to != "b:1" {
		t.Errorf("mends %q first", to)
	}
	if to := m.joiner.mendNow(now.Add(patience + time.Millisecond)); to != "c:1" {
		t.Errorf("mends %q second", to)
	}
	if to := m.joiner.mendNow(now.Add(patience + 2*time.Millisecond)); to != "" {
		t.Errorf("mends %q again at once", to)
	}
	if !m.tables.offer(tableOf("b", 2, 3)) {
		t.Fatal("the table that was missing is not taken")
	}
	m.peers["b"].TableDigest = m.peers["b"].table.digest
	m.peers["c"].State = cluster.Dead
	if to := m.joiner.mendNow(now.Add(time.Hour)); to != "" {
		t.Errorf("mends %q, which is mended or dead", to)
	}
}

// TestTooManyRegions: a node with more regions than a gossiped table may have gossips
// none, others forget the one that they had, and know how many regions it has.
func TestTooManyRegions(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	small := regions(cluster.MaxGossip)
	if err := a.Publish(small); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "the largest table is known", func() bool { return hasTable(b.Members, "a", small) })
	large := regions(cluster.MaxGossip + 1)
	if err := a.Publish(large); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "the table is gone", func() bool {
		p := b.View().Member("a")
		return b.Table("a") == nil && p.Regions == cluster.MaxGossip+1 && p.TableVersion == a.Table("a").Version
	})
	if !hasTable(a.Members, "a", large) {
		t.Error("the node does not know its own table")
	}
	// A late copy of the old one is not taken.
	late := regions(cluster.MaxGossip)
	late.Node, late.Incarnation, late.Version = "a", cluster.Hash("a"), a.Table("a").Version-1
	if b.tables.offer(late) {
		t.Error("an older table is taken")
	}
	if err := a.Publish(small); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "it is known again", func() bool { return hasTable(b.Members, "a", small) })
}
