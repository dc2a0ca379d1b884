package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestReadsWaitForRoom: a read that the server has no room for is made again until
// the call's time is over; then the error says both.
func TestReadsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clienttest.NewServer(77)
		f.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeSendOnly }
		var refuse atomic.Int64
		var asked atomic.Int64
		f.OnRequest = func(h wire.Header, msg []byte) (reply []byte, handled bool) {
			switch h.Type {
			case wire.TypeGet, wire.TypeExists, wire.TypeScan:
			default:
				return nil, false
			}
			asked.Add(1)
			switch {
			case refuse.Add(-1) >= 0:
				reply = wire.AppendError(nil, h.Type, h.ID, wire.StatusOverloaded, "")
			case h.Type == wire.TypeGet:
				reply = make([]byte, wire.GetReplyHead)
				reply = append(reply, "value"...)
				wire.FinishGetInline(reply, h.ID, 5, 0)
			case h.Type == wire.TypeExists:
				reply = wire.AppendExistsReply(nil, h.ID, wire.ExistsReply{Version: 5, ValueLen: 5})
			default:
				reply = wire.BeginScanReply(nil, h.ID)
				reply = wire.AppendScanEntry(reply, wire.ScanEntry{Version: 5, ValueLen: 5, Key: []byte("k"), Value: []byte("value"), HasValue: true})
				reply = wire.EndScanReply(reply, 0, 1, false, nil)
			}
			wire.SetCredits(reply, 1)
			return reply, true
		}
		c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.Timeout = 30 * time.Second })
		reads := map[string]func(ctx context.Context) error{
			"get": func(ctx context.Context) error {
				v, err := c.Get(ctx, []byte("k"))
				if err == nil && string(v) != "value" {
					t.Errorf("got %q", v)
				}
				return err
			},
			"exists": func(ctx context.Context) error { _, err := c.Exists(ctx, []byte("k")); return err },
			"multi-get": func(ctx context.Context) error {
				_, err := c.MultiGet(ctx, [][]byte{[]byte("k")})
				return err
			},
			"scan": func(ctx context.Context) (err error) {
				for _, e := range c.Scan(ctx, client.ScanOptions{}) {
					err = e
				}
				return err
			},
		}
		for name, read := range reads {
			refuse.Store(5)
			asked.Store(0)
			before := c.Counters().Retries.Refused
			if err := read(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := asked.Load(); n != 6 {
				t.Errorf("%s: asked %d times, want 6", name, n)
			}
			if n := c.Counters().Retries.Refused - before; n != 5 {
				t.Errorf("%s: %d refusals are counted, want 5", name, n)
			}
			refuse.Store(1 << 30)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if err := read(ctx); !errors.Is(err, client.ErrOverloaded) || !errors.Is(err, client.ErrTimeout) {
				t.Errorf("%s: at the end of its time: %v", name, err)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			if err := read(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: called off: %v", name, err)
			}
		}
	})
}

// TestReadsInFullMemory: memory is full of small values when larger ones are put.
// Each of these is read at once, whatever the classes of the memory, one by one,
// many at a time, in a scan, and in parts.
func TestReadsInFullMemory(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) {
		cfg.MemoryLimit, cfg.RegionSize, cfg.IndexRegionSize = 8<<20, 1<<20, 1<<20
	})
	c := dialNode(n, func(cfg *client.Config) { cfg.Timeout = 60 * time.Second })
	ctx := t.Context()
	small := bytes.Repeat([]byte("s"), 600)
	const group = 500
	keys := 20_000
	if testing.Short() {
		keys = 12_000 // with the large values it is still more than the memory
	}
	for i := 0; i < keys; i += group {
		pairs := make([]client.Pair, group)
		for j := range pairs {
			pairs[j] = client.Pair{Key: fmt.Appendf(nil, "small/%d", i+j), Value: small}
		}
		if err := c.MultiPut(ctx, pairs); err != nil {
			t.Fatal(err)
		}
	}
	value := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%09d,", i), 10_000) }
	key := func(i int) []byte { return fmt.Appendf(nil, "large/%02d", i) }
	const many = 30
	for i := range many {
		if err := c.Put(ctx, key(i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	var names [][]byte
	for i := range many {
		names = append(names, key(i))
		got, err := c.Get(ctx, key(i))
		if err != nil || !bytes.Equal(got, value(i)) {
			t.Fatalf("%s: %d bytes, %v", key(i), len(got), err)
		}
		part, err := c.GetRange(ctx, key(i), 50_005, 40_000)
		if err != nil || !bytes.Equal(part, value(i)[50_005:][:40_000]) {
			t.Fatalf("%s, a part: %d bytes, %v", key(i), len(part), err)
		}
	}
	results, err := c.MultiGet(ctx, names)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if !bytes.Equal(r.Value, value(i)) {
			t.Errorf("%s: %d bytes, %v", key(i), len(r.Value), r.Err)
		}
	}
	seen := 0
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("large/")}) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(e.Value, value(seen)) {
			t.Errorf("%s: %d bytes", e.Key, len(e.Value))
		}
		seen++
	}
	if seen != many {
		t.Errorf("a scan of %d keys, want %d", seen, many)
	}
	t.Logf("refused for now: %d", c.Counters().Retries.Refused)
}

// TestShorterHold: a server says of one version first that it has five chunks, then
// that it has little more than one. What was taken before counts for nothing then.
func TestShorterHold(t *testing.T) {
	f := clienttest.NewServer(77)
	f.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeSendOnly }
	key := []byte("large")
	long := bytes.Repeat([]byte("0123456789abcdef"), 5*layout.ChunkSize/16)
	values := [][]byte{long, long[:layout.ChunkSize+16]}
	holds := 0
	f.OnRequest = func(h wire.Header, msg []byte) (reply []byte, handled bool) {
		value := values[max(holds-1, 0)%2]
		if h.Type == wire.TypeGet {
			value = values[holds%2]
			holds++
		}
		item := make([]byte, layout.ItemSize(len(key), len(value), false))
		layout.WriteItem(item, f.Incarnation, layout.Nowhere, layout.Item{Version: 9, Key: key, Value: value}, layout.Held)
		head := len(item) - (len(value)+7)&^7
		switch h.Type {
		case wire.TypeGet:
			reply = wire.AppendGetReply(nil, h.ID, wire.GetReply{
				Kind: wire.GetHeld, ValueLen: uint32(len(value)), Version: 9,
				Hold: wire.Hold{ID: uint64(holds), Place: uint64(layout.Nowhere), Size: uint32(len(item)), KeyLen: uint16(len(key))},
			})
		case wire.TypeFetch:
			m, err := wire.ParseFetch(wire.Body(msg))
			if err != nil {
				t.Error(err)
			}
			off := int(m.Offset)
			if holds == 1 && off >= head+3*layout.ChunkSize {
				reply = wire.AppendError(nil, h.Type, h.ID, wire.StatusNoHold, "")
				break
			}
			n := min(int(m.Length), (session.MessageSize-wire.FetchFixed)&^7)
			reply = wire.AppendFetchHead(nil, h.ID, m.Offset)
			reply = wire.FinishFetch(append(reply, item[off:off+n]...), 0)
		case wire.TypeRelease:
			reply = wire.AppendReleaseReply(nil, h.ID)
		default:
			return nil, false
		}
		wire.SetCredits(reply, 1)
		return reply, true
	}
	c := dialFake(t, f, clienttest.NewClock(), nil)
	got, err := c.Get(t.Context(), key)
	if err != nil || !bytes.Equal(got, values[1]) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if holds != 2 {
		t.Errorf("%d holds", holds)
	}
}

// TestFetchGoesOn: a value that is fetched in pieces, and whose holds are over before
// all of it is here, is fetched on under the next one: no chunk comes twice.
func TestFetchGoesOn(t *testing.T) {
	for _, oneSided := range []bool{false, true} {
		t.Run(fmt.Sprint("one-sided=", oneSided), func(t *testing.T) {
			f, _, c := newOneSided(t)
			if !oneSided {
				f = clienttest.NewServer(77)
				f.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeSendOnly }
			}
			key := []byte("large")
			value := bytes.Repeat([]byte("0123456789abcdef"), 5*layout.ChunkSize/16)
			item := make([]byte, layout.ItemSize(len(key), len(value), false))
			layout.WriteItem(item, f.Incarnation, layout.Nowhere, layout.Item{Version: 9, Key: key, Value: value}, layout.Held)
			head := len(item) - len(value)
			var holds, chunks, left int // of chunks in this hold
			f.OnRequest = func(h wire.Header, msg []byte) (reply []byte, handled bool) {
				switch h.Type {
				case wire.TypeGet:
					holds++
					left = 2
					reply = wire.AppendGetReply(nil, h.ID, wire.GetReply{
						Kind: wire.GetHeld, ValueLen: uint32(len(value)), Version: 9,
						Hold: wire.Hold{ID: uint64(holds), Place: uint64(layout.Nowhere), Size: uint32(len(item)), KeyLen: uint16(len(key))},
					})
				case wire.TypeFetch:
					m, err := wire.ParseFetch(wire.Body(msg))
					if err != nil || m.Hold != uint64(holds) {
						t.Errorf("fetch of hold %d, %v", m.Hold, err)
					}
					off := int(m.Offset)
					if off >= head && (off-head)%layout.ChunkSize == 0 { // a chunk begins
						if left--; left < 0 {
							reply = wire.AppendError(nil, h.Type, h.ID, wire.StatusNoHold, "")
							break
						}
						chunks++
					}
					n := min(int(m.Length), (session.MessageSize-wire.FetchFixed)&^7)
					reply = wire.AppendFetchHead(nil, h.ID, m.Offset)
					reply = wire.FinishFetch(append(reply, item[off:off+n]...), 0)
				case wire.TypeRelease:
					reply = wire.AppendReleaseReply(nil, h.ID)
				default:
					return nil, false
				}
				wire.SetCredits(reply, 1)
				return reply, true
			}
			if !oneSided {
				c = dialFake(t, f, clienttest.NewClock(), nil)
			} else {
				f.Change(func(mem []byte) { clear(mem) }) // no get is answered by READs
			}
			got, err := c.Get(t.Context(), key)
			if err != nil || !bytes.Equal(got, value) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if holds != 3 || chunks != 5 {
				t.Errorf("%d holds and %d chunks, want 3 and 5", holds, chunks)
			}
			part, err := c.GetRange(t.Context(), key, layout.ChunkSize-5, 3*layout.ChunkSize)
			if err != nil || !bytes.Equal(part, value[layout.ChunkSize-5:][:3*layout.ChunkSize]) {
				t.Fatalf("a part: %d bytes, %v", len(part), err)
			}
		})
	}
}
