package cluster

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
)

// TestEveryKey stores what this machine knows about its files from two clients,
// and reads every key back from both, one-sidedly, from the node that owns it: at
// last while no handler of any node works, for longer than two leases.
func TestEveryKey(t *testing.T) {
	if testing.Short() {
		t.Skip("reads for half a minute: make cluster-test")
	}
	parallel(t)
	const lease = 4 * time.Second
	w := newWorld(t, func(o *Options) { o.Args = []string{"--pprof"}; o.Lease = lease }).born()
	records := realData(t, *keysFlag)
	half := len(records) / 2
	start := time.Now()
	w.imports("east", records[:half])
	w.imports("west", records[half:])
	took := time.Since(start)
	t.Logf("%d records imported in %v, %.0f a second", len(records), took.Round(time.Millisecond), float64(len(records))/took.Seconds())

	conns := map[string]*Conn{}
	for _, host := range clientHosts {
		conns[host] = w.dial(host)
	}
	w.checkSpread(conns["east"], records)
	read := func(host string) {
		t.Helper()
		table, err := conns[host].ReadAll(within(t), records)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		t.Logf("%s: %s", host, table)
	}
	for host, c := range conns {
		if err := c.WaitOneSided(within(t)); err != nil {
			t.Fatal(err)
		}
		read(host)
	}
	for _, s := range w.Nodes {
		if code, body := w.admin(s, http.MethodPost, "/debug/handlers/block"); code != http.StatusOK {
			t.Fatalf("block: %d %s", code, body)
		}
	}
	t.Log("every handler of every node is stopped")
	for start := time.Now(); time.Since(start) < 2*lease+time.Second; {
		for host := range conns {
			read(host)
		}
	}
	for _, s := range w.Nodes {
		if code, body := w.admin(s, http.MethodPost, "/debug/handlers/unblock"); code != http.StatusOK {
			t.Fatalf("unblock: %d %s", code, body)
		}
	}
}

// imports stores records by kvclient on a host, which is told one node.
func (w *world) imports(host string, records []Record) {
	w.t.Helper()
	file := filepath.Join(w.dir, "import-"+host)
	writeRecords(w.t, file, records)
	w.must(host, "--server", w.Nodes[0].Addr(), "import", file)
}

// checkSpread: each node has its fair share of the shards, and all keys of them.
func (w *world) checkSpread(c *Conn, records []Record) {
	w.t.Helper()
	owned := map[string]uint64{}
	for _, r := range records {
		owned[c.Owner([]byte(r.Key))]++
	}
	info := c.Info()
	for _, s := range info.Nodes {
		if all := info.Shards; s.Shards < all/3 || s.Shards > all/3+1 {
			w.t.Errorf("node %s has %d of %d shards", s.ID, s.Shards, all)
		}
		var st struct {
			Store struct {
				Keys uint64 `json:"keys"`
			} `json:"store"`
		}
		n, err := admin.Of(c.Client).Node(s.ID)
		var text admin.Stats
		if err == nil {
			text, err = n.Stats(within(w.t))
		}
		if err == nil {
			err = json.Unmarshal(text.Server, &st)
		}
		if err != nil || st.Store.Keys != owned[s.ID] {
			w.t.Errorf("node %s has %d keys, %v, and owns %d", s.ID, st.Store.Keys, err, owned[s.ID])
		}
		w.t.Logf("%s: %2d shards, %6d keys, %4.1f %%", s.ID, s.Shards, st.Store.Keys, 100*float64(st.Store.Keys)/float64(len(records)))
	}
}
