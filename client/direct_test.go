package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Gets whose READs are copies answer as others do, of every size and by every
// call, and are counted as others are.
func TestDirectGets(t *testing.T) {
	n, f := node.StartMapped(t, longLease)
	filled(n)
	c := dialMapped(n, f, nil)
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{0, 1, 64, 1000, 4096, 65536, 65537, 1 << 20} {
		key, value := fmt.Appendf(nil, "key of %d", size), make([]byte, size)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		if err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
		for try := range 3 {
			if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("try %d at %d bytes: %d bytes, %v", try, size, len(got), err)
			}
		}
		if info, err := c.Stat(ctx, key); err != nil || info.Size != int64(size) || info.Version == 0 {
			t.Fatal(info, err)
		}
		if size > 10 {
			if got, err := c.GetRange(ctx, key, 7, int64(size-9)); err != nil || !bytes.Equal(got, value[7:size-2]) {
				t.Fatalf("range of %d bytes: %d bytes, %v", size, len(got), err)
			}
		}
	}
	if _, err := c.GetRange(ctx, []byte("key of 64"), 65, 1); !errors.Is(err, client.ErrRange) {
		t.Errorf("a range behind the end: %v", err)
	}
	if _, err := c.Get(ctx, []byte("absent")); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	k := c.Counters()
	if k.OneSidedHits+k.OneSidedMisses+k.SendGets != k.Gets || k.SendGets != 0 || k.OneSidedMisses != 1 {
		t.Errorf("the ways of gets do not add up: %+v", k)
	}

	// One READ where the place is known, no doorbell, no completion.
	key := []byte("key of 64")
	s := rt(c).Only().Current()
	before, dispatched := c.Counters(), s.Usage().Finished
	for range 100 {
		if _, err := c.Get(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	after := c.Counters()
	if after.Gets-before.Gets != 100 || after.OneReadHits-before.OneReadHits != 100 || after.CacheHits-before.CacheHits != 100 {
		t.Errorf("100 gets of a place that is known: %+v, then %+v", before, after)
	}
	// A beat may have come along.
	if reads := after.Reads - before.Reads; reads < 100 || reads > 102 {
		t.Errorf("%d READs", reads)
	}
	if d := s.Usage().Finished - dispatched; d > 2 {
		t.Errorf("%d completions were waited for", d)
	}
	if after.ReadBytes-before.ReadBytes < 100*(24+64) {
		t.Errorf("%d bytes READ", after.ReadBytes-before.ReadBytes)
	}
	if l := rt(c).Only().Latencies(); l.Gets.Count == 0 {
		t.Error("no get was timed")
	}
}

// longLease is for a test that counts the gets which were asked: a goroutine that gets
// no processor for two seconds finds the usual lease over.
func longLease(cfg *server.Config) { cfg.Lease = 20 * time.Second }

// What is written between two gets is seen by the second.
func TestDirectGetsSeeWrites(t *testing.T) {
	n, f := node.StartMapped(t, nil)
	c, writer := dialMapped(n, f, nil), dialMapped(n, f, nil)
	ctx := t.Context()
	key := []byte("key")
	for i := range 200 {
		want := bytes.Repeat([]byte{byte(i)}, 1+i%50)
		if err := writer.Put(ctx, key, want); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("write %d: %q, %v", i, got, err)
		}
	}
	if k := c.Counters(); k.CacheStale == 0 {
		t.Errorf("no place has changed: %+v", k)
	}
	if _, err := writer.PutWith(ctx, key, []byte("short"), client.PutOptions{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := c.Get(ctx, key); err != nil || string(got) != "short" {
			t.Fatalf("with an expiry: %q, %v", got, err)
		}
	}
	if _, err := writer.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
}

// Memory that is not mapped is READ as on any fabric.
func TestUnmappedMemoryIsPosted(t *testing.T) {
	n, f := node.StartMapped(t, longLease)
	c := dialMapped(n, f, nil)
	ctx := t.Context()
	if err := c.Put(ctx, []byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	f.Unmapped.Store(true)
	for range 3 {
		if got, err := c.Get(ctx, []byte("key")); err != nil || string(got) != "value" {
			t.Fatalf("%q %v", got, err)
		}
	}
	if k := c.Counters(); k.SendGets != 0 || k.OneSidedHits != 3 || k.SessionsLost != 0 {
		t.Errorf("%+v", k)
	}
}

// Many gets and puts at a time, of few keys.
func TestDirectGetsBesidePuts(t *testing.T) {
	n, f := node.StartMapped(t, nil)
	c := dialMapped(n, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	key := func(i int) []byte { return fmt.Appendf(nil, "key%d", i%7) }
	value := func(i int) []byte { return bytes.Repeat(key(i), 1+i%40) }
	for i := range 7 {
		if err := c.Put(ctx, key(i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 300 {
			if err := c.Put(ctx, key(i), value(i)); err != nil {
				t.Error(err)
			}
		}
		cancel()
	})
	for g := range 4 {
		wg.Go(func() {
			dst := make([]byte, 0, 512)
			for i := g; ctx.Err() == nil; i++ {
				got, err := c.GetInto(ctx, key(i), dst)
				if ctx.Err() != nil {
					return
				}
				if err != nil || len(got) == 0 || len(bytes.ReplaceAll(got, key(i), nil)) != 0 {
					t.Errorf("%q of %q, %v", got, key(i), err)
					return
				}
				if i%16 == 0 { // such a get never waits: leave the processor to the puts
					time.Sleep(20 * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
}

// A session that ends under a direct get is replaced like any other.
func TestDirectGetsSurviveALostSession(t *testing.T) {
	n, f := node.StartMapped(t, nil)
	c := dialMapped(n, f, nil)
	ctx := t.Context()
	if err := c.Put(ctx, []byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		rt(c).Only().Current().QP.Disconnect()
		for range 10 {
			if got, err := c.Get(ctx, []byte("key")); err != nil || string(got) != "value" {
				t.Fatalf("%q %v", got, err)
			}
		}
	}
}

// newDirect is newOneSided with a fake whose memory is mapped.
func newDirect(t *testing.T) (*clienttest.Server, *clienttest.Clock, *client.Client) {
	return newFakeStore(t, true)
}

func TestDirectPlacesInRetiredPagesAreDropped(t *testing.T) {
	if got := reusedPage(t, true); got != "two" {
		t.Fatalf("got %q out of a page that was retired", got)
	}
}

// answering makes the fake answer gets by SEND.
func answering(f *clienttest.Server, value string) *int {
	asked := new(int)
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		*asked++
		reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte(value)})
		wire.SetCredits(reply, 1)
		return reply, true
	}
	return asked
}

// directCalls are the calls that copy an item by a remembered place.
var directCalls = []struct {
	name string
	get  func(context.Context, *client.Client) ([]byte, error)
}{
	{"Get", func(ctx context.Context, c *client.Client) ([]byte, error) { return c.Get(ctx, fakeKey) }},
	{"MultiGet", func(ctx context.Context, c *client.Client) ([]byte, error) {
		results, err := c.MultiGet(ctx, [][]byte{fakeKey})
		return results[0].Value, errors.Join(err, results[0].Err)
	}},
}

// The lease in force before the READ decides, and is looked at after it.
func TestDirectGetNeedsALease(t *testing.T) {
	for _, call := range directCalls {
		t.Run(call.name, func(t *testing.T) { directGetNeedsALease(t, call.get) })
	}
}

func directGetNeedsALease(t *testing.T, get func(context.Context, *client.Client) ([]byte, error)) {
	f, clock, c := newDirect(t)
	mustGet := func(t *testing.T, c *client.Client, want string) {
		t.Helper()
		if got, err := get(t.Context(), c); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	mustGet(t, c, "one")
	mustGet(t, c, "one")
	asked := answering(f, "by SEND")
	clock.Advance(10 * time.Second)
	mustGet(t, c, "by SEND")
	if k := c.Counters(); *asked != 1 || k.Fallbacks.NoLease != 1 {
		t.Errorf("%d asked, %+v", *asked, k)
	}
	renew(t, f, c, 10)
	mustGet(t, c, "one")
	// It runs out while the copy is made, and is renewed before it is looked at:
	// neither the quick try nor the ones behind it may count.
	s := rt(c).Only().Current()
	counter := uint64(100)
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		copy(dst, f.Mem[addr:])
		if addr == placeA.Byte() {
			clock.Advance(10 * time.Second)
			for range 2 {
				counter++
				s.Lease.Observe(layout.Beat{Counter: counter, Incarnation: 77}, clock.Now())
			}
		}
	}
	f.Mu.Unlock()
	mustGet(t, c, "by SEND")
}

// A beat that is due is READ by the next get.
func TestDirectGetRenews(t *testing.T) {
	for _, call := range directCalls {
		t.Run(call.name, func(t *testing.T) { directGetRenews(t, call.get) })
	}
}

func directGetRenews(t *testing.T, get func(context.Context, *client.Client) ([]byte, error)) {
	f, clock, c := newDirect(t)
	mustGet(t, c, "one")
	s := rt(c).Only().Current()
	before := c.Counters()
	for i := range uint64(2) {
		clock.Advance(600 * time.Millisecond)
		f.Beat(5 + i)
		s.Lease.MarkDue()
		if got, err := get(t.Context(), c); err != nil || string(got) != "one" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	after := c.Counters()
	if after.LeaseRenewals != before.LeaseRenewals+1 || s.Lease.IsDue() || after.Reads-before.Reads != 4 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// READs by a view that has been replaced are counted until they are done.
func TestDirectReadsHoldTheirView(t *testing.T) {
	for _, call := range directCalls {
		t.Run(call.name, func(t *testing.T) { directReadsHoldTheirView(t, call.get) })
	}
}

func directReadsHoldTheirView(t *testing.T, get func(context.Context, *client.Client) ([]byte, error)) {
	f, _, c := newDirect(t)
	mustGet(t, c, "one")
	s := rt(c).Only().Current()
	old := s.View()
	reading, goOn := make(chan struct{}), make(chan struct{})
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		copy(dst, f.Mem[addr:])
		close(reading)
		<-goOn
		f.OnRead = nil
	}
	f.Mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := get(context.Background(), c)
		done <- err
	}()
	<-reading
	newer := &session.View{View: *old.View.Clone(), Remote: old.Remote}
	newer.Version++
	s.TakeView(newer)
	if used := s.UsedView(); used != old.Version {
		t.Errorf("view %d is used, a READ by %d is under way", used, old.Version)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if used := s.UsedView(); used != newer.Version {
		t.Errorf("view %d is used, no READ is under way", used)
	}
}
