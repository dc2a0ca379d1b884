package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// FuzzReply answers a request with arbitrary bytes. Whatever they are, the
// client does not panic, the call ends, and a malformed reply costs the server
// the connection. op chooses the call; with fix set, type and id of the reply
// are put right, so that the bytes behind them are looked at.
func FuzzReply(f *testing.F) {
	const fuzzOps = 15
	hold := wire.AppendGetReply(nil, 0, wire.GetReply{
		Kind: wire.GetHeld, ValueLen: 100_000, Version: 1, Hold: wire.Hold{ID: 1, Place: uint64(clienttest.ItemsPlace), Size: 200_000, KeyLen: 1},
	})
	scan := wire.BeginScanReply(nil, 0)
	scan = wire.AppendScanEntry(scan, wire.ScanEntry{Key: []byte("k"), ValueLen: 1, Value: []byte("v"), HasValue: true})
	scan = wire.EndScanReply(scan, 0, 1, true, []byte("k"))
	watch := wire.BeginWatchReply(nil, 0)
	watch = wire.AppendEvent(watch, wire.Event{Version: 3, Op: wire.EventPut, Key: []byte("k"), ValueLen: 1, Value: []byte("v"), HasValue: true})
	watch = wire.EndWatchReply(watch, 0, 1, wire.Cursor{Incarnation: 9, Version: 3}, true)
	for op := range uint8(fuzzOps) {
		f.Add(op, true, watch)
		f.Add(op, true, wire.AppendWriteReply(nil, wire.TypeBatch, 0, wire.WriteReply{Version: 1, Number: 1 << 62}))
		f.Add(op, true, []byte{})
		f.Add(op, false, hold)
		f.Add(op, true, hold)
		f.Add(op, true, scan)
		f.Add(op, true, wire.AppendError(nil, wire.TypePut, 0, wire.StatusClosing, "bye"))
		f.Add(op, true, wire.AppendGetReply(nil, 0, wire.GetReply{Kind: wire.GetInline, Value: []byte("v"), Version: 1}))
		f.Add(op, true, wire.AppendWriteReply(nil, wire.TypePut, 0, wire.WriteReply{Version: 1, Applied: true}))
		f.Add(op, true, wire.AppendDocumentReply(nil, 0, wire.DocumentReply{Total: 2, Serial: 1, Data: []byte("{}")}))
		f.Add(op, false, clienttest.Pack(wire.AppendWriteReply(nil, wire.TypePut, 5, wire.WriteReply{Version: 1, Applied: true}), wire.AppendError(nil, wire.TypeGet, 6, wire.StatusNotFound, "no")))
		f.Add(op, false, wire.AppendGoodbye(nil, wire.StatusClosing, "bye"))
	}
	f.Fuzz(func(t *testing.T, op uint8, fix bool, bytes []byte) {
		// Every wait below is of milliseconds; this only tells an end from
		// none, on a machine however busy.
		begin := time.Now()
		defer func() {
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		}()
		srv := clienttest.NewServer(9)
		srv.Packs = true
		answered := false
		srv.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type == wire.TypeHello || h.Type == wire.TypeView && op%fuzzOps != 7 {
				return nil, false
			}
			if answered {
				return nil, true // one answer, then silence
			}
			answered = true
			out := append([]byte(nil), bytes...)
			if fix && len(out) >= wire.HeaderSize {
				out[0], out[1] = wire.VersionMax, byte(h.Type.Reply())
				binary.LittleEndian.PutUint64(out[8:], h.ID)
				binary.LittleEndian.PutUint32(out[16:], uint32(len(out)-wire.HeaderSize))
			}
			return out, true
		}
		cfg := configFake(srv)
		cfg.Timeout = 20 * time.Millisecond
		cfg.DialTimeout = 20 * time.Millisecond
		c, err := client.Dial(inHeap(context.Background()), cfg)
		if err != nil {
			return // the view was the nonsense
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		s, p := rt(c).Only().Current(), rt(c).Only().Begin(ctx)
		switch op % fuzzOps {
		case 0:
			w := read.Query{N: -1}
			err = read.BySend(s, &p, []byte("k"), &w)
		case 1:
			w := read.Query{InfoOnly: true}
			err = read.BySend(s, &p, []byte("k"), &w)
		case 2:
			err = c.Put(ctx, []byte("k"), []byte("v"))
		case 3:
			err = c.Put(ctx, []byte("k"), make([]byte, 20_000))
		case 4:
			_, err = c.Delete(ctx, []byte("k"))
		case 5:
			err = client.FetchPage(ctx, c)
		case 6:
			_, err = admin.Of(c).Stats(ctx)
		case 7:
			err = s.RefreshView(&p)
		case 8:
			_, err = c.Ping(ctx)
		case 9:
			_, err = c.PutWith(ctx, []byte("k"), []byte("v"), client.PutOptions{IfAbsent: true})
		case 10:
			_, err = c.Increment(ctx, []byte("k"), 1)
		case 11:
			err = c.Touch(ctx, []byte("k"), time.Second)
		case 12, 13:
			var b client.Batch
			b.PutWith([]byte("a"), nil, client.PutOptions{IfVersion: 3})
			b.Put([]byte("k"), make([]byte, int(op%fuzzOps-12)*20_000))
			_, err = c.WriteBatch(ctx, &b)
		case 14:
			for _, err = range c.Watch(ctx, []byte("k"), client.WatchOptions{Values: true}) {
				if err != nil {
					break
				}
			}
		}
		if err == nil && !fix && len(bytes) < wire.HeaderSize {
			t.Error("no reply, and yet an answer")
		}
	})
}

// FuzzMemory lets the server's memory hold arbitrary bytes where a get looks:
// it ends with a value that verifies, or it asks.
func FuzzMemory(f *testing.F) {
	f.Add(uint8(0), []byte{})
	for where := range uint8(5) {
		f.Add(where, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3})
		f.Add(where, make([]byte, 300))
	}
	f.Fuzz(func(t *testing.T, where uint8, bytes []byte) {
		srv := clienttest.NewServer(9)
		srv.Change(func(mem []byte) {
			srv.BuildIndex(mem, oldSeg)
			srv.PutItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
			at := []uint64{placeA.Byte(), oldSeg.Byte(), clienttest.SlotAt(oldSeg, fakeKey) - 8, clienttest.DirPlace.Byte(), 4096}[where%5]
			copy(mem[at:at+min(uint64(len(bytes)), 4096)], bytes)
		})
		srv.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypeGet {
				return nil, false
			}
			reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte("one")})
			wire.SetCredits(reply, 1)
			return reply, true
		}
		c := dialFake(t, srv, nil, nil)
		got, err := c.Get(context.Background(), fakeKey)
		if err == nil && string(got) != "one" {
			t.Fatalf("%q", got)
		}
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
	})
}
