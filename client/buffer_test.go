package client_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/store/layout"
)

func mustBuffer(t *testing.T, c *client.Client, size int) *client.Buffer {
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
	t.Run("iwarp", func(t *testing.T) { bufferRoundTrip(t, node.Start(t, nil), nil) })
	t.Run("shm", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "rkv") // the paths of sockets are short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		n := node.Soft(t, func(cfg *server.Config) { cfg.Fabric = shm.New(shm.Options{Dir: dir}) })
		n.Mmap = true
		bufferRoundTrip(t, n, func(cfg *client.Config) { cfg.Fabrics = []rdma.Fabric{shm.New(shm.Options{Dir: dir})} })
	})
}

func bufferRoundTrip(t *testing.T, n *node.Node, change func(*client.Config)) {
	c := dialNode(n, change)
	ctx, key := t.Context(), []byte("large")
	from, into := mustBuffer(t, c, 3<<20), mustBuffer(t, c, 3<<20)
	for i, size := range []int{0, 10, 17_000, layout.ChunkSize, layout.ChunkSize + 1, 1<<20 + 13, 3 << 20} {
		value := from.Bytes()[:size]
		fillPattern(value, byte(i))
		version, err := from.Put(ctx, key, size, client.PutOptions{})
		if err != nil || version == 0 {
			t.Fatalf("%d bytes: version %d, %v", size, version, err)
		}
		clear(into.Bytes())
		got, err := into.Get(ctx, key)
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes: %d came, %v", size, len(got), err)
		}
		if size > 0 && &got[0] != &into.Bytes()[0] {
			t.Fatalf("%d bytes came in other memory", size)
		}
		if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes into a slice: %d came, %v", size, len(got), err)
		}
		if _, err := from.Put(ctx, key, size, client.PutOptions{IfVersion: version + 1<<20}); !errors.Is(err, client.ErrVersionMismatch) {
			t.Fatalf("a condition that does not hold: %v", err)
		}
	}
	if _, staged, _ := rt(c).Only().Devices.Usage(); staged != 0 {
		t.Errorf("%d bytes were staged", staged)
	}
	if from.Busy() || into.Busy() {
		t.Error("busy after the calls")
	}
	settled(t, c)
}

func TestBufferBounds(t *testing.T) {
	n := node.Soft(t, nil)
	c := dialNode(n, func(cfg *client.Config) { cfg.StagingBytes = layout.MaxValueLen })
	ctx, key := t.Context(), []byte("k")
	for _, size := range []int{-1, 0, layout.MaxValueLen + 1} {
		if _, err := c.NewBuffer(size); !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	big := mustBuffer(t, c, layout.MaxValueLen-1000)
	if _, err := c.NewBuffer(1001); !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("beyond StagingBytes: %v", err)
	}
	small := mustBuffer(t, c, 1000)
	if err := c.Put(ctx, key, make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Get(ctx, key); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a large value: %v", err)
	}
	if err := c.Put(ctx, key, make([]byte, 1001)); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Get(ctx, key); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	for _, size := range []int{-1, 1001} {
		if _, err := small.Put(ctx, key, size, client.PutOptions{}); !errors.Is(err, client.ErrRange) {
			t.Errorf("put of %d bytes: %v", size, err)
		}
	}
	big.Free()
	big.Free()
	clienttest.Eventually(t, "what was freed may be had again", func() bool {
		b, err := c.NewBuffer(layout.MaxValueLen - 1000)
		if err == nil {
			b.Free()
		}
		return err == nil
	})
	if _, err := big.Put(ctx, key, 10, client.PutOptions{}); !errors.Is(err, client.ErrBufferBusy) {
		t.Errorf("after Free: %v", err)
	}
}

// While READs into a Buffer that a call has given up on may still come, no call
// uses it again, and Free does not take the memory from under them.
func TestBufferGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, c := newOneSided(t)
		value := make([]byte, 200_000)
		fillPattern(value, 1)
		f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5) })
		b := mustBuffer(t, c, 1<<20)
		if got, err := b.Get(t.Context(), fakeKey); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		qp := f.LastQP()
		f.Mu.Lock()
		f.OnRead = func(addr uint64, dst []byte) {
			copy(dst, f.Mem[addr:])
			qp.HoldReads() // this is the head, the chunks come next
		}
		f.Mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := b.Get(ctx, fakeKey); !errors.Is(err, client.ErrTimeout) {
			t.Fatal(err)
		}
		if !b.Busy() {
			t.Error("not busy with READs under way")
		}
		if _, err := b.Get(t.Context(), fakeKey); !errors.Is(err, client.ErrBufferBusy) {
			t.Error(err)
		}
		if _, err := b.Put(t.Context(), fakeKey, 10, client.PutOptions{}); !errors.Is(err, client.ErrBufferBusy) {
			t.Error(err)
		}
		b.Free()
		if rt(c).BufferBytes().Load() == 0 || !client.OwnedBy(b).InUse() {
			t.Error("the memory went with READs under way")
		}
		f.Mu.Lock()
		f.OnRead = nil
		f.Mu.Unlock()
		qp.Release()
		clienttest.Eventually(t, "the memory goes with the last READ", func() bool { return rt(c).BufferBytes().Load() == 0 })
		settled(t, c)
	})
}

// A put that has returned is over for its Buffer, whenever the completion of its SEND is polled:
// the next put may follow at once.
func TestBufferIsFreeAfterAPut(t *testing.T) {
	f, _, c := newOneSided(t)
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePutLarge {
			return nil, false
		}
		reply := wire.AppendWriteReply(nil, h.Type, h.ID, wire.WriteReply{Version: 1, Applied: true})
		wire.SetCredits(reply, 1)
		return reply, true
	}
	b := mustBuffer(t, c, 1<<20)
	f.LateSends.Store(true)
	for range 2 { // each keeps its slot until its SEND is over
		if _, err := b.Put(t.Context(), fakeKey, 200_000, client.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if b.Busy() {
			t.Fatal("busy after its put")
		}
	}
	f.LateSends.Store(false)
	f.LastQP().Release()
	settled(t, c)
}

// A value of which a READ was given up on during the call does not count: what
// comes late may overwrite what was verified.
func TestBufferLateRead(t *testing.T) {
	f, _, c := newOneSided(t)
	value := make([]byte, 200_000)
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	b := mustBuffer(t, c, 1<<20)
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		copy(dst, f.Mem[addr:])
		if len(dst) > layout.ChunkSize {
			dev := rt(c).Only().Current().Device
			buf, err := client.OwnedBy(b).On(dev)
			if err != nil {
				t.Error(err)
			}
			dev.Buffers.Quarantine(buf) // as a batch of a former connection does
		}
	}
	f.Mu.Unlock()
	if _, err := b.Get(t.Context(), fakeKey); !errors.Is(err, client.ErrUnavailable) {
		t.Error(err)
	}
}

// The registrations of a Buffer go with their device, and come again with the
// next one.
func TestBufferOutlivesConnection(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	b := mustBuffer(t, c, 1<<20)
	fillPattern(b.Bytes(), 3)
	for range 2 {
		if _, err := b.Put(t.Context(), []byte("k"), 300_000, client.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		s := rt(c).Only().Current()
		rt(c).Only().Devices.Retire(s.Device)
		r.Cut()
		clienttest.Eventually(t, "the session has ended", s.IsDown)
	}
	if got, err := c.Get(t.Context(), []byte("k")); err != nil || !bytes.Equal(got, b.Bytes()[:300_000]) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}
