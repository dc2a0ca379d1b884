package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// smallParts has values of more than 200,000 bytes stored in parts of 64 KiB.
func smallParts(cfg *client.Config) { cfg.PartsAbove, cfg.PartBytes = 200_000, layout.MinPartLen }

// noise is n bytes that depend on seed.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	r.Read(b)
	return b
}

// storeStats is what the store says of itself.
func storeStats(t *testing.T, c *client.Client) (s store.Stats) {
	t.Helper()
	all, err := admin.Of(c).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Store *store.Stats }
	doc.Store = &s
	if err := json.Unmarshal(all.Server, &doc); err != nil {
		t.Fatal(err)
	}
	return s
}

// settledParts waits until the store has as many values in parts, and nothing else of any; and
// so many keys in memory.
func settledParts(t *testing.T, c *client.Client, values int, keys uint64) {
	t.Helper()
	poll(t, func() (bool, string) {
		all := storeStats(t, c)
		s := all.Parts
		return s.Values == values && s.Uploads == 0 && s.Dying == 0 &&
			all.Keys <= keys && all.Keys+all.PebbleOnly+all.Slotless >= keys, fmt.Sprintf("%+v, %d keys, %d slots and %d counts of others", s, all.Keys, all.PebbleOnly, all.Slotless)
	})
}

// partKeys are the keys of the parts of a value, and the head.
func partKeys(t *testing.T, c *client.Client, key []byte) (keys [][]byte, head []byte) {
	t.Helper()
	q := read.Query{N: -1}
	err := read.Get(t.Context(), rt(c), "get", key, &q)
	h, bad := layout.ParseHead(q.Head)
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	info := nodeOf(t, c).Server()
	k, _ := layout.NewPartKeys(h.ID, func(part []byte) bool { return cluster.ShardOf(part, info.Shards) == cluster.ShardOf(key, info.Shards) })
	for n := range h.Parts() + 1 {
		keys = append(keys, k.Key(n))
	}
	return keys, q.Head
}

// poll waits for a condition.
func poll(t *testing.T, ok func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		is, state := ok()
		if is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never came to be: %s", state)
		}
	}
}

// TestPartsRoundTrip: values in parts are got as they were put, whole, in ranges and as streams, and
// look to everybody else as one value under one key.
func TestPartsRoundTrip(t *testing.T) {
	n := node.Start(t, func(c *server.Config) { c.WatchBytes = 1 << 20 })
	c := dialNode(n, smallParts)
	ctx := t.Context()
	for _, size := range []int{200_001, 4 * layout.MinPartLen, 4*layout.MinPartLen + 1, 1 << 20} {
		key, want := fmt.Appendf(nil, "film-%d", size), noise(size, uint64(size))
		version, err := c.PutWith(ctx, key, want, client.PutOptions{IfAbsent: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PutWith(ctx, key, want, client.PutOptions{IfAbsent: true}); !errors.Is(err, client.ErrExists) {
			t.Errorf("a second put if absent: %v", err)
		}
		if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d, %v", size, len(got), err)
		}
		if it, err := c.GetItem(ctx, key); err != nil || it.Version != version || !bytes.Equal(it.Value, want) {
			t.Errorf("item: %v, version %d", err, it.Version)
		}
		for range 2 { // the second from a remembered place
			if info, err := c.Stat(ctx, key); err != nil || info.Size != int64(size) || info.Version != version {
				t.Errorf("stat: %+v, %v", info, err)
			}
		}
		for _, r := range [][2]int{{0, 1}, {size - 1, 5}, {layout.MinPartLen - 1, 2}, {layout.MinPartLen, layout.MinPartLen}, {70_000, 130_000}, {0, size}, {size, 1}} {
			got, err := c.GetRange(ctx, key, int64(r[0]), int64(r[1]))
			if err != nil || !bytes.Equal(got, want[r[0]:min(r[0]+r[1], size)]) {
				t.Errorf("range %v: %d bytes, %v", r, len(got), err)
			}
		}
		if _, err := c.GetRange(ctx, key, int64(size)+1, 1); !errors.Is(err, client.ErrRange) {
			t.Errorf("behind the end: %v", err)
		}
		var out bytes.Buffer
		if info, err := c.GetWriter(ctx, key, &out); err != nil || info.Size != int64(size) || info.Version != version || !bytes.Equal(out.Bytes(), want) {
			t.Errorf("stream: %+v, %v, %d bytes", info, err, out.Len())
		}
		if got, err := c.MultiGet(ctx, [][]byte{[]byte("none"), key}); err != nil || !errors.Is(got[0].Err, client.ErrNotFound) || !bytes.Equal(got[1].Value, want) {
			t.Errorf("many: %v", err)
		}
		seen := 0
		for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: key}) {
			if err != nil || !bytes.Equal(e.Key, key) || !bytes.Equal(e.Value, want) || e.Size != int64(size) {
				t.Errorf("scan: %.40q, %d bytes, %v", e.Key, len(e.Value), err)
			}
			seen++
		}
		if seen != 1 {
			t.Errorf("a scan shows %d keys", seen)
		}
		if _, err := c.Increment(ctx, key, 1); !errors.Is(err, client.ErrNotNumber) {
			t.Errorf("increment: %v", err)
		}
	}
	keys := 0
	for e, err := range c.Scan(ctx, client.ScanOptions{KeysOnly: true}) {
		if err != nil || layout.IsPartKey(e.Key) || e.Size < 200_000 {
			t.Errorf("keys: %q, %d bytes, %v", e.Key, e.Size, err)
		}
		keys++
	}
	if keys != 4 {
		t.Errorf("a scan of keys shows %d, want 4", keys)
	}
	settledParts(t, c, 4, 4*2+4+4+5+16)
}

// TestPartsStream: what a reader has is stored, whether its length is known or not, and one that
// fails changes nothing and leaves nothing.
func TestPartsStream(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, smallParts)
	ctx, key := t.Context(), []byte("film")
	for _, size := range []int{0, 10, 200_000, 200_001, 500_000} {
		want := noise(size, 3)
		for _, told := range []int64{int64(size), -1} {
			if _, err := c.PutReader(ctx, key, bytes.NewReader(want), told, client.PutOptions{}); err != nil {
				t.Fatalf("%d of %d bytes: %v", told, size, err)
			}
			var out bytes.Buffer
			if info, err := c.GetWriter(ctx, key, &out); err != nil || !bytes.Equal(out.Bytes(), want) || info.Size != int64(size) {
				t.Errorf("%d of %d bytes: %d, %v", told, size, out.Len(), err)
			}
		}
	}
	last := noise(500_000, 3)
	broken := errors.New("the disk of the reader is broken")
	for _, r := range []struct {
		name string
		from io.Reader
		size int64
		want error
	}{
		{"too short", bytes.NewReader(noise(300_000, 4)), 300_001, io.ErrUnexpectedEOF},
		{"short by a part", bytes.NewReader(noise(4*layout.MinPartLen, 4)), 5 * layout.MinPartLen, io.ErrUnexpectedEOF},
		{"broken", io.MultiReader(bytes.NewReader(noise(300_000, 4)), errReader{broken}), -1, broken},
		{"small and broken", io.MultiReader(bytes.NewReader(noise(3, 4)), errReader{broken}), -1, broken},
		{"too large", bytes.NewReader(nil), client.MaxValue + 1, client.ErrTooLarge},
	} {
		if _, err := c.PutReader(ctx, key, r.from, r.size, client.PutOptions{}); !errors.Is(err, r.want) {
			t.Errorf("%s: %v", r.name, err)
		}
		if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, last) {
			t.Errorf("%s: the value is another: %v", r.name, err)
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestPartsReplaced: while a value is replaced again and again, by others in parts, by small ones and by
// deletes, each get is one of them, whole. In the end nothing is left but the last.
func TestPartsReplaced(t *testing.T) {
	n := node.Start(t, func(c *server.Config) { c.Parts = store.PartsConfig{Keep: 200 * time.Millisecond} })
	c := dialNode(n, smallParts)
	ctx, key := t.Context(), []byte("film")
	var sums sync.Map
	put := func(v []byte) {
		sums.Store(sha256.Sum256(v), true)
		if err := c.Put(ctx, key, v); err != nil {
			t.Error(err)
		}
	}
	put(noise(300_000, 1))
	var stop atomic.Bool
	var gets atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				got, err := c.Get(ctx, key)
				if errors.Is(err, client.ErrNotFound) {
					continue
				}
				if _, ok := sums.Load(sha256.Sum256(got)); err != nil || !ok {
					t.Errorf("%d bytes that nobody has put: %v", len(got), err)
					return
				}
				gets.Add(1)
			}
		})
	}
	for i := range uint64(20) {
		put(noise(300_000+int(i)*1000, i))
		if i%3 == 0 {
			put(noise(100, i))
		}
		if i%5 == 0 {
			if _, err := c.Delete(ctx, key); err != nil {
				t.Error(err)
			}
		}
	}
	put(noise(400_000, 99))
	poll(t, func() (bool, string) { return gets.Load() > 10, "gets" })
	stop.Store(true)
	wg.Wait()
	settledParts(t, c, 1, 9) // the head, the record of its upload, 7 parts
	if _, err := c.Delete(ctx, key); err != nil {
		t.Error(err)
	}
	settledParts(t, c, 0, 0)
}

// TestPartsRestart: values in parts outlive a restart, and so does what is known of them: a later delete
// takes their parts along.
func TestPartsRestart(t *testing.T) {
	n := node.Start(t, func(c *server.Config) {
		c.Parts = store.PartsConfig{Keep: 200 * time.Millisecond} // before the restart the half upload stays
	})
	c := dialNode(n, smallParts)
	ctx, key, want := t.Context(), []byte("film"), noise(1_000_000, 5)
	if err := c.Put(ctx, key, want); err != nil {
		t.Fatal(err)
	}
	// An upload without a head.
	half := errors.New("half")
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		_, err := c.PutReader(ctx, []byte("other"), io.MultiReader(bytes.NewReader(noise(300_000, 6)), blockReader{ctx.Done(), half}), 500_000, client.PutOptions{})
		if err == nil {
			t.Error("half an upload is a value")
		}
	}()
	poll(t, func() (bool, string) { k := storeStats(t, c).Keys; return k == 2+16+1+4, fmt.Sprint(k) })
	n.Stop()
	n.Config.Parts.Idle = 3 * time.Second
	n.Start()
	if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	settledParts(t, c, 1, 18) // the half has made no progress
	if err := c.Put(ctx, key, []byte("small")); err != nil {
		t.Fatal(err)
	}
	settledParts(t, c, 0, 1)
}

type blockReader struct {
	done <-chan struct{}
	err  error
}

func (r blockReader) Read([]byte) (int, error) { <-r.done; return 0, r.err }

// TestPartsCache: in a cache a value in parts is there, or it is not: one that has lost a part is a miss.
func TestPartsCache(t *testing.T) {
	n := node.Start(t, func(c *server.Config) {
		c.Mode, c.MemoryLimit, c.RegionSize, c.IndexRegionSize = store.Cache, 16<<20, 2<<20, 2<<20
		c.Parts = store.PartsConfig{Keep: 200 * time.Millisecond}
	})
	c := dialNode(n, smallParts)
	ctx, want := t.Context(), noise(1<<20, 5)
	stored := 0
	for i := range 40 { // four times what there is room for
		switch err := c.Put(ctx, fmt.Appendf(nil, "film-%d", i), want); {
		case err == nil:
			stored++
		case !errors.Is(err, client.ErrTooLarge):
			t.Fatal(err)
		}
	}
	hits := 0
	t.Logf("%d of 40 are stored", stored)
	for i := range 40 {
		got, err := c.Get(ctx, fmt.Appendf(nil, "film-%d", i))
		switch {
		case errors.Is(err, client.ErrNotFound):
		case err != nil || !bytes.Equal(got, want):
			t.Errorf("value %d: %d bytes, %v", i, len(got), err)
		default:
			hits++
		}
	}
	if hits == 40 {
		t.Error("all of four times the memory is there")
	}
	// The newest is, unless memory was just being made for items of another size.
	poll(t, func() (bool, string) {
		if err := c.Put(ctx, []byte("last"), want); err != nil {
			return false, err.Error()
		}
		got, err := c.Get(ctx, []byte("last"))
		return err == nil && bytes.Equal(got, want), fmt.Sprintf("%d bytes, %v", len(got), err)
	})
}

// TestPartsTenant: a tenant with a prefix puts and gets values in parts below it, and no others.
func TestPartsTenant(t *testing.T) {
	n := node.Start(t, func(c *server.Config) {
		c.Secret = []byte("the secret of the node itself")
		c.Tenants = []server.Tenant{{Name: "desk", Secret: secret.New([]byte("a secret of the desk's")), Prefix: "desk/"}}
	})
	all := dialNode(n, smallParts)
	desk := dialNode(n, func(c *client.Config) {
		smallParts(c)
		c.Tenant, c.Secret = "desk", []byte("a secret of the desk's")
	})
	ctx, want := t.Context(), noise(300_000, 7)
	if err := desk.Put(ctx, []byte("desk/film"), want); err != nil {
		t.Fatal(err)
	}
	if got, err := desk.Get(ctx, []byte("desk/film")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := all.Get(ctx, []byte("desk/film")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("of all: %d bytes, %v", len(got), err)
	}
	if err := all.Put(ctx, []byte("film"), want); err != nil {
		t.Fatal(err)
	}
	if err := desk.Put(ctx, []byte("film"), want); !errors.Is(err, client.ErrDenied) {
		t.Errorf("put of another's key: %v", err)
	}
	its, _ := partKeys(t, all, []byte("desk/film"))
	others, _ := partKeys(t, all, []byte("film"))
	denied, got := 0, 0
	for _, k := range slices.Concat(its[1:], others[1:]) {
		switch _, err := desk.Get(ctx, k); {
		case errors.Is(err, client.ErrDenied):
			denied++
		case err == nil:
			got++
		}
	}
	if denied != 5 || got != 5 {
		t.Errorf("of 10 parts the desk gets %d, and %d are denied: want those of its own", got, denied)
	}
}

// TestPartsAreReserved: no request but those of an upload names the key of a part, and no value passes for
// a head that is none.
func TestPartsAreReserved(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, smallParts)
	ctx, key := t.Context(), []byte("film")
	if err := c.Put(ctx, key, noise(300_000, 7)); err != nil {
		t.Fatal(err)
	}
	keys, head := partKeys(t, c, key)
	forged := layout.AppendHead(nil, layout.Head{ID: layout.UploadID{1}, Shape: layout.Shape{Total: 10, PartLen: layout.MinPartLen}, Sums: []uint64{1}})
	var batch client.Batch
	batch.Put([]byte("b"), head)
	damaged := slices.Clone(head)
	damaged[len(damaged)-1] ^= 1
	large := append(head[:80:80], noise(100_000, 1)...)
	for name, do := range map[string]func(part []byte) error{
		"put":       func(p []byte) error { return c.Put(ctx, p, []byte("x")) },
		"delete":    func(p []byte) error { _, err := c.Delete(ctx, p); return err },
		"increment": func(p []byte) error { _, err := c.Increment(ctx, p, 1); return err },
		"touch":     func(p []byte) error { return c.Touch(ctx, p, time.Second) },
		"batch": func(p []byte) error {
			var b client.Batch
			b.Delete(p)
			_, err := c.WriteBatch(ctx, &b)
			return err
		},
		"forged head":         func([]byte) error { return c.Put(ctx, key, forged) },
		"head of another key": func([]byte) error { return c.Put(ctx, []byte("film2"), head) },
		"damaged head":        func([]byte) error { return c.Put(ctx, key, damaged) },
		"head in a batch":     func([]byte) error { _, err := c.WriteBatch(ctx, &batch); return err },
		"a large one":         func([]byte) error { return c.Put(ctx, key, large) },
	} {
		for _, k := range keys[1:] {
			if err := do(k); !errors.Is(err, client.ErrServer) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, noise(300_000, 7)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := c.Put(ctx, key, head); err != nil {
		t.Errorf("the same head again: %v", err)
	}
}

// TestPartsAreCompared: a part that is another one than the head says is not given to anybody, though it is an item
// like any other and has the length of the part: the head alone knows its sum.
func TestPartsAreCompared(t *testing.T) {
	const text = "ten bytes!"
	for part, want := range map[string]error{text: nil, "ten other.": client.ErrCorrupt, "shorter": client.ErrCorrupt} {
		t.Run(part, func(t *testing.T) {
			head := layout.AppendHead(nil, layout.Head{
				ID: layout.UploadID{1}, Shape: layout.Shape{Total: int64(len(text)), PartLen: layout.MinPartLen}, Sums: []uint64{xxh3.HashString(text)},
			})
			f := clienttest.NewServer(1)
			f.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeSendOnly }
			f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
				if h.Type != wire.TypeGet {
					return nil, false
				}
				m, err := wire.ParseGet(wire.Body(msg))
				if err != nil {
					t.Error(err)
				}
				value := head
				if layout.IsPartKey(m.Key) {
					value = []byte(part)
				}
				out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 1, Value: value})
				wire.SetCredits(out, 1)
				return out, true
			}
			c := dialFake(t, f, nil, nil)
			got, err := c.Get(t.Context(), []byte("film"))
			if !errors.Is(err, want) || err == nil && string(got) != text {
				t.Errorf("Get: %q, %v", got, err)
			}
			var out bytes.Buffer
			_, err = c.GetWriter(t.Context(), []byte("film"), &out)
			if !errors.Is(err, want) || err == nil && out.String() != text || err != nil && out.Len() > 0 {
				t.Errorf("GetWriter: %q, %v", out.String(), err)
			}
		})
	}
}
