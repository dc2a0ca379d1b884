package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestSlowClient: a client that takes no replies is bounded in what it holds,
// and is ended after Config.SendTimeout; another on the same lane is served.
func TestSlowClient(t *testing.T) {
	const timeout = 300 * time.Millisecond
	srv := startServer(t, func(c *Config) { c.SendTimeout, c.Lanes = timeout, 1 })
	s, q := deafSession(t, srv, true)
	q.Mu.Lock()
	q.Stuck = true // from here on
	q.Mu.Unlock()
	begun := time.Now()
	other, oq := deafSession(t, srv, true)
	for id := uint64(2); !s.Ended(); id++ {
		q.Mu.Lock()
		posted := len(q.Types)
		may := q.Credits > 0
		if may {
			q.Credits--
		}
		q.Mu.Unlock()
		if posted > srv.cfg.Credits+2 {
			t.Fatalf("%d replies posted, its credits are %d", posted, srv.cfg.Credits)
		}
		if may {
			q.Arrive(t, wire.AppendViewRequest(nil, id, wire.ViewRequest{}))
		}
		feed(t, other, oq, wire.AppendPing(nil, id, wire.Ping{}))
		if h := oq.Last; h.Type != wire.TypePing.Reply() || h.ID != id {
			t.Fatalf("another session is answered %v", h)
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("a client that takes no replies is not ended")
		}
	}
	if took := time.Since(begun); took < timeout {
		t.Errorf("ended after %v", took)
	}
	endDeaf(t, s, q)
	endDeaf(t, other, oq)
	ended(t, srv, base.CauseSlow, 1)
}

// TestLargeRepliesAreShared: a client that takes no replies cannot have all
// large buffers.
func TestLargeRepliesAreShared(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.ReplyBytes = 64 * int64(64<<10) * 2 })
	other := dial(t, srv, peerOptions{})
	s, q := deafSession(t, srv, true)
	var held []*session.Buffer
	for {
		b, err := s.NewBuffer(60 << 10)
		if err != nil {
			if !errors.Is(err, session.ErrNoBuffer) {
				t.Fatal(err)
			}
			break
		}
		held = append(held, b)
	}
	if limit := 64 * 2 / srv.cfg.Lanes; len(held) == 0 || len(held) > limit/4 {
		t.Errorf("one session got %d of %d large buffers", len(held), limit)
	}
	// A value that fits none of its buffers is refused with a status.
	if err := other.put("k", strings.Repeat("x", 10000)); err != nil {
		t.Fatal(err)
	}
	feed(t, s, q, wire.AppendGet(nil, 5, wire.Get{Key: []byte("k"), MaxInline: 1 << 20}))
	if n := srv.main.Counters.Ops[wire.TypeGet][wire.StatusOverloaded].Load(); n != 1 {
		t.Errorf("%d refusals", n)
	}
	// Others are served.
	if r, err := other.get("k", 1<<20); err != nil || len(r.Value) != 10000 {
		t.Errorf("the other client: %v", err)
	}
	for _, b := range held {
		b.Free()
	}
	endDeaf(t, s, q)
}

// TestReceivesRunShort: while receives are scarce a session gets one credit,
// and one that gets none is told so.
func TestReceivesRunShort(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) { change(c); c.ReceiveBytes = 2 * 32 * int64(16<<10) })
		var all []*peer
		credits := map[int]int{}
		for {
			p, err := tryDial(t, srv, peerOptions{receives: 80})
			if err != nil {
				wantStatus(t, err, wire.StatusBusy)
				break
			}
			if err := p.put("k", "v"); err != nil {
				t.Fatal(err)
			}
			credits[p.credits-1]++ // put has given its own back
			if all = append(all, p); len(all) > 64 {
				t.Fatal("more sessions than receives")
			}
		}
		if credits[8] == 0 || credits[1] < 4 {
			t.Errorf("sessions by credits: %v", credits)
		}
		for _, p := range all {
			if err := p.ping(); err != nil {
				t.Error(err)
			}
		}
	})
}
