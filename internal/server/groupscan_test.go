package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A keysPage is what a test looks at of a page.
type keysPage struct {
	keys []string
	more bool
	next []byte
}

// scan asks for a page of keys.
func (p *peer) scan(m wire.Scan) (out keysPage, err error) {
	m.KeysOnly = true
	body, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, m) })
	if err != nil {
		return out, err
	}
	page, err := wire.ParseScanReply(body)
	for e := range page.Entries {
		out.keys = append(out.keys, string(e.Key))
	}
	out.more, out.next = page.More, bytes.Clone(page.Next)
	return out, err
}

// TestScanOfReplicas: the leader of a group shows all keys of the group and no others, in order, though its store has those of other groups too;
// whoever follows says who leads; and a scan goes on at the next leader where it was, with what was put meanwhile.
func TestScanOfReplicas(t *testing.T) {
	r := startReplicas(t)
	want := map[uint32][]string{}
	add := func(key string) {
		g := r.m.Replication.Groups[r.m.Replication.Group[cluster.ShardOf([]byte(key), 4)]].ID
		r.put(key, "v")
		want[g] = append(want[g], key)
	}
	for i := range 40 {
		add(fmt.Sprintf("k%02d", i))
	}
	all := func(shard uint16, group uint32, prefix string) (got []string) {
		m := wire.Scan{Group: group, Prefix: []byte(prefix), Limit: 7}
		for more := true; more; {
			r.do(shard, "scan", func(p *peer) error {
				page, err := p.scan(m)
				if err == nil {
					got = append(got, page.keys...)
					m.After, more = page.next, page.more
				}
				return err
			})
			if len(got) == 7 { // the next page is another node's
				i := r.leader(shard)
				add(keyIn("k99", shard))       // behind all that was shown
				r.put(keyIn("a", shard), "v")  // of another prefix
				r.put(keyIn("k!", shard), "v") // before what was shown
				r.stop(i)
				r.start(i)
			}
		}
		return got
	}
	for shard := range uint16(2) { // one of each group
		group := r.m.Replication.Groups[r.m.Replication.Group[shard]].ID
		got := all(shard, group, "k")
		slices.Sort(want[group])
		if !slices.Equal(got, want[group]) || len(got) < 10 {
			t.Errorf("group %d: %v\nwant %v", group, got, want[group])
		}
		lead := r.leader(shard)
		for i, srv := range r.nodes {
			p := dial(t, srv, peerOptions{})
			eventually(t, "it says who leads", func() bool {
				_, err := p.scan(wire.Scan{Group: group})
				if i != lead && wire.StatusOf(err) != wire.StatusNotLeader {
					t.Errorf("node %c, and %c leads group %d: %v", 'a'+i, 'a'+lead, group, err)
				}
				return i == lead || err != nil && strings.Contains(err.Error(), "node "+string(rune('a'+lead)))
			})
			if _, err := p.scan(wire.Scan{Group: 9}); wire.StatusOf(err) != wire.StatusBadRequest {
				t.Errorf("a group that is not there: %v", err)
			}
			p.close()
		}
	}
}

// A watching is a watch of the group of shard 0, page by page, at whoever leads.
type watching struct {
	*replicas
	at   wire.Cursor
	got  []string
	skip int
}

func (w *watching) group() uint32 { return w.m.Replication.Groups[w.m.Replication.Group[0]].ID }

// page asks once.
func (w *watching) page(wait uint32) {
	w.t.Helper()
	w.do(0, "watch", func(p *peer) error {
		body, err := p.call(watchOf(wire.Watch{From: w.at, Group: w.group(), WaitMillis: wait, Values: true, MaxBytes: 1}))
		if err != nil {
			return err
		}
		m, events := p.events(body, nil)
		for _, e := range events {
			w.got = append(w.got, fmt.Sprintf("%s=%s", e.Key, e.Value))
		}
		if w.at = m.Next; m.Skipped {
			w.skip++
		}
		return nil
	})
}

// until asks until n events were told.
func (w *watching) until(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(n, " events are told"), func() bool {
		w.page(20)
		return len(w.got) >= n
	})
}

// TestWatchOfReplicas: the leader of a group tells of the group's writes, in the order in which they took effect, and of no others; a watch goes on
// at the next leader behind the last event, and misses nothing; and who has lost events by a restart says that there is a gap.
func TestWatchOfReplicas(t *testing.T) {
	r := startReplicas(t)
	w := &watching{replicas: r}
	w.page(0)
	if len(w.got) != 0 || w.skip != 0 || w.at == (wire.Cursor{}) {
		t.Fatalf("now: %+v", w)
	}
	first := w.at
	ours := []string{keyOf(0), keyOf(2)} // the shards of the group
	if g := r.m.Replication.Group; g[0] != g[2] || g[0] == g[1] {
		t.Fatalf("the shards' groups: %v", g)
	}
	var want []string
	put := func(n int) {
		for range n {
			key, value := ours[len(want)%2], fmt.Sprint(len(want))
			r.put(key, value)
			r.put(keyOf(1), "of the other group")
			want = append(want, key+"="+value)
		}
	}
	put(6)
	w.until(4) // and stop in the middle
	for range 2 {
		i := r.leader(0)
		r.stop(i)
		put(3)
		r.start(i)
		put(2)
		w.until(len(want) - 1)
	}
	w.until(len(want))
	if !slices.Equal(w.got, want) || w.skip != 0 {
		t.Errorf("%v, %d gaps\nwant %v", w.got, w.skip, want)
	}
	// One that waits is answered by a put.
	lead := r.nodes[r.leader(0)]
	p := dial(t, lead, peerOptions{})
	id := p.wait(lead, wire.Watch{From: w.at, Group: w.group(), WaitMillis: 60_000})
	r.put(keyOf(1), "of the other group")
	put(1)
	_, body, err := p.await(id)
	if m, events := p.events(body, err); len(events) != 1 || m.Skipped || m.Next.Incarnation != first.Incarnation {
		t.Errorf("%+v, %+v", m, events)
	}
	p.close()
	// Nobody else answers.
	for i, srv := range r.nodes {
		if srv == lead {
			continue
		}
		p := dial(t, srv, peerOptions{})
		if _, err := p.call(watchOf(wire.Watch{From: w.at, Group: w.group()})); wire.StatusOf(err) != wire.StatusNotLeader {
			t.Errorf("node %c: %v", 'a'+i, err)
		}
		p.close()
	}
	// A cursor of another cluster, and one that nobody gave out, are behind nothing that is known here.
	for _, at := range []wire.Cursor{{Incarnation: first.Incarnation + 1, Version: w.at.Version}, {Incarnation: first.Incarnation, Version: 1<<64 - 1}} {
		x := &watching{replicas: r, at: at}
		if x.page(0); x.skip != 1 || x.at.Incarnation != first.Incarnation {
			t.Errorf("%+v is taken for a cursor of the group: %+v", at, x)
		}
	}
}

// TestWatchIsKeptByFollowers: a replica that does not lead keeps events, and goes on with that when it is told that somebody watches, though it
// refuses to tell of them.
func TestWatchIsKeptByFollowers(t *testing.T) {
	r := startReplicas(t)
	lead := r.leader(0)
	for i, srv := range r.nodes {
		if i == lead {
			continue
		}
		before := srv.main.Store.WatchStats()
		p := dial(t, srv, peerOptions{})
		if _, err := p.call(watchOf(wire.Watch{Group: (&watching{replicas: r}).group()})); wire.StatusOf(err) != wire.StatusNotLeader {
			t.Errorf("node %c: %v", 'a'+i, err)
		}
		p.close()
		r.put(keyOf(0), "v")
		eventually(t, "it has noted the event", func() bool { return srv.main.Store.WatchStats().Noted > before.Noted })
		if asked := srv.main.Store.WatchStats().Asked; asked != before.Asked+1 {
			t.Errorf("node %c was told %d times", 'a'+i, asked-before.Asked)
		}
	}
}
