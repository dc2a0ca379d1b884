package client

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/store/layout"
)

func mustBuffer(t *testing.T, c *Client, size int) *Buffer {
	t.Helper()
	b, err := c.NewBuffer(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Free)
	return b
}

// fillPattern makes every word of b another one.
func fillPattern(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*31 ^ byte(i>>16)*17 ^ seed
	}
}

// What is put from a Buffer is what is got, into a slice and into a Buffer, and
// nothing is staged for it.
func TestBufferRoundTrip(t *testing.T) {
	t.Run("iwarp", func(t *testing.T) { bufferRoundTrip(t, startNode(t, nil), nil) })
	t.Run("shm", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "rkv") // the paths of sockets are short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		n := softNode(t, func(cfg *server.Config) { cfg.Fabric = shm.New(shm.Options{Dir: dir}) })
		bufferRoundTrip(t, n, func(cfg *Config) { cfg.Fabric, cfg.HeapMemory = shm.New(shm.Options{Dir: dir}), false })
	})
}

func bufferRoundTrip(t *testing.T, n *node, change func(*Config)) {
	c := n.dial(change)
	ctx, key := t.Context(), []byte("large")
	from, into := mustBuffer(t, c, 3<<20), mustBuffer(t, c, 3<<20)
	for i, size := range []int{0, 10, 17_000, layout.ChunkSize, layout.ChunkSize + 1, 1<<20 + 13, 3 << 20} {
		value := from.Bytes()[:size]
		fillPattern(value, byte(i))
		version, err := c.PutBuffer(ctx, key, from, size, PutOptions{})
		if err != nil || version == 0 {
			t.Fatalf("%d bytes: version %d, %v", size, version, err)
		}
		clear(into.Bytes())
		got, err := c.GetBuffer(ctx, key, into)
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes: %d came, %v", size, len(got), err)
		}
		if size > 0 && &got[0] != &into.Bytes()[0] {
			t.Fatalf("%d bytes came in other memory", size)
		}
		if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes into a slice: %d came, %v", size, len(got), err)
		}
		if _, err := c.PutBuffer(ctx, key, from, size, PutOptions{IfVersion: version + 1<<20}); !errors.Is(err, ErrVersionMismatch) {
			t.Fatalf("a condition that does not hold: %v", err)
		}
	}
	if _, staged, _ := c.solo.transports.usage(); staged != 0 {
		t.Errorf("%d bytes were staged", staged)
	}
	if from.Busy() || into.Busy() {
		t.Error("busy after the calls")
	}
	settled(t, c)
}

func TestBufferBounds(t *testing.T) {
	n := softNode(t, nil)
	c := n.dial(func(cfg *Config) { cfg.StagingBytes = layout.MaxValueLen })
	ctx, key := t.Context(), []byte("k")
	for _, size := range []int{-1, 0, layout.MaxValueLen + 1} {
		if _, err := c.NewBuffer(size); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	big := mustBuffer(t, c, layout.MaxValueLen-1000)
	if _, err := c.NewBuffer(1001); !errors.Is(err, ErrOverloaded) {
		t.Errorf("beyond StagingBytes: %v", err)
	}
	small := mustBuffer(t, c, 1000)
	if err := c.Put(ctx, key, make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetBuffer(ctx, key, small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large value: %v", err)
	}
	if err := c.Put(ctx, key, make([]byte, 1001)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetBuffer(ctx, key, small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	for _, size := range []int{-1, 1001} {
		if _, err := c.PutBuffer(ctx, key, small, size, PutOptions{}); !errors.Is(err, ErrRange) {
			t.Errorf("put of %d bytes: %v", size, err)
		}
	}
	if _, err := n.dial(nil).PutBuffer(ctx, key, small, 10, PutOptions{}); !errors.Is(err, ErrOptions) {
		t.Errorf("of another client: %v", err)
	}
	big.Free()
	big.Free()
	eventually(t, "what was freed may be had again", func() bool {
		b, err := c.NewBuffer(layout.MaxValueLen - 1000)
		if err == nil {
			b.Free()
		}
		return err == nil
	})
	if _, err := c.PutBuffer(ctx, key, big, 10, PutOptions{}); !errors.Is(err, ErrBufferBusy) {
		t.Errorf("after Free: %v", err)
	}
}

// While READs into a Buffer that a call has given up on may still come, nobody
// uses it again, and Free does not take the memory from under them.
func TestBufferGivenUp(t *testing.T) {
	f, _, c := newOneSided(t)
	value := make([]byte, 200_000)
	fillPattern(value, 1)
	f.change(func(mem []byte) { f.putItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	b := mustBuffer(t, c, 1<<20)
	if got, err := c.GetBuffer(t.Context(), fakeKey, b); err != nil || !bytes.Equal(got, value) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	qp := f.lastQP()
	f.mu.Lock()
	f.onRead = func(addr uint64, dst []byte) {
		copy(dst, f.mem[addr:])
		if len(dst) == layout.ChunkSize {
			qp.holdReads()
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.GetBuffer(ctx, fakeKey, b); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	if !b.Busy() {
		t.Error("not busy with READs under way")
	}
	if _, err := c.GetBuffer(t.Context(), fakeKey, b); !errors.Is(err, ErrBufferBusy) {
		t.Error(err)
	}
	if _, err := c.PutBuffer(t.Context(), fakeKey, b, 10, PutOptions{}); !errors.Is(err, ErrBufferBusy) {
		t.Error(err)
	}
	b.Free()
	if c.bufferBytes.Load() == 0 || b.uses.Load() == 0 {
		t.Error("the memory went with READs under way")
	}
	f.mu.Lock()
	f.onRead = nil
	f.mu.Unlock()
	qp.release()
	eventually(t, "the memory goes with the last READ", func() bool { return c.bufferBytes.Load() == 0 })
	settled(t, c)
}

// A value of which a READ was given up on during the call does not count: what
// comes late may overwrite what was verified.
func TestBufferLateRead(t *testing.T) {
	f, _, c := newOneSided(t)
	value := make([]byte, 200_000)
	f.change(func(mem []byte) { f.putItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	b := mustBuffer(t, c, 1<<20)
	f.mu.Lock()
	f.onRead = func(addr uint64, dst []byte) {
		copy(dst, f.mem[addr:])
		if len(dst) == layout.ChunkSize {
			b.abandoned.Store(1) // as a batch of a former connection does
		}
	}
	f.mu.Unlock()
	if _, err := c.GetBuffer(t.Context(), fakeKey, b); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// The registrations of a Buffer go with their device, and come again with the
// next one.
func TestBufferOutlivesConnection(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	b := mustBuffer(t, c, 1<<20)
	fillPattern(b.Bytes(), 3)
	for range 2 {
		if _, err := c.PutBuffer(t.Context(), []byte("k"), b, 300_000, PutOptions{}); err != nil {
			t.Fatal(err)
		}
		s := c.solo.current.Load()
		c.solo.transports.retire(s.t)
		r.cut()
		eventually(t, "the session has ended", s.isDown)
	}
	if got, err := c.Get(t.Context(), []byte("k")); err != nil || !bytes.Equal(got, b.Bytes()[:300_000]) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}
