package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

var fullFlag = flag.Int("full", 2, "how many times the memory of TestFullMemory the small values are; 8 takes minutes")

// fullValue is one kind of value, of a size and so many.
type fullValue struct {
	size  int // of the record; a key beside it has 16 bytes
	count int
}

// TestFullMemory stores several times as much as fits into the server's memory (of
// small values the index alone, and the heads of items, are as much again), reads while it writes, rewrites and deletes, and then asks for every key: by
// gets, by one call for many, by a scan and by kvclient. Every answer is right,
// and the memory stays within its limit.
func TestFullMemory(t *testing.T) {
	const limit = 8 << 20
	kinds := []fullValue{{1024, 8 * limit / 1040}, {64, *fullFlag * limit / 80}}
	if testing.Short() {
		kinds = []fullValue{{1024, 2 * limit / 1040}, {64, limit / 80}}
	}
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%dB", k.size), func(t *testing.T) {
			n := startNode(t, t.TempDir(), "--sync", "off",
				"--memory-limit", fmt.Sprintf("%dB", limit), "--expert-region-size", "2MiB", "--expert-index-region-size", "2MiB")
			f := &full{t: t, kind: k, seq: make([]atomic.Uint64, k.count)}
			var wg sync.WaitGroup
			for w := range fullWorkers {
				c := dial(t, n)
				wg.Go(func() {
					if err := f.work(t.Context(), c, w); err != nil {
						t.Errorf("seed %d, worker %d: %v", *seedFlag, w, err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				t.FailNow()
			}
			c := dial(t, n)
			before := c.Counters()
			f.readAll(c)
			after := c.Counters()
			f.scanAll(c)
			f.kvclient(n.Data)
			checkLimit(t, c, limit, after.OneSidedHits-before.OneSidedHits, after.SendGets-before.SendGets)
		})
	}
}

// fullWorkers write a share of the keys each and read those of all.
const fullWorkers = 4

// A full is the keys of the test. seq is the sequence number of a key's value,
// doubled, and odd once the key is deleted; its worker alone changes it, after
// the server has acknowledged.
type full struct {
	t    *testing.T
	kind fullValue
	seq  []atomic.Uint64
}

func fullKey(i int) []byte { return fmt.Appendf(nil, "full-%011d", i) }

func (f *full) work(ctx context.Context, c *client.Client, w int) error {
	rng := rand.New(rand.NewPCG(*seedFlag, uint64(w)))
	const batch = 32
	from, to := w*len(f.seq)/fullWorkers, (w+1)*len(f.seq)/fullWorkers
	for next := from; next < to; next += batch {
		pairs := make([]client.Pair, min(batch, to-next))
		for i := range pairs {
			key := fullKey(next + i)
			pairs[i] = client.Pair{Key: key, Value: appendRecord(nil, key, 2, f.kind.size)}
		}
		if err := c.MultiPut(ctx, pairs); err != nil {
			return err
		}
		for i := range pairs {
			f.seq[next+i].Store(2)
		}
		// Of one's own: one is written again, one deleted.
		for n := range 2 {
			i := from + rng.IntN(next+len(pairs)-from)
			key, seq := fullKey(i), f.seq[i].Load()&^1+2
			var err error
			if n == 0 {
				err = c.Put(ctx, key, appendRecord(nil, key, seq, f.kind.size))
			} else {
				seq++
				_, err = c.Delete(ctx, key)
			}
			if err != nil {
				return err
			}
			f.seq[i].Store(seq)
		}
		// Of one's own too, so that it is known what they are: old and new ones.
		for range 8 {
			if err := f.check(ctx, c, from+rng.IntN(next+len(pairs)-from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// check gets a key that no client is changing.
func (f *full) check(ctx context.Context, c *client.Client, i int) error {
	value, err := c.Get(ctx, fullKey(i))
	return f.judge(i, value, err)
}

// judge: the answer for key i is the right one.
func (f *full) judge(i int, value []byte, err error) error {
	key, want := fullKey(i), f.seq[i].Load()
	switch {
	case errors.Is(err, client.ErrNotFound) && want&1 == 1:
		return nil
	case err != nil:
		return fmt.Errorf("key %q, whose value has number %d: %w", key, want, err)
	case want&1 == 1:
		return fmt.Errorf("key %q was deleted, and has %d bytes", key, len(value))
	}
	if got, err := parseRecord(key, value); err != nil || got != want {
		return fmt.Errorf("key %q: number %d, want %d, %w", key, got, want, err)
	}
	return nil
}

// readAll gets every key, one by one and many in a call.
func (f *full) readAll(c *client.Client) {
	f.t.Helper()
	var keys [][]byte
	first := 0
	for i := range f.seq {
		if i%2 == 0 && len(keys) == 0 {
			if err := f.check(f.t.Context(), c, i); err != nil {
				f.t.Fatal(err)
			}
		}
		if keys = append(keys, fullKey(i)); len(keys) < 64 && i < len(f.seq)-1 {
			continue
		}
		results, err := c.MultiGet(f.t.Context(), keys)
		if err != nil {
			f.t.Fatal(err)
		}
		for j, r := range results {
			if err := f.judge(first+j, r.Value, r.Err); err != nil {
				f.t.Fatal(err)
			}
		}
		keys, first = keys[:0], i+1
	}
}

// scanAll: a scan shows every key that is there, once, and no other.
func (f *full) scanAll(c *client.Client) {
	f.t.Helper()
	next := 0
	for e, err := range c.Scan(f.t.Context(), client.ScanOptions{Prefix: []byte("full-")}) {
		if err != nil {
			f.t.Fatal(err)
		}
		for next < len(f.seq) && string(fullKey(next)) != string(e.Key) {
			if f.seq[next].Load()&1 == 0 {
				f.t.Fatalf("the scan left out key %q and goes on with %q", fullKey(next), e.Key)
			}
			next++
		}
		if next == len(f.seq) {
			f.t.Fatalf("the scan shows key %q", e.Key)
		}
		if err := f.judge(next, e.Value, nil); err != nil {
			f.t.Fatal(err)
		}
		next++
	}
	for ; next < len(f.seq); next++ {
		if f.seq[next].Load()&1 == 0 {
			f.t.Fatalf("the scan ends before key %q", fullKey(next))
		}
	}
}

// kvclient: the program exports the same keys and values, and gets some of them.
func (f *full) kvclient(addr string) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "export.jsonl")
	server := []string{"RDMAKV_SERVERS=" + addr}
	if r := runProgram(f.t, nil, server, "kvclient", "export", "--format", "jsonl", file); r.code != 0 {
		f.t.Fatalf("export: exit code %d: %s", r.code, r.stderr)
	}
	seen := 0
	eachLine(f.t, file, func(line []byte) {
		var rec struct {
			Key   string `json:"key"`
			Value string `json:"value_b64"`
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			f.t.Fatalf("%.80q: %v", line, err)
		}
		var i int
		if _, err := fmt.Sscanf(rec.Key, "full-%d", &i); err != nil || i < 0 || i >= len(f.seq) {
			f.t.Fatalf("the export has key %q", rec.Key)
		}
		value, err := base64.StdEncoding.DecodeString(rec.Value)
		if err := f.judge(i, value, err); err != nil {
			f.t.Fatal(err)
		}
		seen++
	})
	there := 0
	for i := range f.seq {
		if f.seq[i].Load()&1 == 0 {
			there++
		}
	}
	if seen != there {
		f.t.Errorf("the export has %d keys, there are %d", seen, there)
	}
	rng := rand.New(rand.NewPCG(*seedFlag, 99))
	for range 20 {
		i := rng.IntN(len(f.seq))
		r := runProgram(f.t, nil, server, "kvclient", "get", string(fullKey(i)))
		var err error
		if r.code != 0 {
			err = client.ErrNotFound
			if !strings.Contains(r.stderr, "not found") {
				f.t.Fatalf("get: exit code %d: %s", r.code, r.stderr)
			}
		}
		if err := f.judge(i, []byte(r.stdout), err); err != nil {
			f.t.Fatalf("kvclient get: %v", err)
		}
	}
}

// checkLimit: the server has evicted, and has not more memory than it may.
func checkLimit(t *testing.T, c *client.Client, limit int, oneSided, sends uint64) {
	t.Helper()
	st, err := admin.Of(c).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var server struct {
		Store struct {
			Keys         uint64 `json:"keys"`
			PebbleOnly   uint64 `json:"pebble_only"`
			Slotless     uint64 `json:"slotless"`
			Evicted      uint64 `json:"evicted"`
			Promoted     uint64 `json:"promoted"`
			SlotsDropped uint64 `json:"slots_dropped"`
			RegionBytes  uint64 `json:"region_bytes"`
			MemoryUsed   uint64 `json:"memory_used"`
		}
	}
	if err := json.Unmarshal(st.Server, &server); err != nil {
		t.Fatal(err)
	}
	s := server.Store
	t.Logf("%+v; of the last reads %d hits one-sided, %d by SEND", s, oneSided, sends)
	if float64(s.RegionBytes) > 1.02*float64(limit) {
		t.Errorf("%d bytes are registered, the limit is %d", s.RegionBytes, limit)
	}
	if s.Evicted == 0 || s.RegionBytes == 0 {
		t.Error("nothing was evicted: the memory was never full")
	}
	if oneSided == 0 || sends == 0 {
		t.Error("with a part of the keys in memory, some gets are one-sided and some are not")
	}
}

// eachLine calls f for each line of a file.
func eachLine(t *testing.T, path string, f func(line []byte)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}
