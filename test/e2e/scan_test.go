package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

var scanSeconds = flag.Int("scan-seconds", 3, "how long TestScanOfBatches scans")

// TestScanOfBatches: one client writes two keys in batches, the first with a value
// that is too large for a page of a scan, both with the number of the batch in front;
// another scans all the time. Behind the first key of a batch it never sees the
// second of an older one.
func TestScanOfBatches(t *testing.T) {
	n := startNode(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*scanSeconds)*time.Second)
	defer cancel()
	numbered := func(i uint64, size int) []byte {
		return append(binary.BigEndian.AppendUint64(nil, i), make([]byte, size-8)...)
	}
	batch := func(c *client.Client, i uint64) error {
		var b client.Batch
		b.Put([]byte("{t}a"), numbered(i, 100_000))
		b.Put([]byte("{t}b"), numbered(i, 12))
		_, err := c.WriteBatch(t.Context(), &b)
		return err
	}
	writer, scanner := dial(t, n), dial(t, n)
	if err := batch(writer, 1); err != nil {
		t.Fatal(err)
	}
	written := make(chan uint64, 1)
	go func() {
		i := uint64(1)
		defer func() { written <- i }()
		for ctx.Err() == nil {
			if err := batch(writer, i+1); err != nil {
				t.Errorf("batch %d: %v", i+1, err)
				return
			}
			i++
		}
	}()
	scans, older := 0, 0
	most := uint64(0) // by how many batches
	for ctx.Err() == nil && !t.Failed() {
		var a uint64
		keys := 0
		for e, err := range scanner.Scan(t.Context(), client.ScanOptions{Prefix: []byte("{t}")}) {
			if err != nil {
				t.Fatal(err)
			}
			i := binary.BigEndian.Uint64(e.Value)
			if keys++; bytes.HasSuffix(e.Key, []byte("a")) {
				a = i
			} else if i < a {
				older++
				most = max(most, a-i)
			}
		}
		if keys != 2 {
			t.Fatalf("%d keys", keys)
		}
		scans++
	}
	batches := <-written
	t.Logf("%d scans beside %d batches; in %d an older part behind a newer one (by up to %d batches)", scans, batches, older, most)
	if older > 0 || scans == 0 || batches < 2 {
		t.Errorf("%d scans, %d batches, %d with an older part behind a newer one", scans, batches, older)
	}
}
