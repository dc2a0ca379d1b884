package server

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// TestCacheMode: a node without a disk does all but scan, drops what it has no
// memory for, and begins empty.
func TestCacheMode(t *testing.T) {
	fs := vfs.NewMem()
	change := func(c *Config) {
		c.Mode, c.FS = store.Cache, fs
		c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 8<<20, 4<<20, 2<<20
	}
	srv := startServer(t, change)
	client := peerOptions{client: [16]byte{7}}
	p := dial(t, srv, client)
	from := p.now()
	p.must(putOf("k", "v", wire.Terms{If: wire.CondAbsent}))
	named := incrementOf("n", 3, wire.Terms{ID: wire.RequestID{Seq: 1}})
	first := p.must(named)
	if m := dial(t, srv, client).must(named); m != first || m.Number != 3 {
		t.Errorf("again: %+v, at first %+v", m, first)
	}
	keys, _ := sameShard(srv, 2)
	if m := p.must(batchOf(part(keys[0], "1"), part(keys[1], "2"))); !m.Applied {
		t.Errorf("batch: %+v", m)
	}
	p.must(putOf("gone", "v", wire.Terms{TTLMicros: 1}))
	eventually(t, "the key to expire", func() bool { _, err := p.get("gone", 10); return err != nil })
	p.must(deleteOf("k", wire.Terms{}))
	_, events := p.events(p.call(watchOf(wire.Watch{From: from})))
	if len(events) < 6 {
		t.Errorf("%d events", len(events))
	}
	_, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{}) })
	wantStatus(t, err, wire.StatusUnsupported)

	value := string(make([]byte, 12<<10))
	for i := range 1000 {
		p.must(putOf(fmt.Sprint("k", i), value, wire.Terms{}))
	}
	st, err := srv.Stats()
	if err != nil || st.Mode != "cache" || st.Store.Dropped == 0 || st.Store.RegionBytes > 8<<20 {
		t.Errorf("mode %s, %d keys dropped, %d bytes of regions, %v", st.Mode, st.Store.Dropped, st.Store.RegionBytes, err)
	}
	p.wantValue("k999", value)
	p.close()
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = dial(t, startServer(t, change), client)
	_, err = p.get("k999", 1<<20)
	wantStatus(t, err, wire.StatusNotFound)
	if names, err := fs.List(""); err != nil || len(names) != 0 {
		t.Errorf("on the disk: %q, %v", names, err)
	}
	m, _ := p.events(p.call(watchOf(wire.Watch{From: from})))
	if !m.Skipped {
		t.Error("a watch of the life before is not told that it missed something")
	}
}
