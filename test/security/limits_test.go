package security

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// hits is how often a limit was met.
func (r *rig) hits(name string) uint64 {
	return metric(r.metrics(), `rdmakv_limit_hits_total{limit="`+name+`"}`)
}

// TestSessionLimits: each bound on connections is met from outside, refused with
// its own error, counted, and open again once a place is free.
func TestSessionLimits(t *testing.T) {
	for _, c := range []struct {
		limit  string
		change func(*server.Config)
		places int
	}{
		{"sessions", func(c *server.Config) { c.MaxSessions = 8; c.MaxUnauthenticated = 4; short(c, 8) }, 8},
		{"host_sessions", func(c *server.Config) { c.MaxSessionsPerHost = 5 }, 5},
		{"tenant_sessions", func(c *server.Config) { c.Tenants[0].MaxSessions = 3 }, 3},
	} {
		t.Run(c.limit, func(t *testing.T) {
			r := startRig(t, c.change)
			var open []*peer
			for range c.places {
				open = append(open, r.open("alice", aliceWord))
			}
			_, err := client.Dial(t.Context(), quick(r.config("alice", aliceWord)))
			if !errors.Is(err, client.ErrOverloaded) && !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("one too many: %v", err)
			}
			if !errors.Is(err, client.ErrOverloaded) {
				t.Errorf("not told that it is a limit: %v", err)
			}
			if r.hits(c.limit) == 0 {
				t.Error("not counted")
			}
			if _, err := open[0].call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{}) }); err != nil {
				t.Errorf("one of those inside: %v", err)
			}
			open[0].close()
			eventually(t, "there is room again", func() bool {
				c, err := client.Dial(t.Context(), quick(r.config("alice", aliceWord)))
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			if c.limit == "tenant_sessions" {
				r.dial("bob", bobWord) // others are not concerned
			}
		})
	}
}

// short bounds the sessions of all tenants, too.
func short(c *server.Config, n int) {
	for i := range c.Tenants {
		c.Tenants[i].MaxSessions = n
	}
}

func quick(cfg client.Config) client.Config {
	cfg.DialTimeout, cfg.DialOnce = 3*time.Second, true
	return cfg
}

// TestRequestLimits: a tenant with too much in flight is told so, by request;
// another one works beside it.
func TestRequestLimits(t *testing.T) {
	r := startRig(t, func(c *server.Config) {
		c.Tenants[0].MaxRequests = 10
		c.Tenants[1].MaxInflightBytes = 64 << 20
	})
	stop := r.honest("", mainSecret)
	// Watches that wait are requests in flight.
	var watchers []*peer
	for range 3 {
		p := r.open("alice", aliceWord)
		watchers = append(watchers, p)
		cursor, err := p.cursor()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p.lastID++
			msg := wire.AppendWatch(nil, p.lastID, wire.Watch{From: cursor, WaitMillis: 20_000})
			p.out.Seal(msg)
			p.raw(msg)
		}
	}
	eventually(t, "nine requests are in flight", func() bool { return r.tenant("alice").Requests == 9 })
	p := r.open("alice", aliceWord)
	ask := func(id uint64) []byte { return wire.AppendGet(nil, id, wire.Get{Key: []byte("k"), MaxInline: 10}) }
	if _, err := p.call(ask); !errors.Is(err, wire.StatusNotFound.Err()) {
		t.Errorf("the tenth: %v", err)
	}
	cursor, err := p.cursor()
	if err != nil {
		t.Fatal(err)
	}
	p.lastID++
	msg := wire.AppendWatch(nil, p.lastID, wire.Watch{From: cursor, WaitMillis: 20_000})
	p.out.Seal(msg)
	p.raw(msg)
	eventually(t, "ten requests are in flight", func() bool { return r.tenant("alice").Requests == 10 })
	if _, err := p.call(ask); !errors.Is(err, wire.StatusOverloaded.Err()) {
		t.Errorf("the eleventh: %v", err)
	}
	if _, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{}) }); err != nil {
		t.Errorf("a Ping is always answered: %v", err)
	}
	if r.hits("tenant_requests") == 0 {
		t.Error("not counted")
	}
	for _, w := range watchers {
		w.close()
	}
	eventually(t, "they are over", func() bool { return r.tenant("alice").Requests == 1 })
	if _, err := p.call(ask); !errors.Is(err, wire.StatusNotFound.Err()) {
		t.Errorf("afterwards: %v", err)
	}

	// Bytes: values of 40 MiB, several at once, of a tenant that may have 64 in
	// flight.
	bob := r.dial("bob", bobWord, func(cfg *client.Config) { cfg.StagingBytes = 200 << 20; cfg.Timeout = 60 * time.Second })
	value := bytes.Repeat([]byte("0123456789abcdef"), 40<<20/16)
	short, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for i := range 3 {
		wg.Go(func() {
			// The library tries again while it is told that the server has too
			// much; so all of them come through in the end.
			err := bob.Put(short, []byte("big"), value)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				if !errors.Is(err, client.ErrOverloaded) && !errors.Is(err, client.ErrOutcomeUnknown) {
					t.Errorf("put %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if r.hits("tenant_bytes") == 0 {
		t.Errorf("three values of 40 MiB fitted into 64 MiB (%d failed)", failed)
	}
	eventually(t, "nothing is in flight", func() bool { st := r.tenant("bob"); return st.Bytes == 0 && st.Requests == 0 })
	stop()
}

// cursor is where a watch begins that gets what comes from now on.
func (p *peer) cursor() (wire.Cursor, error) {
	body, err := p.call(func(id uint64) []byte { return wire.AppendWatch(nil, id, wire.Watch{}) })
	if err != nil {
		return wire.Cursor{}, err
	}
	m, err := wire.ParseWatchReply(body)
	return m.Next, err
}

// TestCredits: more requests than the server allowed end the session.
func TestCredits(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("bob", bobWord)
	p := r.open("alice", aliceWord)
	for range 200 {
		p.lastID++
		msg := wire.AppendWatch(nil, p.lastID, wire.Watch{From: wire.Cursor{Incarnation: p.welcome.Incarnation, Version: 1 << 40}, WaitMillis: 10_000})
		p.out.Seal(msg)
		p.raw(msg)
	}
	p.gone()
	stop()
}
