package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// What conditional, numeric and timed writes, batches, ranges and watches do on
// a real server.

func TestPutWithConditions(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx, key := t.Context(), []byte("k")
	var refused *client.VersionError
	v1, err := c.PutWith(ctx, key, []byte("1"), client.PutOptions{IfAbsent: true})
	if err != nil || v1 == 0 {
		t.Fatal(v1, err)
	}
	if _, err := c.PutWith(ctx, key, []byte("x"), client.PutOptions{IfAbsent: true}); !errors.Is(err, client.ErrExists) || !errors.As(err, &refused) || refused.Actual != v1 {
		t.Errorf("%v, want ErrExists at version %d", err, v1)
	}
	item, err := c.GetItem(ctx, key)
	if err != nil || string(item.Value) != "1" || item.Version != v1 || !item.Expiry.IsZero() {
		t.Fatalf("%+v %v", item, err)
	}
	v2, err := c.PutWith(ctx, key, []byte("2"), client.PutOptions{IfVersion: v1})
	if err != nil || v2 <= v1 {
		t.Fatal(v2, err)
	}
	if _, err := c.PutWith(ctx, key, []byte("x"), client.PutOptions{IfVersion: v1}); !errors.Is(err, client.ErrVersionMismatch) || !errors.As(err, &refused) || refused.Actual != v2 {
		t.Errorf("%v, want ErrVersionMismatch at version %d", err, v2)
	}
	if _, err := c.PutWith(ctx, []byte("none"), nil, client.PutOptions{IfVersion: v1}); !errors.As(err, &refused) || refused.Actual != 0 {
		t.Error(err)
	}
	if err := c.DeleteIf(ctx, key, v1); !errors.Is(err, client.ErrVersionMismatch) {
		t.Error(err)
	}
	if err := c.DeleteIf(ctx, key, v2); err != nil {
		t.Error(err)
	}
	if err := c.DeleteIf(ctx, key, v2); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	if _, err := c.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

// Of many that put if absent, or on the same version, one wins.
func TestOneOfManyWins(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	for round := range 20 {
		key := fmt.Appendf(nil, "k%d", round)
		var base uint64
		if round%2 == 1 {
			var err error
			if base, err = c.PutWith(t.Context(), key, nil, client.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var wins atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				_, err := c.PutWith(context.Background(), key, []byte{byte(g)}, client.PutOptions{IfAbsent: base == 0, IfVersion: base})
				switch {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, client.ErrExists) && !errors.Is(err, client.ErrVersionMismatch):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Errorf("round %d: %d won", round, wins.Load())
		}
	}
}

func TestIncrement(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx, key := t.Context(), []byte("n")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sums []int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				sum, err := c.Increment(ctx, key, 3)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				sums = append(sums, sum)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(sums)
	for i, sum := range sums {
		if sum != int64(3*(i+1)) {
			t.Fatalf("sum %d is %d", i, sum)
		}
	}
	if got, err := c.Get(ctx, key); err != nil || string(got) != "1200" {
		t.Errorf("%q %v", got, err)
	}
	if sum, err := c.Increment(ctx, key, -1500); err != nil || sum != -300 {
		t.Error(sum, err)
	}
	if _, err := c.Increment(ctx, key, -1<<63); !errors.Is(err, client.ErrNumberRange) {
		t.Error(err)
	}
	if err := c.Put(ctx, key, []byte("1.5")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Increment(ctx, key, 1); !errors.Is(err, client.ErrNotNumber) {
		t.Error(err)
	}
	if got, err := c.Get(ctx, key); err != nil || string(got) != "1.5" {
		t.Errorf("%q %v", got, err)
	}
}

// A key with a TTL is there, and then it is not, and never again: for one-sided
// gets, for gets by SEND and for several clients.
func TestTTLSeenThenUnseen(t *testing.T) {
	n := node.Start(t, nil)
	clients := []*client.Client{dialNode(n, nil), dialNode(n, func(cfg *client.Config) { cfg.CacheEntries = -1 }), dialNode(n, nil)}
	ctx, key := t.Context(), []byte("short")
	const ttl = 1500 * time.Millisecond
	begin := time.Now()
	if _, err := clients[0].PutWith(ctx, key, []byte("v"), client.PutOptions{TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	item, err := clients[0].GetItem(ctx, key)
	switch left := time.Until(item.Expiry); {
	case errors.Is(err, client.ErrNotFound) && time.Since(begin) > ttl: // the machine was away so long
	case err != nil || left > ttl || left < -time.Minute:
		t.Errorf("%+v %v", item, err)
	}
	// gone is set by the goroutine that was told that the key has expired; a get that
	// begins afterwards must not find it.
	var gone atomic.Bool
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for after := 0; after < 200; {
				was := gone.Load()
				var err error
				if i == 2 {
					_, err = func() ([]client.Result, error) {
						r, err := c.MultiGet(ctx, [][]byte{key})
						if err == nil {
							err = r[0].Err
						}
						return r, err
					}()
				} else {
					_, err = c.Get(ctx, key)
				}
				switch {
				case errors.Is(err, client.ErrNotFound):
					gone.Store(true)
					after++
				case err != nil:
					t.Error(err)
					return
				case was:
					t.Error("seen again after it had expired")
					return
				}
			}
		})
	}
	wg.Wait()
	k := clients[0].Counters()
	t.Logf("hits %d, misses %d (expired %d), by SEND %d (expiry %d)", k.OneSidedHits, k.OneSidedMisses, k.ExpiredMisses, k.SendGets, k.Fallbacks.Expiry)
	if err := clients[0].Touch(ctx, key, time.Minute); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("touch of an expired key: %v", err)
	}
	if _, err := clients[0].PutWith(ctx, key, []byte("w"), client.PutOptions{IfAbsent: true}); err != nil {
		t.Errorf("an expired key exists: %v", err)
	}
}

// A large value with a TTL, got by SEND while the server's time is not known yet
// and one-sidedly afterwards: the same item.
func TestLargeWithTTL(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	key, value := []byte("large"), bytes.Repeat([]byte("0123456789"), 30_000)
	version, err := c.PutWith(t.Context(), key, value, client.PutOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	fresh := dialNode(n, nil)
	same := func() {
		t.Helper()
		item, err := fresh.GetItem(t.Context(), key)
		if err != nil || !bytes.Equal(item.Value, value) || item.Version != version || time.Until(item.Expiry) < 50*time.Minute {
			t.Fatalf("%d bytes, version %d, expiry %v, %v", len(item.Value), item.Version, item.Expiry, err)
		}
	}
	same()
	if k := fresh.Counters(); k.SendGets != 1 {
		t.Errorf("%d gets by SEND", k.SendGets)
	}
	clienttest.Eventually(t, "it is got one-sidedly", func() bool { same(); return fresh.Counters().LargeReads > fresh.Counters().SendGets })
	settled(t, fresh)
}

func TestTouch(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx, key := t.Context(), []byte("k")
	v1, err := c.PutWith(ctx, key, []byte("v"), client.PutOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{2 * time.Hour, 0, time.Minute} {
		if err := c.Touch(ctx, key, ttl); err != nil {
			t.Fatal(err)
		}
		item, err := c.GetItem(ctx, key)
		if err != nil || string(item.Value) != "v" || item.Version <= v1 {
			t.Fatalf("%+v %v", item, err)
		}
		if left := time.Until(item.Expiry); ttl == 0 != item.Expiry.IsZero() || ttl != 0 && (left > ttl+time.Minute || left < ttl-time.Minute) {
			t.Errorf("TTL %v: expires in %v", ttl, left)
		}
		v1 = item.Version
	}
}

// A batch is there whole or not at all, small and large.
func TestWriteBatch(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	keys := [][]byte{[]byte("{t}a"), []byte("{t}b"), []byte("{t}c")}
	if err := c.Put(ctx, keys[2], []byte("old")); err != nil {
		t.Fatal(err)
	}
	for round, size := range []int{10, 30_000, 200_000} {
		value := bytes.Repeat([]byte{byte('0' + round)}, size)
		var b client.Batch
		b.Put(keys[0], value)
		b.PutWith(keys[1], value, client.PutOptions{TTL: time.Hour})
		b.Delete(keys[2])
		version, err := c.WriteBatch(ctx, &b)
		if err != nil || version == 0 {
			t.Fatal(version, err)
		}
		for _, key := range keys[:2] {
			if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
				t.Errorf("size %d: %d bytes, %v", size, len(got), err)
			}
		}
		if _, err := c.Get(ctx, keys[2]); !errors.Is(err, client.ErrNotFound) {
			t.Error(err)
		}
		// One condition that does not hold keeps all of it away.
		b.Reset()
		b.Put(keys[2], value)
		b.PutWith(keys[0], nil, client.PutOptions{IfAbsent: true})
		var refused *client.VersionError
		if _, err := c.WriteBatch(ctx, &b); !errors.Is(err, client.ErrExists) || !errors.As(err, &refused) || refused.Part != 1 || refused.Actual == 0 {
			t.Errorf("size %d: %v", size, err)
		}
		if _, err := c.Get(ctx, keys[2]); !errors.Is(err, client.ErrNotFound) {
			t.Error("a refused batch has written")
		}
	}
	settled(t, c)
}

func TestScanRange(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	ctx := t.Context()
	for i := range 100 {
		opts := client.PutOptions{}
		if i%10 == 0 {
			opts.TTL = time.Hour
		}
		if _, err := c.PutWith(ctx, fmt.Appendf(nil, "k%02d", i), []byte("v"), opts); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		opts client.ScanOptions
		from int
		to   int
	}{
		{client.ScanOptions{}, 0, 100},
		{client.ScanOptions{Start: []byte("k10"), End: []byte("k20")}, 10, 20},
		{client.ScanOptions{Start: []byte("k10"), After: []byte("k10")}, 11, 100},
		{client.ScanOptions{Start: []byte("k10"), After: []byte("k05")}, 10, 100},
		{client.ScanOptions{After: []byte("k97")}, 98, 100},
		{client.ScanOptions{Prefix: []byte("k3"), Start: []byte("k35"), KeysOnly: true}, 35, 40},
		{client.ScanOptions{Prefix: []byte("k3"), End: []byte("k32"), Limit: 1}, 30, 31},
		{client.ScanOptions{Start: []byte("k50"), End: []byte("k50")}, 50, 50},
	} {
		var got, want []string
		for e, err := range c.Scan(ctx, tc.opts) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Key))
			if expires := strings.HasSuffix(string(e.Key), "0"); !tc.opts.KeysOnly && (!e.Expiry.IsZero() != expires || string(e.Value) != "v") {
				t.Errorf("%+v", e)
			}
		}
		for i := tc.from; i < tc.to; i++ {
			want = append(want, fmt.Sprintf("k%02d", i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %d keys %v", tc.opts, len(got), got)
		}
	}
	// Where one scan ended another one goes on.
	var all []string
	for after := []byte(nil); ; {
		got := 0
		for e, err := range c.Scan(ctx, client.ScanOptions{After: after, Limit: 7}) {
			if err != nil {
				t.Fatal(err)
			}
			all, after, got = append(all, string(e.Key)), e.Key, got+1
		}
		if got < 7 {
			break
		}
	}
	if len(all) != 100 || !slices.IsSorted(all) {
		t.Errorf("%d keys: %v", len(all), all)
	}
}
