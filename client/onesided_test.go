package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The lease and reclaim rules on a server whose every moment the test chooses.

var (
	fakeKey = []byte("the key")
	oldSeg  = clienttest.SegmentPlace
	newSeg  = clienttest.SegmentPlace + layout.PlaceOfByte(1<<17)
	placeA  = clienttest.ItemsPlace + layout.PlaceOfByte(1<<16)
	placeB  = clienttest.ItemsPlace + layout.PlaceOfByte(1<<17)
)

func newOneSided(t *testing.T) (*clienttest.Server, *clienttest.Clock, *client.Client) {
	return newFakeStore(t, false)
}

// newFakeStore is a fake with one key and its client; direct says whether the
// client's READs are copies.
func newFakeStore(t *testing.T, direct bool) (*clienttest.Server, *clienttest.Clock, *client.Client) {
	f := clienttest.NewServer(77)
	f.Direct = direct
	f.Change(func(mem []byte) {
		f.BuildIndex(mem, oldSeg)
		f.PutItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
	})
	clock := clienttest.NewClock()
	return f, clock, dialFake(t, f, clock, nil)
}

// renew makes the client see two beats, the second posted now.
func renew(t *testing.T, f *clienttest.Server, c *client.Client, counter uint64) {
	t.Helper()
	s := rt(c).Only().Current()
	beat := func() {
		f.Beat(counter)
		s.Renew(t.Context())
		counter++
	}
	beat()
	beat()
	// The client renews by itself, too: while it does Renew does nothing, and what it has READ may be the beat before.
	clienttest.Eventually(t, "the lease is renewed", func() bool {
		if !s.Lease.IsLapsed() {
			return true
		}
		beat()
		return false
	})
}

func mustGet(t *testing.T, c *client.Client, want string) {
	t.Helper()
	got, err := c.Get(t.Context(), fakeKey)
	if err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func TestFakeIndexWorks(t *testing.T) {
	f, _, c := newOneSided(t)
	mustGet(t, c, "one")
	reads := c.Counters().Reads
	mustGet(t, c, "one")
	if n := c.Counters().Reads - reads; n != 1 {
		t.Errorf("%d READs for a get with a cached place", n)
	}
	if _, err := c.Get(t.Context(), []byte("absent")); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	f.Change(func(mem []byte) { layout.SetState(mem[placeA.Byte():], 1, layout.Dead) })
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, []byte("two"), 2) })
	mustGet(t, c, "two")
	if k := c.Counters(); k.CacheStale != 1 || k.Retries.Dead != 1 || k.SendGets != 0 {
		t.Errorf("%+v", k)
	}
}

// slowAbsent is the trace of a lease that counts from the wrong READ: a get's bucket READ samples the headers while
// they are unmarked and the slots only after the segment was retired, a lease
// has gone by, and its memory holds something else. Leases were renewed in
// between. It returns what the get says; "absent" would be a lie.
func slowAbsent(t *testing.T) error {
	f, clock, c := newOneSided(t)
	mustGet(t, c, "one")
	rt(c).Only().Current().Cache.Drop(layout.HashKey(42, fakeKey))
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 1, Value: []byte("one")})
		wire.SetCredits(reply, 1)
		return reply, true
	}
	// The READ of the buckets: each destination gets its headers now and its
	// slots when the test says so.
	var late []func(mem []byte)
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		copy(dst, f.Mem[addr:])
		if addr >= oldSeg.Byte() && addr < oldSeg.Byte()+uint64(layout.SegmentBytes(0)) {
			late = append(late, func(mem []byte) {
				for off := 8; off < len(dst); off += 8 {
					if off%layout.BucketSize != 0 {
						copy(dst[off:off+8], mem[addr+uint64(off):])
					}
				}
			})
		}
	}
	f.Mu.Unlock()
	q := f.LastQP()
	q.HoldReads()
	result := make(chan error, 1)
	go func() {
		_, err := c.Get(context.Background(), fakeKey)
		result <- err
	}()
	clienttest.Eventually(t, "the buckets' headers are sampled", func() bool {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		return len(late) >= 2
	})
	// The segment is copied and retired; the directory names the new one.
	f.Change(func(mem []byte) {
		f.BuildIndex(mem, newSeg)
		f.PutItem(mem, newSeg, placeA, fakeKey, []byte("one"), 1)
	})
	// Leases go on being renewed while the READ hangs.
	s := rt(c).Only().Current()
	for i := range uint64(5) {
		clock.Advance(500 * time.Millisecond)
		f.Beat(10 + i)
		s.Lease.Observe(layout.Beat{Counter: 10 + i, Incarnation: 77}, clock.Now())
	}
	// 2.5 s later the old memory is an empty segment of another shard.
	f.Change(func(mem []byte) {
		f.EmptySegment(mem, oldSeg, 1)
		for _, sample := range late {
			sample(mem)
		}
		f.OnRead = nil
	})
	q.Release()
	return <-result
}

func TestRenewalDoesNotExtendAGet(t *testing.T) {
	if err := slowAbsent(t); err != nil {
		t.Fatalf("a key that was there all the time: %v", err)
	}
}

// reusedPage is the trace of a list of retired pages that nothing read: a place is remembered, its page retired and,
// a lease later, given to another class; now it holds a hostile value that
// looks like a live item of that key. The lease has been renewed all along.
func reusedPage(t *testing.T, direct bool) string {
	f, clock, c := newFakeStore(t, direct)
	mustGet(t, c, "one") // remembered at placeA
	renew(t, f, c, 10)
	f.Change(func(mem []byte) {
		layout.DestroyChecksum(mem[placeA.Byte():])
		f.PutItem(mem, oldSeg, placeB, fakeKey, []byte("two"), 2)
	})
	f.Retire(placeA, 16)
	for i := range uint64(6) { // more than a lease goes by, renewed all along
		clock.Advance(500 * time.Millisecond)
		renew(t, f, c, 20+10*i)
	}
	f.Change(func(mem []byte) {
		hostile := layout.Item{Version: 3, Key: fakeKey, Value: []byte("666")}
		at := mem[placeA.Byte() : placeA.Byte()+uint64(layout.ItemSize(len(fakeKey), 3, false))]
		layout.WriteItem(at, f.Incarnation, placeA, hostile, layout.Pending)
		layout.SetState(at, 3, layout.Live)
	})
	got, err := c.Get(t.Context(), fakeKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestPlacesInRetiredPagesAreDropped(t *testing.T) {
	if got := reusedPage(t, false); got != "two" {
		t.Fatalf("got %q out of a page that was retired", got)
	}
}

// A client that lags behind the whole ring drops every place.
func TestLaggingClientForgetsAll(t *testing.T) {
	f, clock, c := newOneSided(t)
	mustGet(t, c, "one")
	for range 3 * clienttest.RingEntries {
		f.Retire(clienttest.ItemsPlace, 1) // not the page of placeA
	}
	clock.Advance(time.Second)
	renew(t, f, c, 10)
	k := c.Counters()
	mustGet(t, c, "one")
	if after := c.Counters(); after.ReclaimDropped != k.ReclaimDropped+1 {
		t.Errorf("the place survived: %+v", after)
	}
	if v := rt(c).Only().Current().Lease.Grant().Retired.Version; v != 3*clienttest.RingEntries {
		t.Errorf("reclaim version %d", v)
	}
}

// Without a lease in force a get asks, and the answer of READs is not believed.
func TestNoLeaseMeansAsk(t *testing.T) {
	f, clock, c := newOneSided(t)
	mustGet(t, c, "one")
	asked := 0
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		asked++
		reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte("by SEND")})
		wire.SetCredits(reply, 1)
		return reply, true
	}
	clock.Advance(10 * time.Second) // the server was paused, or we were suspended
	mustGet(t, c, "by SEND")
	if k := c.Counters(); asked != 1 || k.Fallbacks.NoLease != 1 || k.SendGets != 1 {
		t.Errorf("%d asked, %+v", asked, k)
	}
	// Two beats later the lease is back.
	renew(t, f, c, 10)
	mustGet(t, c, "one")
	// One that runs out under a get that is under way: the second try has none
	// either, so it asks.
	q := f.LastQP()
	q.HoldReads()
	done := make(chan string)
	go func() {
		v, _ := c.Get(context.Background(), fakeKey)
		done <- string(v)
	}()
	clienttest.Eventually(t, "READ posted", func() bool { // that of the beat may be held, too: the client renews by itself
		q.Mu.Lock()
		defer q.Mu.Unlock()
		return len(q.Held) > 0
	})
	clock.Advance(10 * time.Second)
	q.Release()
	if got := <-done; got != "by SEND" {
		t.Errorf("a result handled after its lease was believed: %q", got)
	}
}

// A beat rides in a get's own batch when one is due, and renews the lease.
func TestBeatRidesAlong(t *testing.T) {
	f, clock, c := newOneSided(t)
	mustGet(t, c, "one")
	s := rt(c).Only().Current()
	before := c.Counters()
	clock.Advance(600 * time.Millisecond)
	f.Beat(5)
	s.Lease.MarkDue()
	mustGet(t, c, "one")
	clock.Advance(600 * time.Millisecond)
	f.Beat(6)
	s.Lease.MarkDue()
	mustGet(t, c, "one")
	after := c.Counters()
	if after.ReadBatches-before.ReadBatches != 2 || after.Reads-before.Reads != 4 {
		t.Errorf("%d READs in %d batches", after.Reads-before.Reads, after.ReadBatches-before.ReadBatches)
	}
	if after.LeaseRenewals != before.LeaseRenewals+1 || s.Lease.IsDue() {
		t.Errorf("%d renewals", after.LeaseRenewals-before.LeaseRenewals)
	}
	mustGet(t, c, "one")
	if n := c.Counters().Reads - after.Reads; n != 1 {
		t.Errorf("%d READs with no beat due", n)
	}
}

// Chunks are believed one by one: what is overwritten while a large value is
// read makes it begin again.
func TestLargeValueOverwrittenMidway(t *testing.T) {
	f, _, c := newOneSided(t)
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: two windows
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	other := bytes.Repeat([]byte("fedcba9876543210"), 1<<16)
	reads := 0
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		if len(dst) == base.WindowBytes {
			if reads++; reads == 2 { // same place, next version
				f.PutItem(f.Mem, oldSeg, placeB, fakeKey, other, 6)
			}
		}
		copy(dst, f.Mem[addr:])
	}
	f.Mu.Unlock()
	got, err := c.Get(t.Context(), fakeKey)
	if err != nil || !bytes.Equal(got, other) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if k := c.Counters(); k.Retries.Chunk == 0 {
		t.Errorf("%+v", k)
	}
}

// The lease runs out while the chunks of a large value travel: they may have been
// fetched at any time since, so they are as little an answer as the head would
// be, though they verify.
func TestChunksNeedALease(t *testing.T) {
	f, clock, c := newOneSided(t)
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: two windows
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		reply := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte("by SEND")})
		wire.SetCredits(reply, 1)
		return reply, true
	}
	for _, window := range []int{1, 2} {
		renew(t, f, c, uint64(100*window))
		expired := c.Counters().LeaseExpired
		reads := 0
		f.Mu.Lock()
		f.OnRead = func(addr uint64, dst []byte) {
			if len(dst) == base.WindowBytes {
				if reads++; reads == window {
					clock.Advance(10 * time.Second) // the server was paused, or we were suspended
				}
			}
			copy(dst, f.Mem[addr:])
		}
		f.Mu.Unlock()
		got, err := c.Get(t.Context(), fakeKey)
		if err != nil || string(got) != "by SEND" {
			t.Errorf("lease over at window %d: %d bytes, %v; want the server's word", window, len(got), err)
		}
		if n := c.Counters().LeaseExpired - expired; reads < window || n == 0 {
			t.Errorf("lease over at window %d of %d: %d answers refused for that", window, reads, n)
		}
	}
}
