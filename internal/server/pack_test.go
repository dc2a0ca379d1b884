package server

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// pack makes one message of several.
func pack(msgs ...[]byte) []byte {
	out := wire.BeginPack(nil, wire.Type(msgs[0][1]))
	for _, m := range msgs {
		out = wire.AppendPacked(out, m)
	}
	return out
}

func putMsg(id uint64, key, value string, t wire.Terms) []byte {
	return wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte(value), Terms: t})
}

// TestPack: each request of a pack is done, refused and answered as if it had come alone, in the
// order in which they stand; and the replies to writes that were published together come together.
func TestPack(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.InitialCredits = 16 })
	p := dial(t, srv, peerOptions{client: [16]byte{1}})
	first := p.nextID + 1
	named := wire.Terms{ID: wire.RequestID{Slot: 1, Seq: 1}}
	p.send(pack(
		putMsg(p.id(), "a", "1", wire.Terms{}),
		putMsg(p.id(), "a", "2", wire.Terms{If: wire.CondAbsent}),
		putMsg(p.id(), "", "no key", wire.Terms{}),
		wire.AppendUpdate(nil, p.id(), wire.Update{Op: wire.UpdateIncrement, Delta: 5, Key: []byte("n"), Terms: named}),
		wire.AppendUpdate(nil, p.id(), wire.Update{Op: wire.UpdateIncrement, Delta: 5, Key: []byte("n"), Terms: named}),
		putMsg(p.id(), "a", "3", wire.Terms{If: wire.CondExists}),
		wire.AppendGet(nil, p.id(), wire.Get{Key: []byte("nothing"), MaxInline: 10}),
	))
	type result struct {
		status  wire.Status
		applied bool
		number  int64
	}
	for i, want := range []result{
		{wire.StatusOK, true, 0}, {wire.StatusOK, false, 0}, {status: wire.StatusKeyEmpty},
		{wire.StatusOK, true, 5}, {wire.StatusOK, true, 5}, {wire.StatusOK, true, 0}, {status: wire.StatusNotFound},
	} {
		h, body, err := p.await(first + uint64(i))
		if err != nil {
			t.Fatal(i, err)
		}
		got := result{status: h.Status}
		if h.Status == wire.StatusOK {
			m, err := wire.ParseWriteReply(body)
			if err != nil {
				t.Fatal(i, err)
			}
			got.applied, got.number = m.Applied, m.Number
		}
		if got != want {
			t.Errorf("request %d: %+v, want %+v", i, got, want)
		}
	}
	if r, err := p.get("a", 10); err != nil || string(r.Value) != "3" {
		t.Errorf("%q, %v", r.Value, err)
	}
	if p.packs == 0 {
		t.Error("no two replies came in one message")
	}
}

// TestPackCredits: a pack spends a credit for each of its requests and has them all back, pack after
// pack, however large they are; and the receive of a pack goes round as often.
func TestPackCredits(t *testing.T) {
	const credits, rounds = 16, 300
	srv := startServer(t, func(c *Config) { c.InitialCredits, c.Credits = credits, credits })
	p := dial(t, srv, peerOptions{})
	for round := range rounds {
		n := 2 + round%(credits-1)
		first := p.nextID + 1
		var msgs [][]byte
		for i := range n {
			msgs = append(msgs, putMsg(p.id(), fmt.Sprintf("key-%d", i), "value", wire.Terms{}))
		}
		before := p.credits
		p.send(pack(msgs...))
		for i := range n {
			if h, _, err := p.await(first + uint64(i)); err != nil || h.Status != wire.StatusOK {
				t.Fatalf("round %d, request %d: %v, %v", round, i, h, err)
			}
		}
		if got := p.credits - before; got != n {
			t.Fatalf("round %d: %d credits came back for %d requests", round, got, n)
		}
	}
	s := srv.main.Sessions.List()[0]
	if got := s.Receives(); got != credits+1 {
		t.Errorf("%d receives behind %d credits and a Ping", got, credits)
	}
	// All credits at once, with single requests between packs: no SEND meets an empty queue.
	first := p.nextID + 1
	p.send(pack(putMsg(p.id(), "a", "1", wire.Terms{}), putMsg(p.id(), "b", "1", wire.Terms{})))
	for range credits - 4 {
		p.send(putMsg(p.id(), "c", "1", wire.Terms{}))
	}
	p.send(pack(putMsg(p.id(), "a", "2", wire.Terms{}), putMsg(p.id(), "b", "2", wire.Terms{})))
	for id := first; id <= p.nextID; id++ {
		if h, _, err := p.await(id); err != nil || h.Status != wire.StatusOK {
			t.Fatalf("request %d: %v, %v", id-first, h, err)
		}
	}
}

// TestPackViolations: what ends a session when it comes alone ends it in a pack, for the same cause;
// nothing of the session is left.
func TestPackViolations(t *testing.T) {
	put := func() []byte { return putMsg(1, "a", "1", wire.Terms{}) }
	broken := put()
	broken[wire.HeaderSize+2] = 1 // reserved, in the body
	old := func() []byte {
		c := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax}
		rand.Read(c.Nonce[:])
		return wire.AppendConnect(nil, nil, c)
	}
	for _, c := range []struct {
		name  string
		o     peerOptions
		msg   []byte
		cause base.Cause
	}{
		{"a pack of one", peerOptions{}, pack(put()), base.CauseHeader},
		{"a second body that does not parse", peerOptions{}, pack(put(), broken, put()), base.CauseBody},
		{"more requests than credits", peerOptions{}, pack(put(), put(), put(), put()), base.CauseCredits},
		{"before Hello", peerOptions{noHello: true}, pack(put(), put()), base.CauseOrder},
		{"a feature that was not named", peerOptions{connect: old()}, pack(put(), put()), base.CauseHeader},
	} {
		srv := startServer(t, func(c *Config) { c.InitialCredits, c.Credits = 3, 3 })
		p := dial(t, srv, c.o)
		p.send(c.msg)
		p.dead()
		ended(t, srv, c.cause, 1)
		eventually(t, c.name+": the session is gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
		q := dial(t, srv, peerOptions{})
		if err := q.put("other", "1"); err != nil {
			t.Errorf("%s: another client: %v", c.name, err)
		}
		if n := srv.main.Store.Stats().Inflight; n != 0 {
			t.Errorf("%s: %d writes in flight", c.name, n)
		}
	}
}

// TestPackNotNamed: who has not named the feature gets each reply by itself.
func TestPackNotNamed(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.InitialCredits = 16 })
	c := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax}
	rand.Read(c.Nonce[:])
	p := dial(t, srv, peerOptions{connect: wire.AppendConnect(nil, nil, c)})
	first := p.nextID + 1
	for range 10 {
		p.send(putMsg(p.id(), "a", "1", wire.Terms{}))
	}
	for id := first; id <= p.nextID; id++ {
		if _, _, err := p.await(id); err != nil {
			t.Fatal(err)
		}
	}
	if p.packs != 0 {
		t.Errorf("%d packs", p.packs)
	}
	a, err := wire.ParseAccept(p.accept)
	if err != nil || a.Features&wire.FeaturePack == 0 {
		t.Errorf("the server names features %#x, %v", a.Features, err)
	}
}

// TestPackEnds: sessions end with packs under way, by the client's hand, while handlers stand still;
// nothing is left of the requests.
func TestPackEnds(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.InitialCredits = 16 })
	for range 5 {
		p := dial(t, srv, peerOptions{})
		srv.BlockHandlers()
		p.send(pack(putMsg(p.id(), "a", "1", wire.Terms{}), putMsg(p.id(), "b", "1", wire.Terms{}), putMsg(p.id(), "c", "1", wire.Terms{})))
		eventually(t, "the pack waits", func() bool { _, n := srv.main.Sessions.Gate.Waiting(); return n == 3 })
		p.close()
		srv.UnblockHandlers()
		eventually(t, "the session is gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
	}
	eventually(t, "nothing is in flight", func() bool { return srv.main.Store.Stats().Inflight == 0 })
}
