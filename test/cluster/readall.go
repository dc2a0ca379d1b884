package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// A Record is a key and its value, as kvclient imports them.
type Record struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ReadRecords reads what WriteRecords wrote.
func ReadRecords(r io.Reader) (all []Record, err error) {
	for dec := json.NewDecoder(r); ; {
		var rec Record
		if err := dec.Decode(&rec); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, rec)
	}
}

// WriteRecords writes records in the form that kvclient imports.
func WriteRecords(w io.Writer, records []Record) error {
	enc := json.NewEncoder(w)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// ErrStarved: some gets were asked for by SEND, and rightly, because the client was
// not given the processor for a whole lease.
var ErrStarved = errors.New("the client has had no lease")

// ReadAll gets every record, and compares. Every get must be READs alone, and each
// node be asked for its own keys and no others. It returns a table of which node
// was asked for what.
func (c *Conn) ReadAll(ctx context.Context, records []Record) (string, error) {
	owned, before := map[string]uint64{}, map[string]client.Counters{}
	for _, id := range c.IDs() {
		owned[id], before[id] = 0, c.At(id)
	}
	for _, r := range records {
		owned[c.Owner([]byte(r.Key))]++
	}
	start := time.Now()
	for part := range slices.Chunk(records, 1000) {
		keys := make([][]byte, len(part))
		for i, r := range part {
			keys[i] = []byte(r.Key)
		}
		results, err := c.MultiGet(ctx, keys)
		if err != nil {
			return "", err
		}
		for i, r := range results {
			if string(r.Value) != part[i].Value || r.Err != nil {
				return "", fmt.Errorf("key %q is %.100q, %v, want %.100q", part[i].Key, r.Value, r.Err, part[i].Value)
			}
		}
	}
	took := time.Since(start)
	var errs []error
	var table strings.Builder
	fmt.Fprintf(&table, "%d gets in %v:", len(records), took.Round(time.Millisecond))
	for _, id := range slices.Sorted(maps.Keys(owned)) {
		was, now := before[id], c.At(id)
		hits, sends, reads := now.OneSidedHits-was.OneSidedHits, now.SendGets-was.SendGets, now.Reads-was.Reads
		if hits != owned[id] || sends != 0 {
			err := fmt.Errorf("%d keys were READ from node %s and %d asked for by SEND, it owns %d: %+v", hits, id, sends, owned[id], now.Fallbacks)
			if hits+sends == owned[id] && now.Fallbacks.NoLease-was.Fallbacks.NoLease == sends {
				err = fmt.Errorf("%w: %w", ErrStarved, err)
			}
			errs = append(errs, err)
		}
		fmt.Fprintf(&table, " %s %d keys, %.2f READs each;", id, hits, float64(reads)/float64(max(1, hits)))
	}
	return table.String(), errors.Join(errs...)
}

// WaitOneSided waits until a miss of any shard is answered by READs: the memory of
// all nodes is filled, so that their indexes tell of all keys.
func (c *Conn) WaitOneSided(ctx context.Context) error {
	var keys [][]byte
	for i := range 400 {
		keys = append(keys, fmt.Appendf(nil, "surely absent %d", i))
	}
	misses := func() (n uint64) {
		for _, id := range c.IDs() {
			n += c.At(id).OneSidedMisses
		}
		return n
	}
	for {
		before := misses()
		if _, err := c.MultiGet(ctx, keys); err != nil {
			return err
		}
		n := misses() - before
		if n == uint64(len(keys)) {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("of %d misses only %d are answered by READs: %w", len(keys), n, ctx.Err())
		}
	}
}
