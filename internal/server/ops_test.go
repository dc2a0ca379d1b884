package server

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// write sends any write and returns its reply.
func (p *peer) write(encode func(id uint64) []byte) (wire.WriteReply, error) {
	p.t.Helper()
	body, err := p.call(encode)
	if err != nil {
		return wire.WriteReply{}, err
	}
	m, err := wire.ParseWriteReply(body)
	if err != nil {
		p.t.Fatal(err)
	}
	return m, nil
}

// must is write for what has to be answered.
func (p *peer) must(encode func(id uint64) []byte) wire.WriteReply {
	p.t.Helper()
	m, err := p.write(encode)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

func putOf(key, value string, terms wire.Terms) func(uint64) []byte {
	return func(id uint64) []byte {
		return wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte(value), Terms: terms})
	}
}

func deleteOf(key string, terms wire.Terms) func(uint64) []byte {
	return func(id uint64) []byte { return wire.AppendDelete(nil, id, wire.Delete{Key: []byte(key), Terms: terms}) }
}

func incrementOf(key string, delta int64, terms wire.Terms) func(uint64) []byte {
	return func(id uint64) []byte {
		return wire.AppendUpdate(nil, id, wire.Update{Op: wire.UpdateIncrement, Delta: delta, Key: []byte(key), Terms: terms})
	}
}

func touchOf(key string, ttl time.Duration) func(uint64) []byte {
	return func(id uint64) []byte {
		return wire.AppendUpdate(nil, id, wire.Update{Op: wire.UpdateTouch, Key: []byte(key), Terms: wire.Terms{TTLMicros: uint64(ttl.Microseconds())}})
	}
}

func batchOf(parts ...wire.BatchPart) func(uint64) []byte {
	return namedBatch(wire.RequestID{}, parts...)
}

func namedBatch(rid wire.RequestID, parts ...wire.BatchPart) func(uint64) []byte {
	var b []byte
	for _, p := range parts {
		b = wire.AppendBatchPart(b, p)
	}
	return func(id uint64) []byte { return wire.AppendBatch(nil, id, rid, uint16(len(parts)), b) }
}

func (p *peer) wantValue(key, want string) {
	p.t.Helper()
	if r, err := p.get(key, 1<<20); err != nil || string(r.Value) != want {
		p.t.Errorf("get %s: %q, %v; want %q", key, r.Value, err, want)
	}
}

// eachMemory runs a test with a new node, and with one that was just started
// again, which knows less by memory alone.
func eachMemory(t *testing.T, f func(t *testing.T, srv *Server)) {
	t.Run("new", func(t *testing.T) { f(t, startServer(t, nil)) })
	t.Run("restarted", func(t *testing.T) {
		cfg := testConfig()
		first := startServer(t, func(c *Config) { *c = cfg })
		p := dial(t, first, peerOptions{})
		if err := p.put("left", "over"); err != nil {
			t.Fatal(err)
		}
		p.close()
		if err := first.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, startServer(t, func(c *Config) { *c = cfg }))
	})
}

// TestMustAsk: of keys that memory has no room for only the disk can tell. Such
// a write leaves the lane and is answered all the same, in order.
func TestMustAsk(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 8<<20, 4<<20, 2<<20
		c.LogBytes = 64 << 20 // all that is put, however late checkpoints come
	})
	p := dial(t, srv, peerOptions{})
	value := string(make([]byte, 8<<10))
	versions := make([]uint64, 1200)
	for i := range versions {
		versions[i] = p.must(putOf(fmt.Sprint("k", i), value, wire.Terms{})).Version
	}
	for i, v := range versions {
		if m := p.must(putOf(fmt.Sprint("k", i), "", wire.Terms{If: wire.CondVersion, IfVersion: v})); !m.Applied {
			t.Fatalf("key %d of version %d: %+v", i, v, m)
		}
	}
	if srv.main.Counters.Asked.Load() == 0 {
		t.Error("the disk was never asked: the test is none")
	}
}

func TestConditions(t *testing.T) {
	eachMemory(t, func(t *testing.T, srv *Server) {
		p := dial(t, srv, peerOptions{})
		absent, exists := wire.Terms{If: wire.CondAbsent}, wire.Terms{If: wire.CondExists}
		at := func(v uint64) wire.Terms { return wire.Terms{If: wire.CondVersion, IfVersion: v} }

		if m := p.must(putOf("k", "0", exists)); m.Applied || m.Version != 0 || m.Existed {
			t.Errorf("put if exists of nothing: %+v", m)
		}
		one := p.must(putOf("k", "1", absent))
		if !one.Applied || one.Version == 0 {
			t.Errorf("put if absent: %+v", one)
		}
		if m := p.must(putOf("k", "2", absent)); m.Applied || m.Version != one.Version || !m.Existed {
			t.Errorf("put if absent again: %+v, want version %d", m, one.Version)
		}
		p.wantValue("k", "1")
		two := p.must(putOf("k", "2", at(one.Version)))
		if !two.Applied || two.Version <= one.Version {
			t.Errorf("put if version: %+v after %+v", two, one)
		}
		for _, encode := range []func(uint64) []byte{putOf("k", "3", at(one.Version)), deleteOf("k", at(one.Version)), incrementOf("k", 1, at(one.Version))} {
			if m := p.must(encode); m.Applied || m.Version != two.Version {
				t.Errorf("of a version that is gone: %+v, want %d", m, two.Version)
			}
		}
		p.wantValue("k", "2")
		if m := p.must(deleteOf("k", at(two.Version))); !m.Applied || !m.Existed {
			t.Errorf("delete if version: %+v", m)
		}
		if m := p.must(deleteOf("k", wire.Terms{})); !m.Applied || m.Existed || m.Version != 0 {
			t.Errorf("delete of nothing: %+v", m)
		}
		if m := p.must(deleteOf("k", exists)); m.Applied || m.Version != 0 {
			t.Errorf("delete of nothing, if it exists: %+v", m)
		}
		for _, terms := range []wire.Terms{at(0), at(uint64(layout.MaxVersion) + 1), {TTLMicros: math.MaxUint64}} {
			_, err := p.write(putOf("k", "x", terms))
			wantStatus(t, err, wire.StatusBadRequest)
		}
	})
}

func TestIncrementAndTouch(t *testing.T) {
	eachMemory(t, func(t *testing.T, srv *Server) {
		p := dial(t, srv, peerOptions{})
		for i, c := range []struct{ delta, want int64 }{{5, 5}, {-7, -2}, {0, -2}, {math.MaxInt64, math.MaxInt64 - 2}} {
			if m := p.must(incrementOf("n", c.delta, wire.Terms{})); !m.Applied || m.Number != c.want || m.Existed != (i > 0) {
				t.Errorf("increment by %d: %+v, want %d", c.delta, m, c.want)
			}
		}
		p.wantValue("n", fmt.Sprint(int64(math.MaxInt64-2)))
		_, err := p.write(incrementOf("n", 3, wire.Terms{}))
		wantStatus(t, err, wire.StatusNumberRange)
		for _, value := range []string{"", "x", " 1", "01", "1.5", "9223372036854775808"} {
			p.must(putOf("text", value, wire.Terms{}))
			_, err = p.write(incrementOf("text", 1, wire.Terms{}))
			wantStatus(t, err, wire.StatusNotNumber)
			p.wantValue("text", value)
		}
		if m := p.must(touchOf("nothing", time.Hour)); m.Applied || m.Version != 0 {
			t.Errorf("touch of nothing: %+v", m)
		}
		before := time.Now()
		m := p.must(touchOf("text", time.Hour))
		r, err := p.get("text", 1<<20)
		if err != nil || !m.Applied || r.Version != m.Version || string(r.Value) != "9223372036854775808" {
			t.Errorf("touched: %+v, then %+v, %v", m, r, err)
		}
		if in := time.UnixMicro(int64(r.Expiry)).Sub(before); in < 59*time.Minute || in > 61*time.Minute {
			t.Errorf("expires in %v, want an hour", in)
		}
		body, err := p.call(func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: []byte("text")}) })
		if err != nil {
			t.Fatal(err)
		}
		if e, err := wire.ParseExistsReply(body); err != nil || e.Expiry != r.Expiry || e.Version != r.Version {
			t.Errorf("exists says %+v, %v; get %+v", e, err, r)
		}
		p.must(touchOf("text", 0))
		if r, _ := p.get("text", 1<<20); r.Expiry != 0 {
			t.Errorf("made to last: expiry %d", r.Expiry)
		}
	})
}

// TestExpiry: what has expired is absent, for every request.
func TestExpiry(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	p.must(putOf("e/k", "v", wire.Terms{TTLMicros: 1}))
	p.must(putOf("e/l", "v", wire.Terms{TTLMicros: 3600e6}))
	eventually(t, "the key to expire", func() bool { _, err := p.get("e/k", 100); return err != nil })
	_, err := p.get("e/k", 100)
	wantStatus(t, err, wire.StatusNotFound)
	_, err = p.call(func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: []byte("e/k")}) })
	wantStatus(t, err, wire.StatusNotFound)
	body, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{Prefix: []byte("e/")}) })
	if err != nil {
		t.Fatal(err)
	}
	page, err := wire.ParseScanReply(body)
	if err != nil || page.Count != 1 {
		t.Fatalf("scan: %d entries, %v", page.Count, err)
	}
	for e := range page.Entries {
		if string(e.Key) != "e/l" || e.Expiry == 0 {
			t.Errorf("scan shows %q, expiry %d", e.Key, e.Expiry)
		}
	}
	if m := p.must(putOf("e/k", "new", wire.Terms{If: wire.CondAbsent})); !m.Applied {
		t.Errorf("put if absent of an expired key: %+v", m)
	}
	p.wantValue("e/k", "new")
}

// sameShard returns n keys of one shard, and one of another.
func sameShard(srv *Server, n int) (same []string, other string) {
	want := cluster.ShardOf([]byte("b0"), srv.main.Shards)
	for i := 0; len(same) < n || other == ""; i++ {
		key := fmt.Sprintf("b%d", i)
		if cluster.ShardOf([]byte(key), srv.main.Shards) != want {
			other = key
		} else if len(same) < n {
			same = append(same, key)
		}
	}
	return same, other
}

func part(key, value string) wire.BatchPart {
	return wire.BatchPart{Key: []byte(key), Value: []byte(value)}
}

func TestBatch(t *testing.T) {
	eachMemory(t, func(t *testing.T, srv *Server) {
		p := dial(t, srv, peerOptions{})
		k, other := sameShard(srv, 3)
		first := p.must(batchOf(part(k[0], "a"), part(k[1], "b")))
		if !first.Applied || first.Version == 0 {
			t.Errorf("batch: %+v", first)
		}
		gone := wire.BatchPart{Key: []byte(k[0]), Delete: true}
		m := p.must(batchOf(gone, part(k[1], "c"), part(k[2], "d")))
		if !m.Applied || m.Version <= first.Version {
			t.Errorf("second batch: %+v", m)
		}
		_, err := p.get(k[0], 100)
		wantStatus(t, err, wire.StatusNotFound)
		p.wantValue(k[1], "c")
		p.wantValue(k[2], "d")

		// One condition refuses all, and says which.
		cond := part(k[1], "e")
		cond.If = wire.CondAbsent
		r, _ := p.get(k[1], 100)
		if m = p.must(batchOf(part(k[0], "e"), cond)); m.Applied || m.Number != 1 || m.Version != r.Version {
			t.Errorf("refused batch: %+v, want part 1 at version %d", m, r.Version)
		}
		_, err = p.get(k[0], 100)
		wantStatus(t, err, wire.StatusNotFound)
		p.wantValue(k[1], "c")

		for _, c := range []struct {
			name  string
			parts []wire.BatchPart
			want  wire.Status
		}{
			{"nothing", nil, wire.StatusBadBatch},
			{"a key twice", []wire.BatchPart{part(k[0], ""), part(k[0], "")}, wire.StatusBadBatch},
			{"two shards", []wire.BatchPart{part(k[0], ""), part(other, "")}, wire.StatusCrossShard},
			{"an empty key", []wire.BatchPart{part("", "")}, wire.StatusKeyEmpty},
			{"a long key", []wire.BatchPart{part(string(bytes.Repeat([]byte("k"), 4097)), "")}, wire.StatusKeyTooLarge},
			{"a version 0", []wire.BatchPart{{Key: []byte("k"), If: wire.CondVersion}}, wire.StatusBadRequest},
			{"a TTL of ages", []wire.BatchPart{{Key: []byte("k"), TTLMicros: 1 << 63}}, wire.StatusBadRequest},
		} {
			if _, err := p.write(batchOf(c.parts...)); err == nil {
				t.Errorf("%s: accepted", c.name)
			} else {
				wantStatus(t, err, c.want)
			}
		}
	})
}

// TestLargeBatch: the parts come out of the client's memory.
func TestLargeBatch(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	keys, _ := sameShard(srv, 300)
	var parts []byte
	for i, key := range keys {
		parts = wire.AppendBatchPart(parts, part(key, string(bytes.Repeat([]byte{byte(i)}, 2000))))
	}
	copy(p.sink(), parts)
	m := wire.BatchLarge{
		Count: 300, Length: uint32(len(parts)), Checksum: checksum(parts), RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
	}
	large := func(m wire.BatchLarge) func(uint64) []byte {
		return func(id uint64) []byte { return wire.AppendBatchLarge(nil, id, m) }
	}
	if r := p.must(large(m)); !r.Applied {
		t.Errorf("%+v", r)
	}
	for i, key := range keys {
		p.wantValue(key, string(bytes.Repeat([]byte{byte(i)}, 2000)))
	}
	for _, c := range []struct {
		name   string
		change func(m *wire.BatchLarge)
		want   wire.Status
	}{
		{"changed memory", func(m *wire.BatchLarge) { m.Checksum++ }, wire.StatusChecksum},
		{"no parts", func(m *wire.BatchLarge) { m.Count = 0 }, wire.StatusBadBatch},
		{"too many parts", func(m *wire.BatchLarge) { m.Count = wire.MaxBatchParts + 1 }, wire.StatusBadBatch},
		{"too many bytes", func(m *wire.BatchLarge) { m.Length = wire.MaxBatchBytes + 1 }, wire.StatusBadBatch},
	} {
		bad := m
		c.change(&bad)
		if _, err := p.write(large(bad)); err == nil {
			t.Errorf("%s: accepted", c.name)
		} else {
			wantStatus(t, err, c.want)
		}
	}
	if used, _ := srv.main.Staging.InUse(); used != 0 {
		t.Errorf("%d bytes of staging memory are still in use", used)
	}
	// Bytes that are no parts, with a checksum that holds.
	for name, change := range map[string]func(m *wire.BatchLarge){
		"one part too many":         func(m *wire.BatchLarge) { m.Count++ },
		"one part too few":          func(m *wire.BatchLarge) { m.Count-- },
		"an address that goes over": func(m *wire.BatchLarge) { m.Addr = math.MaxUint64 - 100 },
	} {
		bad := m
		change(&bad)
		q := dial(t, srv, peerOptions{})
		copy(q.sink(), parts)
		if bad.Addr == m.Addr {
			bad.Addr = q.mr.Addr() + (peerReceives+1)*peerSize
		}
		bad.RKey = q.mr.RKey()
		before := srv.main.Counters.Ends[base.CauseBody].Load()
		q.send(large(bad)(9))
		wantStatus(t, q.goodbye(), wire.StatusProtocol)
		t.Log(name)
		ended(t, srv, base.CauseBody, before+1)
	}
	eventually(t, "staging memory to come back", func() bool { used, _ := srv.main.Staging.InUse(); return used == 0 })
}

// TestNamedWrites: a write that comes again under its name, on another
// connection and to another process, is applied once and answered as before.
func TestNamedWrites(t *testing.T) {
	cfg := testConfig()
	change := func(c *Config) { *c = cfg }
	client := peerOptions{client: [16]byte{1, 2, 3}}
	srv := startServer(t, change)
	keys, _ := sameShard(srv, 2)
	name := func(slot uint16, seq uint64, age uint32) wire.Terms {
		return wire.Terms{ID: wire.RequestID{Slot: slot, Seq: seq, AgeMillis: age}}
	}
	absent := name(2, 1, 0)
	absent.If = wire.CondAbsent
	p := dial(t, srv, client)
	writes := []func(uint64) []byte{
		incrementOf("n", 5, name(0, 1, 0)),
		putOf("p", "v", name(1, 1, 0)),
		putOf("p", "w", absent), // refused
		deleteOf("p", name(3, 1, 0)),
		namedBatch(name(4, 1, 0).ID, part(keys[0], "1"), part(keys[1], "2")),
	}
	var first []wire.WriteReply
	for _, w := range writes {
		first = append(first, p.must(w))
	}
	again := func(p *peer, when string) {
		for i, w := range writes {
			if m := p.must(w); m != first[i] {
				t.Errorf("%s, write %d: %+v, at first %+v", when, i, m, first[i])
			}
		}
		p.wantValue("n", "5")
	}
	again(p, "on the same connection")
	again(dial(t, srv, client), "on another")
	if m := dial(t, srv, peerOptions{client: [16]byte{9}}).must(writes[0]); m.Number != 10 {
		t.Errorf("another client's increment: %+v", m)
	}
	p.must(incrementOf("n", -5, name(0, 2, 0)))
	_, err := p.write(writes[0])
	wantStatus(t, err, wire.StatusUnknown) // its slot has gone on
	_, err = p.write(incrementOf("n", 1, name(9, 1, 10*60*1000)))
	wantStatus(t, err, wire.StatusUnknown) // too old to be remembered
	_, err = dial(t, srv, peerOptions{}).write(writes[0])
	wantStatus(t, err, wire.StatusBadRequest) // a name without a client

	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv = startServer(t, change)
	p = dial(t, srv, client)
	writes, first = writes[1:], first[1:]
	again(p, "after a restart")
	p.wantValue("n", "5")
}

// TestScanRange: the bounds of a scan, as the messages carry them.
func TestScanRange(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	for _, key := range []string{"a", "b", "c", "d"} {
		p.must(putOf(key, key, wire.Terms{}))
	}
	for _, c := range []struct {
		m    wire.Scan
		want string
	}{
		{wire.Scan{After: []byte("b")}, "cd"},
		{wire.Scan{After: []byte("b"), From: true}, "bcd"},
		{wire.Scan{After: []byte("b"), From: true, End: []byte("d")}, "bc"},
		{wire.Scan{End: []byte("c")}, "ab"},
		{wire.Scan{Prefix: []byte("b"), End: []byte("b")}, ""},
	} {
		body, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, c.m) })
		if err != nil {
			t.Fatal(err)
		}
		page, err := wire.ParseScanReply(body)
		got := ""
		for e := range page.Entries {
			got += string(e.Key)
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.m, got, err, c.want)
		}
	}
	_, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{End: make([]byte, 4097)}) })
	wantStatus(t, err, wire.StatusKeyTooLarge)
}

// TestReports: touches and damage are taken from Ping and Report; what they say
// of shards and keys that cannot be is left aside.
func TestReports(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	var touches wire.Touches
	for i := range wire.MaxTouches {
		touches = touches.Append(wire.Touch{Hash: uint64(i) << 40, Count: math.MaxUint32})
	}
	key := []byte("k")
	damages := []wire.Damage{
		{Shard: 1, Place: 1 << 60, Version: 1 << 62, Key: key},
		{Shard: 4, Key: key},
		{Shard: 0},
		{Shard: 0, Key: make([]byte, 4097)},
	}
	body, err := p.call(func(id uint64) []byte { return wire.AppendReport(nil, id, touches, damages) })
	if err != nil || wire.ParseReportReply(body) != nil {
		t.Errorf("report: %x, %v", body, err)
	}
	eventually(t, "the touches of a Ping to be taken", func() bool {
		if _, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{Touches: touches}) }); err != nil {
			t.Fatal(err)
		}
		return srv.main.Counters.Touches.Load() == 2*wire.MaxTouches // what comes too soon is left aside
	})
	if got := srv.main.Counters.DamageReports.Load(); got != 1 {
		t.Errorf("%d damages taken, want 1", got)
	}
	if err := p.put("k", "still served"); err != nil {
		t.Error(err)
	}
}
