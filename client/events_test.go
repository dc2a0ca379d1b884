package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A watch tells what happens, in order, once, over reconnects.
func TestWatch(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	writer, c := dialNode(n, nil), dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	from, err := c.Position(ctx)
	if err != nil || from == (client.Position{}) {
		t.Fatal(from, err)
	}
	put := func(key, value string) {
		t.Helper()
		if err := writer.Put(ctx, []byte(key), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("w:a", "1")
	put("other", "x")
	var b client.Batch
	b.Put([]byte("w:{t}1"), []byte("b1"))
	b.Put([]byte("x:{t}"), []byte("no"))
	b.Delete([]byte("w:{t}2"))
	b.Put([]byte("w:{t}3"), []byte("b3"))
	if _, err := writer.WriteBatch(ctx, &b); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Delete(ctx, []byte("w:a")); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.PutWith(ctx, []byte("w:short"), nil, client.PutOptions{TTL: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	var got []string
	var last client.Event
	cuts := 0
	for e, err := range c.Watch(ctx, []byte("w:"), client.WatchOptions{From: from, Values: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Version <= last.Version {
			t.Errorf("version %d after %d", e.Version, last.Version)
		}
		last = e
		got = append(got, fmt.Sprintf("%v %s=%s", e.Op, e.Key, e.Value))
		if e.Op == client.EventExpire {
			break
		}
		if cuts++; cuts%2 == 0 {
			p.Cut() // what was fetched is told, then the loop goes on
		}
	}
	want := []string{"put w:a=1", "put w:{t}1=b1", "delete w:{t}2=", "put w:{t}3=b3", "delete w:a=", "put w:short=", "expire w:short="}
	// (A delete of what is not there is no change.)
	if fmt.Sprint(got) != fmt.Sprint(want) && fmt.Sprint(got) != fmt.Sprint(append(append([]string{}, want[:2]...), want[3:]...)) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// What is awaited comes when it happens, and a text brings back a position.
	pos, err := client.ParsePosition(last.Position.String())
	if err != nil || pos != last.Position {
		t.Fatal(pos, err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = writer.Put(ctx, []byte("w:later"), []byte("now"))
	}()
	for e, err := range c.Watch(ctx, []byte("w:"), client.WatchOptions{From: pos}) {
		if err != nil || string(e.Key) != "w:later" || e.HasValue || e.Size != 3 {
			t.Errorf("%+v %v", e, err)
		}
		break
	}
	settled(t, writer)
}

// The watch of a restarted server goes on; the watcher is told if there may be a
// gap. One that ends with its context says so.
func TestWatchOverRestart(t *testing.T) {
	n := node.Soft(t, nil)
	c := dialNode(n, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, skips := 0, 0
	if err := c.Put(ctx, []byte("before"), nil); err != nil {
		t.Fatal(err)
	}
	from, err := c.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.Stop()
	n.Start()
	if err := c.Put(ctx, []byte("w0"), nil); err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Watch(ctx, []byte("w"), client.WatchOptions{From: from}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Skipped {
			skips++
			continue
		}
		if seen++; seen == 3 {
			break
		}
		if err := c.Put(ctx, fmt.Appendf(nil, "w%d", seen), nil); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 3 || skips > 1 {
		t.Errorf("%d events, %d gaps", seen, skips)
	}
	short, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	for e, err := range c.Watch(short, []byte("nothing"), client.WatchOptions{}) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v %v", e, err)
		}
	}
	// A position that no server has given out is a gap, not an error.
	for e, err := range c.Watch(ctx, nil, client.WatchOptions{From: client.PositionOf(wire.Cursor{Incarnation: 1, Version: 1})}) {
		if err != nil || e.Op != client.EventSkip || !e.Skipped || e.Key != nil {
			t.Errorf("%+v %v", e, err)
		}
		break
	}
	if _, err := client.ParsePosition("zz"); !errors.Is(err, client.ErrOptions) {
		t.Error(err)
	}
}

// A watch leaves a slot to others even where there is one only.
func TestWatchLeavesASlot(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) {})
	c := dialNode(n, func(cfg *client.Config) { cfg.MaxInflight = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	from, err := c.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range 20 {
			if err := c.Put(ctx, fmt.Appendf(nil, "k%d", i), nil); err != nil {
				t.Error(err)
			}
		}
	}()
	seen := 0
	for _, err := range c.Watch(ctx, nil, client.WatchOptions{From: from}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 20 {
			break
		}
	}
}

// However many watches begin in the same moment: what may wait at the server
// leaves a slot and a credit to others.
func TestWatchesTogetherLeaveASlot(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, func(cfg *client.Config) { cfg.MaxInflight = 4 })
	s, p := rt(c).Only().Current(), rt(c).Only().Begin(t.Context())
	for range 100 {
		var mu sync.Mutex
		var held []*session.Slot
		var watches sync.WaitGroup
		for range 8 {
			watches.Go(func() {
				if sl := s.TryOpenLeaving(&p, 1); sl != nil {
					mu.Lock()
					held = append(held, sl)
					mu.Unlock()
				}
			})
		}
		watches.Wait()
		turns, credits := s.Usage().SlotsFree, s.Usage().CreditsFree
		if turns < 1 || credits < 1 || len(held) == 0 {
			t.Fatalf("%d slots and %d credits are left, %d watches wait", turns, credits, len(held))
		}
		for _, sl := range held {
			sl.Cancel()
		}
	}
}

// A loop over the same watch begins where the watch begins, not where another
// loop has come to.
func TestWatchIsTakenTwice(t *testing.T) {
	c := dialNode(node.Start(t, nil), nil)
	from, err := c.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) {
		if err := c.Put(t.Context(), []byte(key), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	watch := c.Watch(t.Context(), nil, client.WatchOptions{From: from})
	for range 2 {
		var seen string
		for e, err := range watch {
			if err != nil {
				t.Fatal(err)
			}
			if seen += string(e.Key); len(seen) == 2 {
				break
			}
			put("b") // on the next page
		}
		if seen != "ab" {
			t.Errorf("seen %q", seen)
		}
	}
}

// More watches than the server lets wait: all of them are told.
func TestMoreWatchesThanMayWait(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) { cfg.MaxWatches = 1 })
	// The one that may wait does so for half of the timeout.
	c := dialNode(n, func(cfg *client.Config) { cfg.Timeout = 20 * time.Second })
	from, err := c.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var watches sync.WaitGroup
	for range 4 {
		watches.Go(func() {
			for e, err := range c.Watch(t.Context(), nil, client.WatchOptions{From: from}) {
				if err != nil || string(e.Key) != "k" {
					t.Error(string(e.Key), err)
				}
				return
			}
		})
	}
	clienttest.Eventually(t, "those that may not wait have asked several times", func() bool {
		st, err := n.Server.Stats()
		return err == nil && st.Requests[wire.TypeWatch.String()].Failed[wire.StatusOverloaded.String()] >= 12
	})
	if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
		t.Error(err)
	}
	watches.Wait()
}

// A poll that has spent most of its time on something else, on a reconnect say,
// comes back in time all the same.
func TestPollWithLittleTimeLeft(t *testing.T) {
	c := dialNode(node.Start(t, nil), func(cfg *client.Config) { cfg.Timeout = 20 * time.Second })
	from, err := c.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The server waits for half of the two seconds. A machine may take the other half away
	// now and then, but not five times on end.
	var events []client.Event
	for range 5 {
		p := rt(c).Only().Clock.Limit(t.Context(), 2*time.Second)
		events, err = client.PollEvents(rt(c).Only(), &p, nil, client.WatchOptions{From: from})
		if !errors.Is(err, client.ErrTimeout) {
			break
		}
	}
	if err != nil || len(events) > 0 {
		t.Error(events, err)
	}
}
