package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/store/layout"
)

func TestPutGetDelete(t *testing.T) {
	n := node.Start(t, nil)
	filled(n)
	c := dialNode(n, nil)
	ctx := t.Context()
	key, value := []byte("name"), []byte("value")
	if _, err := c.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("get of an absent key: %v", err)
	}
	if err := c.Put(ctx, key, value); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := c.Get(ctx, key)
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%q %v", got, err)
		}
	}
	if ok, err := c.Exists(ctx, key); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if info, err := c.Stat(ctx, key); err != nil || info.Size != 5 || info.Version == 0 {
		t.Fatal(info, err)
	}
	existed, err := c.Delete(ctx, key)
	if !existed || err != nil {
		t.Fatal(existed, err)
	}
	if existed, err = c.Delete(ctx, key); existed || err != nil {
		t.Fatal(existed, err)
	}
	if _, err := c.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("get of a deleted key: %v", err)
	}
	if ok, err := c.Exists(ctx, key); ok || err != nil {
		t.Fatal(ok, err)
	}
	k := c.Counters()
	if k.OneSidedHits+k.OneSidedMisses+k.SendGets != k.Gets {
		t.Errorf("the ways of gets do not add up: %+v", k)
	}
	if k.OneSidedHits == 0 || k.OneSidedMisses == 0 {
		t.Errorf("no get was one-sided: %+v", k)
	}
}

// Values of every size class boundary and every way to travel, through all
// that can read them.
func TestSizes(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	keys := [][]byte{{0}, []byte("k"), bytes.Repeat([]byte("x"), layout.MaxKeyLen)}
	sizes := []int{0, 1, 7, 8, 9, 255, 256, 257, 4096, 16 << 10, 16<<10 + 200, 65535, 65536, 65537, 65536 + 8, 200_000, 1 << 20, 1<<20 + 1, 3<<20 + 3}
	for _, size := range sizes {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		for i, key := range keys {
			if i > 0 && size > 1<<20 {
				break // one of these is enough
			}
			if err := c.Put(ctx, key, value); err != nil {
				t.Fatalf("put of %d bytes under a key of %d: %v", size, len(key), err)
			}
			got, err := c.Get(ctx, key)
			if err != nil || !bytes.Equal(got, value) {
				t.Fatalf("get of %d bytes under a key of %d: %d bytes, %v", size, len(key), len(got), err)
			}
			if info, err := c.Stat(ctx, key); err != nil || info.Size != int64(size) {
				t.Fatalf("stat of %d bytes: %+v %v", size, info, err)
			}
			for range 3 {
				off := rng.Int64N(int64(size) + 1)
				length := rng.Int64N(int64(size) + 10)
				want := value[off:min(int64(size), off+length)]
				got, err := c.GetRange(ctx, key, off, length)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("range %d+%d of %d bytes: %d bytes, %v", off, length, size, len(got), err)
				}
			}
			if _, err := c.GetRange(ctx, key, int64(size)+1, 1); !errors.Is(err, client.ErrRange) {
				t.Fatalf("range behind the end of %d bytes: %v", size, err)
			}
		}
	}
	if k := c.Counters(); k.SendGets > k.Gets/10 {
		t.Errorf("too many gets by SEND: %+v", k)
	}
}

// The same through the SEND path alone, held places included.
func TestSizesBySend(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	s := rt(c).Only().Current()
	for _, size := range []int{0, 1, 8000, 16 << 10, 20_000, 65536, 65537, 1 << 20, 3<<20 + 5} {
		key := fmt.Appendf(nil, "key-%d", size)
		value := bytes.Repeat([]byte{byte(size), 1, 2, 3, 5, 7, 11}, size/7+1)[:size]
		if err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
		p := rt(c).Only().Begin(ctx)
		w := read.Query{N: -1}
		if err := read.BySend(s, &p, key, &w); err != nil || !bytes.Equal(w.Dst, value) {
			t.Fatalf("%d bytes: %d, %v", size, len(w.Dst), err)
		}
		if size > 10 {
			w = read.Query{Off: int64(size) / 3, N: int64(size) / 2, Dst: []byte("before")}
			exp := "before" + string(value[size/3:size/3+size/2])
			if err := read.BySend(s, &p, key, &w); err != nil || string(w.Dst) != exp {
				t.Fatalf("part of %d bytes: %d, %v", size, len(w.Dst), err)
			}
		}
		w = read.Query{InfoOnly: true}
		if err := read.BySend(s, &p, key, &w); err != nil || w.Info.Size != int64(size) {
			t.Fatalf("info of %d bytes: %+v, %v", size, w.Info, err)
		}
	}
	p := rt(c).Only().Begin(ctx)
	for _, w := range []read.Query{{N: -1}, {InfoOnly: true}} {
		if err := read.BySend(s, &p, []byte("absent"), &w); !errors.Is(err, client.ErrNotFound) {
			t.Fatalf("absent key: %v", err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	long := make([]byte, layout.MaxKeyLen+1)
	for _, tc := range []struct {
		name string
		err  error
		want error
	}{
		{"get, empty key", second(c.Get(ctx, nil)), client.ErrKeyEmpty},
		{"get, long key", second(c.Get(ctx, long)), client.ErrKeyTooLarge},
		{"put, empty key", c.Put(ctx, nil, nil), client.ErrKeyEmpty},
		{"put, long key", c.Put(ctx, long, nil), client.ErrKeyTooLarge},
		{"put, large value without waiting", second(c.PutAsync(ctx, []byte("k"), make([]byte, layout.MaxValueLen+1))), client.ErrTooLarge},
		{"put, larger than any", second(c.PutReader(ctx, []byte("k"), nil, client.MaxValue+1, client.PutOptions{})), client.ErrTooLarge},
		{"put of a reader, long key", second(c.PutReader(ctx, long, bytes.NewReader(nil), 0, client.PutOptions{})), client.ErrKeyTooLarge},
		{"delete, empty key", second(c.Delete(ctx, nil)), client.ErrKeyEmpty},
		{"exists, long key", second(c.Exists(ctx, long)), client.ErrKeyTooLarge},
		{"range, negative offset", second(c.GetRange(ctx, []byte("k"), -1, 1)), client.ErrRange},
		{"range, negative length", second(c.GetRange(ctx, []byte("k"), 0, -1)), client.ErrRange},
		{"region that does not exist", nodeOf(t, c).ReadRegion(ctx, 999, 0, make([]byte, 8)), client.ErrRange},
		{"region, odd length", nodeOf(t, c).ReadRegion(ctx, 0, 0, make([]byte, 7)), client.ErrRange},
		{"region, behind its end", nodeOf(t, c).ReadRegion(ctx, 0, 1<<40, make([]byte, 8)), client.ErrRange},
	} {
		var e *client.Error
		if !errors.Is(tc.err, tc.want) || !errors.As(tc.err, &e) || e.Op == "" {
			t.Errorf("%s: %v", tc.name, tc.err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestScan(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	want := map[string]string{}
	var pairs []client.Pair
	for i := range 2500 {
		k, v := fmt.Sprintf("a:%05d", i), fmt.Sprint(i)
		want[k] = v
		pairs = append(pairs, client.Pair{Key: []byte(k), Value: []byte(v)})
	}
	pairs = append(pairs, client.Pair{Key: []byte("b:large"), Value: bytes.Repeat([]byte("L"), 300_000)}, client.Pair{Key: []byte("b:empty")})
	if err := c.MultiPut(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	last, count := "", 0
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("a:")}) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Key) <= last || want[string(e.Key)] != string(e.Value) || e.Size != int64(len(e.Value)) {
			t.Fatalf("entry %+v behind %q", e, last)
		}
		last = string(e.Key)
		count++
	}
	if count != 2500 {
		t.Errorf("%d keys of 2500", count)
	}
	var keys []string
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("b:")}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf("%s=%d", e.Key, len(e.Value)))
	}
	if fmt.Sprint(keys) != "[b:empty=0 b:large=300000]" {
		t.Errorf("%v", keys)
	}
	count = 0
	for e, err := range c.Scan(ctx, client.ScanOptions{After: []byte("a:01000"), Limit: 1200, KeysOnly: true}) {
		if err != nil || e.Value != nil {
			t.Fatal(e, err)
		}
		count++
	}
	if count != 1200 {
		t.Errorf("%d keys of 1200", count)
	}
	for range c.Scan(ctx, client.ScanOptions{}) {
		break // leaving early leaks nothing
	}
	for _, err := range c.Scan(ctx, client.ScanOptions{Prefix: make([]byte, 5000)}) {
		if !errors.Is(err, client.ErrKeyTooLarge) {
			t.Error(err)
		}
	}
}

func TestMulti(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	const keys = 1000
	var pairs []client.Pair
	for i := range keys {
		size := i % 300
		if i%97 == 0 {
			size = 70_000 // large: one by one
		}
		pairs = append(pairs, client.Pair{Key: fmt.Appendf(nil, "key-%d", i), Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	if err := c.MultiPut(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	var ask [][]byte
	for i := range keys {
		ask = append(ask, pairs[i].Key, fmt.Appendf(nil, "absent-%d", i))
	}
	for range 2 {
		results, err := c.MultiGet(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			if r := results[2*i]; r.Err != nil || !bytes.Equal(r.Value, pairs[i].Value) {
				t.Fatalf("key %d: %d bytes, %v", i, len(r.Value), r.Err)
			}
			if r := results[2*i+1]; !errors.Is(r.Err, client.ErrNotFound) {
				t.Fatalf("absent key %d: %v", i, r.Err)
			}
		}
	}
	k := c.Counters()
	if k.ReadBatches*10 > k.Reads {
		t.Errorf("%d READs in %d batches: the keys did not share doorbells", k.Reads, k.ReadBatches)
	}
	// Bad keys do not disturb the others.
	results, err := c.MultiGet(ctx, [][]byte{nil, pairs[1].Key, make([]byte, layout.MaxKeyLen+1)})
	var part *client.PartialError
	if !errors.As(err, &part) || len(part.Failures) != 2 || !errors.Is(err, client.ErrKeyEmpty) || !errors.Is(results[2].Err, client.ErrKeyTooLarge) || results[1].Err != nil {
		t.Errorf("%v %+v", err, results)
	}
	err = c.MultiPut(ctx, []client.Pair{{}, {Key: []byte("good"), Value: []byte("1")}, {Key: []byte("big"), Value: make([]byte, layout.MaxValueLen+1)}})
	if !errors.As(err, &part) || part.Total != 3 || len(part.Failures) != 2 || part.Failures[0].Index != 0 || part.Failures[1].Index != 2 || !errors.Is(err, client.ErrTooLarge) || !errors.Is(err, client.ErrKeyEmpty) {
		t.Errorf("%v", err)
	}
	if results, err := c.MultiGet(ctx, nil); err != nil || len(results) != 0 {
		t.Error(results, err)
	}
}

func TestPingStatsInspect(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	if d, err := c.Ping(ctx); err != nil || d <= 0 {
		t.Fatal(d, err)
	}
	if err := c.Put(ctx, []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	stats, err := admin.Of(c).Stats(ctx)
	if err != nil || stats.Client.Puts != 1 || len(stats.Server) < 2 || stats.Server[0] != '{' {
		t.Fatalf("%+v %v", stats, err)
	}
	v, err := nodeOf(t, c).View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Regions {
		page := make([]byte, layout.PageSize)
		if err := nodeOf(t, c).ReadRegion(ctx, r.ID, 0, page); err != nil {
			t.Fatal(err)
		}
		h, err := layout.ParseRegionHeader(page)
		if err != nil || h.Region != r || h.Incarnation != v.Incarnation {
			t.Fatalf("region %d: %+v %v", r.ID, h, err)
		}
	}
	big := make([]byte, 2<<20)
	if err := nodeOf(t, c).ReadRegion(ctx, 0, 0, big); err != nil {
		t.Fatal(err)
	}
	info := admin.Of(c).Server()
	if info.Address != n.Addr || info.Shards != 4 || info.MaxValue == 0 || info.Incarnation != v.Incarnation || info.ID == "" {
		t.Errorf("%+v", info)
	}
}
