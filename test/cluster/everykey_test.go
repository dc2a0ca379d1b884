package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestEveryKey stores what this machine knows about its files from two clients,
// and reads every key back from both, one-sidedly, from the node that owns it: at
// last while no handler of any node works.
func TestEveryKey(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Args = []string{"--pprof"}; o.Lease = 3 * time.Second }).born()
	records := realData(t, *keysFlag)
	half := len(records) / 2
	start := time.Now()
	w.imports("east", records[:half])
	w.imports("west", records[half:])
	took := time.Since(start)
	t.Logf("%d records imported in %v, %.0f a second", len(records), took.Round(time.Millisecond), float64(len(records))/took.Seconds())

	m := w.shardMap()
	owned := map[string]uint64{}
	for _, r := range records {
		owned[m.OwnerOf(cluster.ShardOf([]byte(r.Key), len(m.Owner)))]++
	}
	east, west := w.dial("east"), w.dial("west")
	for _, s := range w.Nodes {
		shards := len(m.Shards(s.ID))
		if shards < len(m.Owner)/3 || shards > len(m.Owner)/3+1 {
			t.Errorf("node %s has %d of %d shards", s.ID, shards, len(m.Owner))
		}
		st := w.stats(east, s.ID)
		if st.Store.Keys != owned[s.ID] {
			t.Errorf("node %s has %d keys, and owns %d", s.ID, st.Store.Keys, owned[s.ID])
		}
		t.Logf("%s: %2d shards, %6d keys, %4.1f %%", s.ID, shards, st.Store.Keys, 100*float64(st.Store.Keys)/float64(len(records)))
	}

	for host, c := range map[string]*conn{"east": east, "west": west} {
		w.waitOneSided(c)
		w.readAll(host, c, records, owned)
	}
	for _, s := range w.Nodes {
		if code, body := w.admin(s, http.MethodPost, "/debug/handlers/block"); code != http.StatusOK {
			t.Fatalf("block: %d %s", code, body)
		}
	}
	w.readAll("west", west, records, owned)
	for _, s := range w.Nodes {
		if code, body := w.admin(s, http.MethodPost, "/debug/handlers/unblock"); code != http.StatusOK {
			t.Fatalf("unblock: %d %s", code, body)
		}
	}
}

// imports stores records by kvclient on a host, which is told one node.
func (w *world) imports(host string, records []record) {
	w.t.Helper()
	file := filepath.Join(w.dir, "import-"+host)
	writeRecords(w.t, file, records)
	if Alone {
		for _, s := range w.Nodes {
			m := w.shardMap()
			var mine []record
			for _, r := range records {
				if m.OwnerOf(cluster.ShardOf([]byte(r.Key), len(m.Owner))) == s.ID {
					mine = append(mine, r)
				}
			}
			writeRecords(w.t, file, mine)
			w.must(host, "--server", s.Addr(), "import", file)
		}
		return
	}
	w.must(host, "--server", w.Nodes[0].Addr(), "import", file)
}

// nodeStats is as much as is needed of what a node says of itself.
type nodeStats struct {
	Requests map[string]struct {
		Count uint64 `json:"count"`
	} `json:"requests"`
	Store struct {
		Keys uint64 `json:"keys"`
	} `json:"store"`
}

func (w *world) stats(c *conn, id string) (st nodeStats) {
	w.t.Helper()
	text, err := c.stats(within(w.t), id)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil {
		w.t.Fatalf("stats of %s: %v", id, err)
	}
	return st
}

// readAll gets every key by one client: every value is right, every get is READs
// alone, and each node was asked for its own keys and no others.
func (w *world) readAll(host string, c *conn, records []record, owned map[string]uint64) {
	w.t.Helper()
	before := map[string]client.Counters{}
	for _, s := range w.Nodes {
		before[s.ID] = c.counters(s.ID)
	}
	start := time.Now()
	for part := range slices.Chunk(records, 1000) {
		keys := make([][]byte, len(part))
		for i, r := range part {
			keys[i] = []byte(r.Key)
		}
		results, err := c.multiGet(within(w.t), keys)
		if err != nil {
			w.t.Fatalf("%s: %v", host, err)
		}
		for i, r := range results {
			if string(r.Value) != part[i].Value || r.Err != nil {
				w.t.Fatalf("%s: key %q is %q, %v, want %q", host, part[i].Key, r.Value, r.Err, part[i].Value)
			}
		}
	}
	took := time.Since(start)
	for _, s := range w.Nodes {
		was, now := before[s.ID], c.counters(s.ID)
		if hits, sends := now.OneSidedHits-was.OneSidedHits, now.SendGets-was.SendGets; hits != owned[s.ID] || sends != 0 {
			w.t.Errorf("%s: %d keys were READ from node %s and %d asked for by SEND, it owns %d", host, hits, s.ID, sends, owned[s.ID])
		}
		w.t.Logf("%s: %6d gets from %s, %.2f READs each", host, now.Gets-was.Gets, s.ID, float64(now.Reads-was.Reads)/float64(max(1, now.Gets-was.Gets)))
	}
	w.t.Logf("%s: %d gets in %v", host, len(records), took.Round(time.Millisecond))
}

// waitOneSided waits until each shard's node answers a miss by READs: its memory is
// filled, so that its index tells of all keys.
func (w *world) waitOneSided(c *conn) {
	w.t.Helper()
	ctx := within(w.t)
	var keys [][]byte
	for i := range 300 {
		keys = append(keys, fmt.Appendf(nil, "surely absent %d", i))
	}
	for {
		var before, after uint64
		for _, s := range w.Nodes {
			before += c.counters(s.ID).OneSidedMisses
		}
		if _, err := c.multiGet(ctx, keys); err != nil {
			w.t.Fatal(err)
		}
		for _, s := range w.Nodes {
			after += c.counters(s.ID).OneSidedMisses
		}
		if after-before == uint64(len(keys)) {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}
