package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

var keysFlag = flag.Int("keys", 2_000_000, "keys of TestTwoMillionKeys")

const (
	manyClients = 8
	// A put batch and the reads that follow it.
	manyBatch = 500
	manyReads = 60
	// What one key may cost beside its 16 + 100 bytes, at two million.
	manyKeySize, manyValueSize = 16, 100
	manyOverhead               = 48.0
)

// A crowd is the clients of TestTwoMillionKeys and what each has done so far:
// client w owns the keys w*per to (w+1)*per, writes them in order, and rewrites
// some. Others read them meanwhile.
type crowd struct {
	per  int
	seed uint64
	// done[w] is how many keys client w has stored; version[key] is the newest
	// version of a key that was acknowledged, and is written before a rewrite
	// is started in its pending form.
	done    [manyClients]atomic.Int64
	version []atomic.Uint32

	puts, gets, absent, rewrites atomic.Int64
}

// manyKey is key i: 16 bytes.
func manyKey(dst []byte, i int) []byte { return fmt.Appendf(dst[:0], "key-%012d", i) }

// absentKey is a key that is never stored, of the same size.
func absentKey(dst []byte, i int) []byte { return fmt.Appendf(dst[:0], "no--%012d", i) }

// TestTwoMillionKeys lets the index grow from empty to two million keys while
// eight clients write and read. Every get says what it must: a stored key is
// found with its own value, not older than the last acknowledged; a key that
// was never stored is absent. At the end every key is read once more, and the
// memory per key is what was promised.
func TestTwoMillionKeys(t *testing.T) {
	keys := *keysFlag
	if testing.Short() {
		keys = min(keys, 100_000)
	}
	keys -= keys % (manyClients * manyBatch)
	t.Logf("%d keys, seed %d", keys, *seedFlag)
	// Not synced: this is about the index, and the kill test is about syncs.
	n := startNode(t, t.TempDir(), "--sync", "off", "--memory-limit", "1GiB")
	cr := &crowd{per: keys / manyClients, seed: *seedFlag, version: make([]atomic.Uint32, keys)}
	clients := make([]*client.Client, manyClients)
	for w := range clients {
		clients[w] = dial(t, n)
	}
	run := func(what string, f func(w int) error) {
		start := time.Now()
		var wg sync.WaitGroup
		for w := range clients {
			wg.Go(func() {
				if err := f(w); err != nil {
					t.Errorf("client %d: %v", w, err)
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
		if t.Failed() {
			t.FailNow()
		}
	}
	run("grow", func(w int) error { return cr.grow(t, clients[w], w) })
	run("read all", func(w int) error { return cr.readAll(t, clients[w], (w+1)%manyClients) })
	t.Logf("%d puts (%d of them rewrites), %d gets of keys that are there, %d of keys that are not",
		cr.puts.Load(), cr.rewrites.Load(), cr.gets.Load(), cr.absent.Load())
	var sum client.Counters
	for _, c := range clients {
		k := c.Counters()
		sum.Gets += k.Gets
		sum.Reads += k.Reads
		sum.SendGets += k.SendGets
		sum.Retries.Misfit += k.Retries.Misfit
		sum.Retries.Marked += k.Retries.Marked
		sum.Retries.Torn += k.Retries.Torn
	}
	t.Logf("READs per get %.2f, %d of %d gets by SEND; retries: %d misfit, %d marked, %d torn",
		float64(sum.Reads)/float64(sum.Gets), sum.SendGets, sum.Gets, sum.Retries.Misfit, sum.Retries.Marked, sum.Retries.Torn)
	if sum.SendGets > sum.Gets/100 {
		t.Errorf("%d of %d gets went by SEND", sum.SendGets, sum.Gets)
	}
	checkMemory(t, clients[0], keys)
}

// grow stores the client's keys, batch by batch, and reads between batches.
func (cr *crowd) grow(t *testing.T, c *client.Client, w int) error {
	rnd := rand.New(rand.NewPCG(cr.seed, uint64(w)))
	pairs := make([]client.Pair, manyBatch)
	base := w * cr.per
	for from := 0; from < cr.per; from += manyBatch {
		for i := range pairs {
			k := base + from + i
			pairs[i].Key = manyKey(pairs[i].Key, k)
			pairs[i].Value = appendRecord(pairs[i].Value[:0], pairs[i].Key, 1, manyValueSize)
		}
		if err := c.MultiPut(t.Context(), pairs); err != nil {
			return err
		}
		for i := range pairs {
			cr.version[base+from+i].Store(1)
		}
		cr.done[w].Store(int64(from + manyBatch))
		cr.puts.Add(manyBatch)
		for range manyReads {
			if err := cr.readOne(t, c, rnd); err != nil {
				return err
			}
		}
		// Rewrite a few of one's own, which must not be seen to go back.
		for range 10 {
			k := base + rnd.IntN(from+manyBatch)
			key := manyKey(nil, k)
			next := cr.version[k].Load() + 1
			if err := c.Put(t.Context(), key, appendRecord(nil, key, uint64(next), manyValueSize)); err != nil {
				return err
			}
			cr.version[k].Store(next)
			cr.puts.Add(1)
			cr.rewrites.Add(1)
		}
	}
	return nil
}

// readOne reads a key that some client has stored, or one that none has.
func (cr *crowd) readOne(t *testing.T, c *client.Client, rnd *rand.Rand) error {
	var buf [32]byte
	w := rnd.IntN(manyClients)
	done := int(cr.done[w].Load())
	if done == 0 || rnd.IntN(5) == 0 {
		cr.absent.Add(1)
		key := absentKey(buf[:], rnd.IntN(len(cr.version)))
		if v, err := c.Get(t.Context(), key); !errors.Is(err, client.ErrNotFound) {
			return fmt.Errorf("get of %q, which nobody stored: %q, %v", key, v, err)
		}
		return nil
	}
	k := w*cr.per + rnd.IntN(done)
	floor := cr.version[k].Load() // acknowledged before this get begins
	key := manyKey(buf[:], k)
	value, err := c.Get(t.Context(), key)
	if err != nil {
		return fmt.Errorf("get of %q, which was acknowledged with version %d: %w", key, floor, err)
	}
	cr.gets.Add(1)
	return checkVersion(key, value, floor)
}

func checkVersion(key, value []byte, floor uint32) error {
	seq, err := parseRecord(key, value)
	if err == nil && seq < uint64(floor) {
		err = fmt.Errorf("get of %q: version %d, acknowledged was %d", key, seq, floor)
	}
	return err
}

// readAll reads every key that client w has stored.
func (cr *crowd) readAll(t *testing.T, c *client.Client, w int) error {
	keys := make([][]byte, manyBatch)
	for from := w * cr.per; from < (w+1)*cr.per; from += manyBatch {
		for i := range keys {
			keys[i] = manyKey(keys[i], from+i)
		}
		results, err := c.MultiGet(t.Context(), keys)
		if err != nil {
			return err
		}
		for i, r := range results {
			if r.Err != nil {
				return fmt.Errorf("get of %q: %w", keys[i], r.Err)
			}
			if err := checkVersion(keys[i], r.Value, cr.version[from+i].Load()); err != nil {
				return err
			}
		}
		cr.gets.Add(manyBatch)
	}
	return nil
}

// checkMemory reports the memory per key over the payload: slab pages and index
// segments in use, retired ones included, free pages not.
func checkMemory(t *testing.T, c *client.Client, keys int) {
	t.Helper()
	st, err := admin.Of(c).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var server struct {
		Store struct {
			Keys         uint64 `json:"keys"`
			Slotless     uint64 `json:"slotless"`
			MemoryUsed   uint64 `json:"memory_used"`
			ItemBytes    uint64 `json:"item_bytes"`
			IndexBytes   uint64 `json:"index_bytes"`
			RetiredBytes uint64 `json:"retired_bytes"`
		}
	}
	if err := json.Unmarshal(st.Server, &server); err != nil {
		t.Fatal(err)
	}
	s := server.Store
	if s.Keys != uint64(keys) || s.MemoryUsed == 0 {
		t.Fatalf("the server counts %d keys in %d bytes, stored were %d", s.Keys, s.MemoryUsed, keys)
	}
	per := func(b uint64) float64 { return float64(b) / float64(keys) }
	over := per(s.MemoryUsed) - manyKeySize - manyValueSize
	t.Logf("memory per key: %.1f B, of which over the payload of %d B: %.1f B (items %.1f, index %.1f, retired %.1f); %d keys without slot",
		per(s.MemoryUsed), manyKeySize+manyValueSize, over, per(s.ItemBytes), per(s.IndexBytes), per(s.RetiredBytes), s.Slotless)
	if keys >= 2_000_000-manyClients*manyBatch && over > manyOverhead {
		t.Errorf("a key costs %.1f B over its payload, at most %.0f were promised", over, manyOverhead)
	}
}
