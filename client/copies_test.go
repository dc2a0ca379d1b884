package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// multiGet gets keys by one call, and holds each answer against that of a Get.
func multiGet(t *testing.T, c *client.Client, keys [][]byte, again ...client.Result) []client.Result {
	t.Helper()
	results, err := c.MultiGet(t.Context(), keys, client.ReadInto(again))
	if err != nil || len(results) != len(keys) {
		t.Fatalf("%d results of %d keys, %v", len(results), len(keys), err)
	}
	for i, key := range keys {
		want, err := c.Get(t.Context(), key)
		r := results[i]
		if !bytes.Equal(r.Value, want) || errors.Is(err, client.ErrNotFound) != errors.Is(r.Err, client.ErrNotFound) || err == nil && (r.Err != nil || r.Value == nil) {
			t.Fatalf("%q: MultiGet says %d bytes, %v; Get %d bytes, %v", key, len(r.Value), r.Err, len(want), err)
		}
	}
	return results
}

// Many keys whose READs are copies are answered as single gets are, of every size, there or not, with an expiry
// or deleted, and into the results of the call before.
func TestMultiGetOfMappedMemory(t *testing.T) {
	n, f := node.StartMapped(t, longLease)
	c := dialMapped(n, f, nil)
	ctx := t.Context()
	var keys [][]byte
	for i := range 200 {
		key := fmt.Appendf(nil, "key %d", i)
		keys = append(keys, key)
		size := i % 70
		switch i % 50 {
		case 10:
			continue // there is none
		case 11:
			size = 0
		case 12:
			size = 3000
		case 13:
			size = 60 << 10 // more than one call copies together
		case 14:
			size = 200 << 10 // in chunks
		}
		value := bytes.Repeat([]byte{byte(i)}, size)
		if _, err := c.PutWith(ctx, key, value, client.PutOptions{TTL: time.Duration(i%20/19) * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	results := multiGet(t, c, keys) // no place is known
	before := c.Counters()
	results, err := c.MultiGet(ctx, keys, client.ReadInto(results))
	if err != nil {
		t.Fatal(err)
	}
	after := c.Counters()
	if got := after.OneReadHits - before.OneReadHits; got < 160 || after.Gets-before.Gets != 200 {
		t.Errorf("%d of 200 keys by one READ, %d gets: %+v", got, after.Gets-before.Gets, after)
	}
	for i := range 30 {
		if _, err := c.Delete(ctx, keys[i*3]); err != nil {
			t.Fatal(err)
		}
		if err := c.Put(ctx, keys[i*3+1], []byte("another value")); err != nil {
			t.Fatal(err)
		}
	}
	results = multiGet(t, c, keys, results...)
	multiGet(t, c, keys[50:150], results...)
	multiGet(t, c, append(keys, keys...), results[:40]...)
	if results, err := c.MultiGet(ctx, [][]byte{nil, keys[1]}); err == nil || !errors.Is(results[0].Err, client.ErrKeyEmpty) || results[1].Err != nil {
		t.Errorf("a key that is empty: %v, %+v", err, results)
	}
}

// What the caller has handed in belongs to the answer as far as it was handed in, and no further.
func TestMultiGetKeepsToItsResults(t *testing.T) {
	n, f := node.StartMapped(t, longLease)
	c := dialMapped(n, f, nil)
	var keys [][]byte
	for i := range 8 {
		keys = append(keys, fmt.Appendf(nil, "key %d", i))
		if err := c.Put(t.Context(), keys[i], bytes.Repeat([]byte{byte('a' + i)}, 20+i)); err != nil {
			t.Fatal(err)
		}
	}
	first := multiGet(t, c, keys)
	mine := bytes.Clone(first[5].Value)
	second := multiGet(t, c, [][]byte{keys[7], keys[6], keys[7], keys[6], keys[7], keys[6]}, first[:2]...)
	for i := 2; i < 8; i++ {
		if want := bytes.Repeat([]byte{byte('a' + i)}, 20+i); !bytes.Equal(first[i].Value, want) {
			t.Errorf("result %d, which was not handed in, is %q now", i, first[i].Value)
		}
	}
	if !bytes.Equal(first[5].Value, mine) || len(second) != 6 {
		t.Error(second)
	}
	for i := range second { // no value lies in another one's memory
		clear(second[i].Value[:cap(second[i].Value)])
		for j := i + 1; j < len(second); j++ {
			if second[j].Value[0] == 0 {
				t.Fatalf("values %d and %d share memory", i, j)
			}
		}
	}
}

// Many keys at a time while they are written: each value is whole, and of its key.
func TestMultiGetBesidePuts(t *testing.T) {
	n, f := node.StartMapped(t, nil)
	c := dialMapped(n, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	value := func(key []byte, i int) []byte { return bytes.Repeat(key, 1+i%40) }
	var keys [][]byte
	for i := range 20 {
		keys = append(keys, fmt.Appendf(nil, "key%02d", i))
		if err := c.Put(ctx, keys[i], value(keys[i], i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 400 {
			if err := c.Put(ctx, keys[i%20], value(keys[i%20], i)); err != nil {
				t.Error(err)
			}
		}
		cancel()
	})
	for range 3 {
		wg.Go(func() {
			var results []client.Result
			for ctx.Err() == nil {
				var err error
				if results, err = c.MultiGet(ctx, keys, client.ReadInto(results)); ctx.Err() != nil {
					return
				}
				for i, r := range results {
					if err != nil || len(r.Value) == 0 || len(bytes.ReplaceAll(r.Value, keys[i], nil)) != 0 {
						t.Errorf("%q of %q, %v", r.Value, keys[i], err)
						return
					}
				}
				time.Sleep(50 * time.Microsecond) // leave the processor to the puts
			}
		})
	}
	wg.Wait()
}
