package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func watchOf(m wire.Watch) func(uint64) []byte {
	return func(id uint64) []byte { return wire.AppendWatch(nil, id, m) }
}

// events parses the reply to a watch.
func (p *peer) events(body []byte, err error) (wire.WatchReply, []wire.Event) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("watch: %v", err)
	}
	m, err := wire.ParseWatchReply(body)
	if err != nil {
		p.t.Fatalf("watch: %v", err)
	}
	var all []wire.Event
	for e := range m.Events {
		all = append(all, e)
	}
	return m, all
}

// now is a cursor of this moment.
func (p *peer) now() wire.Cursor {
	p.t.Helper()
	m, _ := p.events(p.call(watchOf(wire.Watch{WaitMillis: 60_000})))
	if m.Count != 0 || m.Skipped || m.Next.Incarnation != p.wel.Incarnation {
		p.t.Fatalf("a watch from now: %+v", m)
	}
	return m.Next
}

// wait posts a watch that finds nothing and returns its id once it waits.
func (p *peer) wait(srv *Server, m wire.Watch) uint64 {
	p.t.Helper()
	before := srv.main.Handlers.Watches()
	id := p.id()
	p.send(watchOf(m)(id))
	eventually(p.t, "the watch to wait", func() bool { return srv.main.Handlers.Watches() == before+1 })
	return id
}

func TestWatch(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		p, w := dial(t, srv, peerOptions{}), dial(t, srv, peerOptions{})
		from := w.now()
		p.must(putOf("a/1", "one", wire.Terms{}))
		p.must(putOf("b/1", "other", wire.Terms{}))
		p.must(deleteOf("a/1", wire.Terms{}))
		m, events := w.events(w.call(watchOf(wire.Watch{From: from, Prefix: []byte("a/"), Values: true})))
		if len(events) != 2 || string(events[0].Value) != "one" || events[1].Op != wire.EventDelete || m.Skipped {
			t.Fatalf("%+v: %+v", m, events)
		}
		_, events = w.events(w.call(watchOf(wire.Watch{From: from, Prefix: []byte("a/"), MaxBytes: 1})))
		if len(events) != 1 && len(events) != 2 || events[0].HasValue || events[0].ValueLen != 3 {
			t.Errorf("without values: %+v", events)
		}

		// A watch that waits is answered by a put of its prefix, and by nothing
		// else; meanwhile its session is served.
		id := w.wait(srv, wire.Watch{From: m.Next, Prefix: []byte("a/"), WaitMillis: 60_000, Values: true})
		p.must(putOf("b/2", "no", wire.Terms{}))
		if err := w.put("w", "served"); err != nil {
			t.Fatal(err)
		}
		if srv.main.Handlers.Watches() != 1 {
			t.Fatal("woken by another prefix")
		}
		v := p.must(putOf("a/2", "yes", wire.Terms{})).Version
		_, body, err := w.await(id)
		m, events = w.events(body, err)
		if len(events) != 1 || events[0].Version != v || string(events[0].Value) != "yes" || m.Next.Version < v {
			t.Errorf("%+v: %+v, want version %d", m, events, v)
		}

		// One whose time is over is answered with nothing.
		m2, events := w.events(w.call(watchOf(wire.Watch{From: m.Next, Prefix: []byte("a/"), WaitMillis: 20})))
		if len(events) != 0 || m2.Skipped || m2.Next.Version < m.Next.Version {
			t.Errorf("after the wait: %+v, %+v", m2, events)
		}
		eventually(t, "all credits to be back", func() bool {
			return w.credits == int(srv.cfg.InitialCredits)+int(w.nextID)-1 && srv.main.Handlers.Watches() == 0
		})
		_, err = w.call(watchOf(wire.Watch{Prefix: make([]byte, 4097)}))
		wantStatus(t, err, wire.StatusKeyTooLarge)
	})
}

// TestWatchSkipped: who asks from another life, or too late, is told.
func TestWatchSkipped(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.WatchBytes = 1 << 20 })
	p := dial(t, srv, peerOptions{})
	from := p.now()
	m, _ := p.events(p.call(watchOf(wire.Watch{From: wire.Cursor{Incarnation: 1, Version: 1}, WaitMillis: 60_000})))
	if !m.Skipped || m.Next != from {
		t.Errorf("of another life: %+v", m)
	}
	for i := range 100 {
		p.must(putOf(fmt.Sprint("k", i), string(make([]byte, 12<<10)), wire.Terms{}))
	}
	m, events := p.events(p.call(watchOf(wire.Watch{From: from, Values: true})))
	if !m.Skipped || len(events) == 0 || !events[0].HasValue {
		t.Errorf("far behind: %+v, %d events", m, len(events))
	}
	n := 0
	for range 200 {
		if m, events = p.events(p.call(watchOf(wire.Watch{From: m.Next, Values: true}))); m.Skipped || len(events) == 0 {
			break
		}
		n += len(events)
	}
	if m.Skipped || n < 50 {
		t.Errorf("then: %+v after %d events", m, n)
	}
	off := dial(t, startServer(t, func(c *Config) { c.WatchBytes = -1 }), peerOptions{})
	_, err := off.call(watchOf(wire.Watch{}))
	wantStatus(t, err, wire.StatusUnsupported)
}

// TestWatchBounds: how many watches wait is bounded, per session and in all,
// and they go with their session.
func TestWatchBounds(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.Credits, c.InitialCredits, c.MaxWatches = 2*handle.MaxPolls, 2*handle.MaxPolls, handle.MaxPolls+2
	})
	p, q := dial(t, srv, peerOptions{}), dial(t, srv, peerOptions{})
	m := wire.Watch{From: p.now(), WaitMillis: 60_000}
	for range handle.MaxPolls {
		p.wait(srv, m)
	}
	_, err := p.call(watchOf(m))
	wantStatus(t, err, wire.StatusOverloaded)
	q.wait(srv, m)
	q.wait(srv, m)
	_, err = q.call(watchOf(m))
	wantStatus(t, err, wire.StatusOverloaded)
	if err := p.put("k", "v"); err != nil { // wakes them all
		t.Fatal(err)
	}
	eventually(t, "no watch to wait", func() bool { return srv.main.Handlers.Watches() == 0 })
	m.From = p.now()
	for range handle.MaxPolls {
		p.wait(srv, m)
	}
	p.qp.Disconnect()
	p.dead()
	eventually(t, "the watches to go with their session", func() bool { return srv.main.Handlers.Watches() == 0 })
	q.wait(srv, m)
	if err := q.ping(); err != nil {
		t.Error(err)
	}
}

// TestWatchShutdown: a watch that waits does not hold up the end of the node.
func TestWatchShutdown(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{})
	id := p.wait(srv, wire.Watch{From: p.now(), WaitMillis: 60_000})
	begun := time.Now()
	done := make(chan error, 1)
	go func() { done <- srv.Shutdown(t.Context()) }()
	h, body, err := p.await(id)
	if err == nil {
		err = wire.ReplyError(h, body)
	}
	if !errors.Is(err, wire.StatusClosing.Err()) {
		t.Errorf("answered with %v", err)
	}
	p.qp.Disconnect()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took >= srv.cfg.DrainTimeout {
		t.Errorf("the shutdown took %v", took)
	}
}

// TestWatchStorm: many sessions follow the same writes with long polls while
// others come and go; everybody sees every event of his prefix, once.
func TestWatchStorm(t *testing.T) {
	srv := startServer(t, nil)
	const watchers, writes = 6, 200
	type result struct {
		seen []uint64
		err  error
	}
	results := make(chan result, watchers)
	p := dial(t, srv, peerOptions{})
	from := p.now()
	for i := range watchers {
		w := dial(t, srv, peerOptions{})
		prefix := fmt.Sprintf("%d/", i%2)
		go func() {
			var r result
			cursor := from
			for len(r.seen) < writes && r.err == nil {
				id := w.id()
				w.send(watchOf(wire.Watch{From: cursor, Prefix: []byte(prefix), WaitMillis: 60_000, MaxBytes: 100})(id))
				_, body, err := w.await(id)
				if err != nil {
					r.err = err
					break
				}
				m, err := wire.ParseWatchReply(body)
				if err != nil || m.Skipped {
					r.err = fmt.Errorf("skipped %v, %w", m.Skipped, err)
				}
				for e := range m.Events {
					r.seen = append(r.seen, e.Version)
				}
				cursor = m.Next
			}
			results <- r
		}()
	}
	var want [2][]uint64
	for i := range 2 * writes {
		v := p.must(putOf(fmt.Sprintf("%d/%d", i%2, i), "v", wire.Terms{})).Version
		want[i%2] = append(want[i%2], v)
		if i%50 == 0 { // one that comes and goes
			q := dial(t, srv, peerOptions{})
			q.send(watchOf(wire.Watch{From: from, Prefix: []byte("nothing"), WaitMillis: 60_000})(q.id()))
			q.close()
		}
	}
	for range watchers {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		if fmt.Sprint(r.seen) != fmt.Sprint(want[0]) && fmt.Sprint(r.seen) != fmt.Sprint(want[1]) {
			t.Errorf("saw %d events, not those of its prefix in order", len(r.seen))
		}
	}
}

// TestWatchNumbers: what happens to watches and reports is in /metrics and in
// the statistics.
func TestWatchNumbers(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.AdminListen = "127.0.0.1:0" })
	p := dial(t, srv, peerOptions{})
	from := p.now()
	p.must(putOf("k", "v", wire.Terms{}))
	p.events(p.call(watchOf(wire.Watch{From: from})))
	p.wait(srv, wire.Watch{From: p.now(), WaitMillis: 60_000})
	st, err := srv.Stats()
	if err != nil || st.Polls != 1 || st.Watch.Noted != 1 || st.Watch.Told != 1 || st.Watch.Events != 1 || st.Watch.Waiting != 1 || st.Watch.Bytes == 0 {
		t.Errorf("%+v, %d wait, %v", st.Watch, st.Polls, err)
	}
	_, text := httpGet(t, srv, "/metrics")
	for _, line := range []string{
		`rdmakv_watches_waiting 1`, `rdmakv_watch_told_total 1`, `rdmakv_writes_asked_disk_total 0`,
		`rdmakv_touches_reported_total 0`, `rdmakv_damage_reported_total 0`, `rdmakv_store_evicted_items_total 0`, `rdmakv_store_promoted_items_total 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
}
