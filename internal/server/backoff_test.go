package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// refusals sends a request whenever the session has a credit, until n were refused.
// It returns how many were sent.
func (p *peer) refusals(t *testing.T, n int, request func(id uint64) []byte) (sent int) {
	t.Helper()
	for n > 0 {
		for ; p.credits > sent; sent++ {
			p.send(request(p.id()))
		}
		p.poll(func() bool { return len(p.replies) > 0 })
		for _, msg := range p.replies {
			h, err := wire.ParseHeader(msg)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, wire.ReplyError(h, wire.Body(msg)), wire.StatusOverloaded)
			n--
		}
		if len(p.replies) == 0 {
			t.Fatalf("the session died: %v", p.qp.Err())
		}
		p.replies = nil
	}
	return sent
}

// TestRefusalsCost: a session that sends again whenever it is refused, because its
// tenant has too much in flight, gets ever fewer credits to do so, and all of them
// back once it is admitted. Answered at once and with their credits, as many
// refusals take some milliseconds.
func TestRefusalsCost(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.Tenants[1].MaxRequests = 4 })
	clerk := loginOf(srv, "clerk")
	holder, hog := dial(t, srv, as("clerk")), dial(t, srv, as("clerk"))
	release := heldWorkers(t, srv, "clerk")
	holder.flood(4)
	eventually(t, "four scans wait", func() bool { return queuedOf(srv, "clerk") == 4 })

	hello, begun := hog.credits, time.Now()
	sent := hog.refusals(t, 30, scanOf("desk/"))
	took := time.Since(begun)
	t.Logf("%d requests, of which 30 were refused in %v; %d credits are left", sent, took, hog.credits-sent)
	// The first burst, and two at a time after 2, 4, 8, ... ms.
	if took < 4*session.BackoffMax {
		t.Errorf("30 refusals took %v: they cost their sender nothing", took)
	}
	if n := clerk.Hits[base.BoundLoginRequests].Load(); n < 30 {
		t.Errorf("%d refusals were counted", n)
	}
	eventually(t, "refusals that are held back are not in flight", func() bool { return clerk.Requests.Load() == 4 })
	if _, err := dial(t, srv, as("guest")).call(scanOf("")); err != nil {
		t.Errorf("another tenant: %v", err)
	}

	release()
	eventually(t, "the four are done", func() bool { return clerk.Requests.Load() == 0 })
	for calls := 0; hog.credits-sent < hello; calls++ {
		if calls > 4*hello {
			t.Fatalf("%d of %d credits after %d requests that were admitted", hog.credits-sent, hello, calls)
		}
		hog.poll(func() bool { return hog.credits > sent }) // a refusal may be held back yet
		sent++
		if _, err := hog.call(scanOf("desk/")); err != nil {
			t.Fatal(err)
		}
		hog.replies = nil // of refusals that were under way
	}
	if n := hog.credits - sent; n != hello {
		t.Errorf("%d credits, at the beginning there were %d", n, hello)
	}
}

// TestLargeRefusalsCost: the same where what is refused is the value that the server
// is to READ, not the message that announces it, which is let in each time.
func TestLargeRefusalsCost(t *testing.T) {
	srv := floodServer(t, nil)
	clerk := loginOf(srv, "clerk")
	other := clerk.MaxInflightBytes - 64<<10 // of his other sessions
	clerk.Bytes.Add(other)
	defer clerk.Bytes.Add(-other)
	hog := dial(t, srv, as("clerk"))
	begun := time.Now()
	hog.refusals(t, 30, func(id uint64) []byte {
		return wire.AppendPutLarge(nil, id, wire.PutLarge{Key: []byte("desk/large"), ValueLen: 1 << 20, Addr: hog.mr.Addr(), RKey: hog.mr.RKey()})
	})
	took := time.Since(begun)
	if t.Logf("30 were refused in %v", took); took < 4*session.BackoffMax {
		t.Errorf("30 refusals of large values took %v: they cost their sender nothing", took)
	}
	if n := clerk.Hits[base.BoundLoginBytes].Load(); n < 30 {
		t.Errorf("%d refusals were counted", n)
	}
}

// TestHeldRefusalEndsWithItsSession: a refusal that is held back keeps no session
// that has ended, nor a receive of it.
func TestHeldRefusalEndsWithItsSession(t *testing.T) {
	srv := floodServer(t, func(c *Config) { c.Tenants[1].MaxRequests = 4 })
	clerk := loginOf(srv, "clerk")
	holder, hog := dial(t, srv, as("clerk")), dial(t, srv, as("clerk"))
	heldWorkers(t, srv, "clerk")
	holder.flood(4)
	eventually(t, "four scans wait", func() bool { return queuedOf(srv, "clerk") == 4 })
	var held *session.Session
	hog.send(scanOf("desk/")(hog.id()))
	eventually(t, "one refusal is held back", func() bool {
		for _, s := range srv.main.Sessions.List() {
			if s.Refused() {
				held = s
			}
		}
		return held != nil
	})
	hog.close()
	eventually(t, "the session is over", func() bool { return clerk.Sessions.Load() == 1 })
	if held.Busy() {
		t.Error("the refusal is still there")
	}
}
