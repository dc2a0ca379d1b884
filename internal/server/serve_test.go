package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// eachQueue runs a test with receives per session and with shared ones.
func eachQueue(t *testing.T, f func(t *testing.T, change func(*Config))) {
	for _, shared := range []session.Shared{session.SharedOff, session.SharedOn} {
		t.Run("shared="+shared.String(), func(t *testing.T) {
			f(t, func(c *Config) { c.SharedReceives = shared })
		})
	}
}

func wantStatus(t *testing.T, err error, want wire.Status) {
	t.Helper()
	if !errors.Is(err, want.Err()) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestWriteAndRead(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		p := dial(t, srv, peerOptions{})
		if p.wel.Shards != 4 || p.wel.Incarnation != srv.main.Incarnation || p.wel.Lease != 2*time.Second || p.wel.MaxKey != 4096 || string(p.wel.ServerID) != "kvserver" {
			t.Errorf("welcome: %+v", p.wel)
		}
		_, err := p.get("k", 100)
		wantStatus(t, err, wire.StatusNotFound)
		for i := range 200 { // more than all credits: they come back
			if err := p.put(fmt.Sprintf("k%d", i), strings.Repeat("v", i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 200 {
			r, err := p.get(fmt.Sprintf("k%d", i), 1000)
			if err != nil || r.Kind != wire.GetInline || string(r.Value) != strings.Repeat("v", i) || r.Version == 0 {
				t.Fatalf("k%d: %+v, %v", i, r, err)
			}
		}
		exists := func(key string) (wire.ExistsReply, error) {
			body, err := p.call(func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: []byte(key)}) })
			if err != nil {
				return wire.ExistsReply{}, err
			}
			return wire.ParseExistsReply(body)
		}
		if e, err := exists("k7"); err != nil || e.ValueLen != 7 {
			t.Errorf("exists: %+v, %v", e, err)
		}
		for _, existed := range []bool{true, false} {
			body, err := p.call(func(id uint64) []byte { return wire.AppendDelete(nil, id, wire.Delete{Key: []byte("k7")}) })
			if err != nil {
				t.Fatal(err)
			}
			d, err := wire.ParseWriteReply(body)
			if err != nil || d.Existed != existed || (d.Version != 0) != existed {
				t.Errorf("delete: %+v, %v", d, err)
			}
		}
		_, err = exists("k7")
		wantStatus(t, err, wire.StatusNotFound)
		_, err = p.get("k7", 100)
		wantStatus(t, err, wire.StatusNotFound)
	})
}

func TestRefusals(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	wantStatus(t, p.put("", "v"), wire.StatusKeyEmpty)
	wantStatus(t, p.put(strings.Repeat("k", 4097), "v"), wire.StatusKeyTooLarge)
	if err := p.put(strings.Repeat("k", 4096), ""); err != nil {
		t.Errorf("longest key, empty value: %v", err)
	}
	if r, err := p.get(strings.Repeat("k", 4096), 10); err != nil || len(r.Value) != 0 {
		t.Errorf("empty value: %+v, %v", r, err)
	}
	_, err := p.get("", 10)
	wantStatus(t, err, wire.StatusKeyEmpty)
	_, err = p.get(strings.Repeat("k", 4097), 10)
	wantStatus(t, err, wire.StatusKeyTooLarge)
	large := func(m wire.PutLarge) error {
		_, err := p.call(func(id uint64) []byte { return wire.AppendPutLarge(nil, id, m) })
		return err
	}
	wantStatus(t, large(wire.PutLarge{Key: []byte("k"), ValueLen: 64<<20 + 1}), wire.StatusTooLarge)
	wantStatus(t, large(wire.PutLarge{Key: []byte("k"), ValueLen: 1 << 63, Addr: 1}), wire.StatusTooLarge)
	wantStatus(t, large(wire.PutLarge{ValueLen: 1}), wire.StatusKeyEmpty)
	wantStatus(t, large(wire.PutLarge{Key: bytes.Repeat([]byte("k"), 4097), ValueLen: 1}), wire.StatusKeyTooLarge)
	for _, from := range []uint32{1000, 1<<32 - 1} {
		_, err = p.call(func(id uint64) []byte { return wire.AppendViewRequest(nil, id, wire.ViewRequest{From: from}) })
		wantStatus(t, err, wire.StatusBadRequest)
	}
	_, err = p.call(func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: 1}) })
	wantStatus(t, err, wire.StatusNoHold)
	_, err = p.call(func(id uint64) []byte {
		return wire.AppendDocument(nil, id, wire.Document{Kind: wire.DocumentStats, Serial: 1, From: 1 << 30})
	})
	wantStatus(t, err, wire.StatusBadRequest)
	if err := p.ping(); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestLargePut(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) {
			change(c)
			c.Lease = 20 * time.Second // holds last through the slowest READ
		})
		p := dial(t, srv, peerOptions{sink: 6 << 20})
		for _, n := range []int{0, 1, 7, 4096, 256 << 10, 256<<10 + 1, 5 << 20} {
			value := p.sink()[:n]
			for i := range value {
				value[i] = byte(i*7 + n)
			}
			want := bytes.Clone(value)
			key := fmt.Appendf(nil, "large%d", n)
			if err := p.putLarge(key, n, xxh3.Hash(value)); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			clear(value)
			if got := p.getWhole(string(key)); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: another value came back", n)
			}
		}
		// The memory changed under the put: nobody wrote what was READ.
		wantStatus(t, p.putLarge([]byte("torn"), 1<<20, 12345), wire.StatusChecksum)
		_, err := p.get("torn", 10)
		wantStatus(t, err, wire.StatusNotFound)
		if used, _ := srv.main.Staging.InUse(); used != 0 {
			t.Errorf("%d bytes of staging memory still in use", used)
		}
	})
}

// putLarge puts the first n bytes of the sink.
func (p *peer) putLarge(key []byte, n int, sum uint64) error {
	p.t.Helper()
	_, err := p.call(func(id uint64) []byte {
		return wire.AppendPutLarge(nil, id, wire.PutLarge{
			Key: key, ValueLen: uint64(n), Checksum: sum,
			RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
		})
	})
	return err
}

// putLargeSoon is putLarge. With -short, so under the race detector, it is sent again while the
// log has no room for the value, as clients do: its next file is on its way for a while there.
func (p *peer) putLargeSoon(key []byte, n int, sum uint64) (err error) {
	p.t.Helper()
	eventually(p.t, "room in the log", func() bool {
		err = p.putLarge(key, n, sum)
		return !testing.Short() || !errors.Is(err, wire.StatusOverloaded.Err())
	})
	return err
}

// getWhole gets by SEND, and READs what the server holds for it.
func (p *peer) getWhole(key string) []byte {
	p.t.Helper()
	r, err := p.get(key, 1<<30)
	if err != nil {
		p.t.Fatalf("get %s: %v", key, err)
	}
	if r.Kind == wire.GetInline {
		return r.Value
	}
	item := bytes.Clone(p.readPlace(r.Hold.Place, int(r.Hold.Size)))
	v, err := layout.ParseItem(item, p.wel.Incarnation, layout.Place(r.Hold.Place))
	if err != nil {
		p.t.Fatalf("held item: %v", err)
	}
	if v.Version != layout.Version(r.Version) || string(v.Key()) != key || v.ValLen != int(r.ValueLen) {
		p.t.Fatalf("held item is another: version %v, key %q, %d bytes", v.Version, v.Key(), v.ValLen)
	}
	value := bytes.Clone(item[v.ValueOffset():][:v.ValLen])
	if _, err := p.call(func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: r.Hold.ID}) }); err != nil {
		p.t.Fatalf("release: %v", err)
	}
	return value
}

// readPlace READs n bytes at a place, found in the region table.
func (p *peer) readPlace(place uint64, n int) []byte {
	p.t.Helper()
	_, regions := p.regions()
	for _, r := range regions {
		if off := (place - r.Base) * 8; place >= r.Base && off+uint64(n) <= r.Length {
			b, err := p.read(r.Addr+off, r.RKey, n)
			if err != nil {
				p.t.Fatalf("READ: %v", err)
			}
			return b
		}
	}
	p.t.Fatalf("place %d is in no region", place)
	return nil
}

func TestHeldPlaces(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	if err := p.put("k", "some value"); err != nil {
		t.Fatal(err)
	}
	// Small, but the client wants a place: a part of a value, say.
	r, err := p.get("k", 3)
	if err != nil || r.Kind != wire.GetHeld || r.ValueLen != 10 {
		t.Fatalf("%+v, %v", r, err)
	}
	// It stays what it is while the key is overwritten and deleted.
	if err := p.put("k", "another one"); err != nil {
		t.Fatal(err)
	}
	v, err := layout.ParseItem(bytes.Clone(p.readPlace(r.Hold.Place, int(r.Hold.Size))), p.wel.Incarnation, layout.Place(r.Hold.Place))
	if err != nil || string(v.Value()) != "some value" {
		t.Fatalf("held: %q, %v", v.Value(), err)
	}
	release := func() error {
		_, err := p.call(func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: r.Hold.ID}) })
		return err
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, release(), wire.StatusNoHold)
	// Holds of a session that ends are let go.
	if _, err := p.get("k", 3); err != nil {
		t.Fatal(err)
	}
	p.qp.Disconnect()
	eventually(t, "the hold is let go", func() bool { return srv.main.Store.Stats().HeldBytes == 0 })
}

// eventually waits for something that happens on another goroutine.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventuallySays(t, func() string { return what }, ok)
}

// eventuallySays is eventually with words that are worked out when it has failed.
func eventuallySays(t testing.TB, what func() string, ok func() bool) {
	t.Helper()
	limit := teeth.Patience(20 * time.Second)
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", limit, what())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestScanPages(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.ReplySize = session.MinReplySize })
	p := dial(t, srv, peerOptions{})
	want := map[string]string{}
	for i := range 300 {
		k, v := fmt.Sprintf("p/%03d", i), strings.Repeat("x", i%90)
		if i == 150 {
			v = strings.Repeat("y", 14000) // larger than a page
		}
		want[k] = v
		if err := p.put(k, v); err != nil {
			t.Fatal(err)
		}
	}
	p.put("o", "")
	p.put("q", "")
	for _, keysOnly := range []bool{false, true} {
		for _, limit := range []uint32{0, 7} {
			var after []byte
			var got []string
			pages := 0
			for {
				body, err := p.call(func(id uint64) []byte {
					return wire.AppendScan(nil, id, wire.Scan{Prefix: []byte("p/"), After: after, Limit: limit, KeysOnly: keysOnly})
				})
				if err != nil {
					t.Fatal(err)
				}
				page, err := wire.ParseScanReply(body)
				if err != nil {
					t.Fatal(err)
				}
				for e := range page.Entries {
					got = append(got, string(e.Key))
					v := want[string(e.Key)]
					if int(e.ValueLen) != len(v) || e.HasValue != (!keysOnly && len(v) < 12000) || e.HasValue && string(e.Value) != v {
						t.Errorf("entry %s: %d bytes, value %v", e.Key, e.ValueLen, e.HasValue)
					}
				}
				if limit > 0 && page.Count > limit {
					t.Errorf("%d entries, limit %d", page.Count, limit)
				}
				if pages++; !page.More {
					break
				}
				after = bytes.Clone(page.Next)
			}
			if len(got) != 300 || got[0] != "p/000" || got[299] != "p/299" || pages < 2 && !(keysOnly && limit == 0) {
				t.Errorf("keys only %v, limit %d: %d keys in %d pages", keysOnly, limit, len(got), pages)
			}
		}
	}
}

// TestViewPages: a table of more regions than a reply holds comes in pages.
func TestViewPages(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.RegionSize, c.IndexRegionSize, c.MemoryLimit = 1<<20, 1<<20, 64<<20
		c.Sync = 2 // off: this test is about regions, not about the disk
	})
	p := dial(t, srv, peerOptions{})
	value := p.sink()[:1<<20]
	for i := range 12 { // each needs a region of its own
		if err := p.putLarge(fmt.Appendf(nil, "k%d", i), len(value), xxh3.Hash(value)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range srv.main.Sessions.List() {
		s.ReplySize = 300 // five regions
	}
	view, all := p.regions()
	if len(all) < 12 || view.From == 0 || view.Incarnation != srv.main.Incarnation || view.Shards != 4 || view.Version != srv.main.Store.ViewVersion() {
		t.Fatalf("%d regions, last page from %d", len(all), view.From)
	}
	for i, r := range all {
		b, err := p.read(r.Addr, r.RKey, layout.PageSize)
		if err != nil {
			t.Fatalf("region %d: %v", i, err)
		}
		h, err := layout.ParseRegionHeader(b)
		if err != nil || h.ID != r.ID || h.Incarnation != srv.main.Incarnation || uint64(h.Base) != r.Base || h.Length != r.Length {
			t.Fatalf("region %d: header %+v, table %+v, %v", i, h, r, err)
		}
	}
}

func TestStatsAndBeat(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Beat = 5 * time.Millisecond; c.ReplySize = session.MinReplySize })
	p := dial(t, srv, peerOptions{})
	if err := p.put("k", "v"); err != nil {
		t.Fatal(err)
	}
	text, err := p.document(wire.DocumentStats, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st Stats
	if err := json.Unmarshal(text, &st); err != nil {
		t.Fatal(err)
	}
	if st.Requests["Put"].Count != 1 || st.Sessions != 1 || st.Store.Published != 1 || st.Incarnation != srv.main.Incarnation || st.Fabric != "iwarp" {
		t.Errorf("%+v", st)
	}
	// The beat goes on, and anyone may READ it.
	_, regions := p.regions()
	beat := func() layout.Beat {
		b, err := p.read(regions[0].Addr+layout.BeatOffset, regions[0].RKey, layout.BeatSize)
		if err != nil {
			t.Fatal(err)
		}
		beat, err := layout.ParseBeat(b, srv.main.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		return beat
	}
	first := beat()
	eventually(t, "the beat goes on", func() bool { return beat().Counter > first.Counter+2 })
}

func TestRestartKeepsData(t *testing.T) {
	fs := vfs.NewMem()
	var inc uint64
	for round := range 3 {
		srv := startServer(t, func(c *Config) { c.FS = fs })
		p := dial(t, srv, peerOptions{})
		if p.wel.Incarnation == inc {
			t.Error("the same incarnation again")
		}
		inc = p.wel.Incarnation
		for i := range round {
			if r, err := p.get(fmt.Sprintf("k%d", i), 100); err != nil || string(r.Value) != fmt.Sprint(i) {
				t.Errorf("round %d: k%d: %q, %v", round, i, r.Value, err)
			}
		}
		if err := p.put(fmt.Sprintf("k%d", round), fmt.Sprint(round)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := srv.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

func checksum(b []byte) uint64 { return xxh3.Hash(b) }
