package security

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// refusedAs dials and returns the error, which must be of a class.
func (r *rig) refusedAs(class error, tenant, word string) error {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), r.config(tenant, word))
	if err == nil {
		c.Close()
		r.t.Fatalf("tenant %q came in", tenant)
	}
	if !errors.Is(err, class) {
		r.t.Fatalf("tenant %q: %v, want %v", tenant, err, class)
	}
	return err
}

// TestWrongSecret: a client that has not the secret, or names a tenant that is
// none, or one that is revoked, is refused, all with the same answer.
func TestWrongSecret(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("alice", aliceWord)
	if _, err := r.srv.Revoke("bob"); err != nil {
		t.Fatal(err)
	}
	var first string
	for _, c := range []struct{ name, tenant, word string }{
		{"a wrong secret", "alice", "not-the-secret-of-her"},
		{"no secret", "alice", ""},
		{"another tenant's secret", "alice", clerkWord},
		{"the node's secret under a tenant's name", "alice", mainSecret},
		{"a tenant's secret without his name", "", aliceWord},
		{"no tenant of that name", "mallory", aliceWord},
		{"a name in capitals", "Alice", aliceWord},
		{"a revoked tenant, with his secret", "bob", bobWord},
		{"a revoked tenant, with another", "bob", aliceWord},
		{"a wrong main secret", "", "main-secret-012345678"},
	} {
		err := r.refusedAs(client.ErrAuth, c.tenant, c.word)
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("%s is told apart: %q, others %q", c.name, err, first)
		}
	}
	stop()
}

// TestReplayedHandshake: a client's handshake, repeated by an attacker that does
// not know the secret, opens nothing.
func TestReplayedHandshake(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("bob", bobWord)
	victim := r.open("alice", aliceWord)
	region := victim.regions()[0]

	thief := newPeer(t)
	if err := thief.reach(r.addr(), victim.connect); err != nil {
		t.Fatalf("a replayed request is answered with a fresh nonce, not %v", err)
	}
	if bytes.Equal(thief.accept, victim.accept) {
		t.Fatal("the server's nonce came twice")
	}
	thief.in, _ = wire.NewSeals(nil, nil, nil) // its replies cannot be opened without the secret
	thief.raw(victim.hello)
	thief.gone()
	if err := thief.read(region); err == nil {
		t.Error("and it READ")
	}
	// The same with a READ right after the replay, before an answer; a copy of a
	// request that is being set up would be refused.
	eventually(t, "its place is free", func() bool { return r.limit("setups").Used == 0 })
	thief = newPeer(t)
	if err := thief.reach(r.addr(), victim.connect); err != nil {
		t.Fatal(err)
	}
	if err := thief.read(region); err == nil {
		t.Error("it READ before any proof")
	}
	if err := victim.read(region); err != nil {
		t.Errorf("the victim: %v", err)
	}
	stop()
}

// TestReadBeforeAuthentication: a connection that has not said Hello reads
// nothing, with true addresses and rkeys, and is gone after it tried.
func TestReadBeforeAuthentication(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("alice", aliceWord)
	insider := r.open("alice", aliceWord)
	for _, region := range insider.regions() {
		p := newPeer(t)
		p.tenant, p.word = "alice", aliceWord
		if err := p.reach(r.addr(), nil); err != nil {
			t.Fatal(err)
		}
		if err := p.read(region); err == nil || !bytes.Equal(p.sink(), make([]byte, 64)) {
			t.Errorf("region %d: %v, %x", region.ID, err, p.sink())
		}
		p.gone()
		if err := insider.read(region); err != nil {
			t.Errorf("the right to it is no right any more: %v", err)
		}
	}
	// Nor does it WRITE, before or after.
	for _, hello := range []bool{false, true} {
		p := newPeer(t)
		p.tenant, p.word = "alice", aliceWord
		err := p.reach(r.addr(), nil)
		if err == nil && hello {
			err = p.sayHello()
		}
		if err != nil {
			t.Fatal(err)
		}
		region := insider.regions()[0]
		_, perr := p.qp.PostSend([]rdma.SendWR{{
			ID: peerReadID, Op: rdma.OpRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: p.mr, Off: peerSinkOff, Len: 64}},
			Remote: rdma.RemoteAddr{Addr: region.Addr, RKey: region.RKey},
		}})
		if errors.Is(perr, rdma.ErrNotSupported) {
			t.Logf("this fabric has no WRITE: %v", perr)
			break
		}
		p.gone()
	}
	stop()
}

// TestOthersRKey: the true rkey of another tenant is worth as much as an invented
// one, in both directions and of the node's own space too.
func TestOthersRKey(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("bob", bobWord)
	type who struct{ name, word string }
	all := []who{{"alice", aliceWord}, {"bob", bobWord}, {"", mainSecret}}
	table := map[string][]wire.Region{}
	for _, w := range all {
		p := r.open(w.name, w.word)
		table[w.name] = p.regions()
		for _, region := range table[w.name] {
			if err := p.read(region); err != nil {
				t.Fatalf("%q reads his own region %d: %v", w.name, region.ID, err)
			}
		}
	}
	for _, w := range all {
		for _, victim := range all {
			if victim == w {
				continue
			}
			for _, region := range table[victim.name] {
				p := r.open(w.name, w.word)
				if err := p.read(region); err == nil || !bytes.Equal(p.sink(), make([]byte, 64)) {
					t.Errorf("%q reads region %d of %q: %v, %x", w.name, region.ID, victim.name, err, p.sink())
				}
				p.gone()
			}
		}
	}
	stop()
}

// TestBruteForce: guessing secrets and rkeys costs the attacker a connection each
// time, and other clients nothing.
func TestBruteForce(t *testing.T) {
	r := startRig(t, nil)
	rnd := random(t)
	stop := r.honest("alice", aliceWord)
	guesses := 300
	if *fabricFlag == "verbs" {
		guesses = 30
	}
	for range guesses {
		p := newPeer(t)
		p.tenant, p.word = "alice", string(rune('a'+rnd.IntN(26)))+"lice-secret-012345678"
		if err := p.reach(r.addr(), nil); !errors.Is(err, wire.StatusAuth.Err()) {
			t.Fatalf("a guess: %v", err)
		}
		p.close()
	}
	insider := r.open("bob", bobWord)
	true1 := insider.regions()[0]
	for range guesses / 10 {
		p := r.open("bob", bobWord)
		rkey := rnd.Uint32()
		if rkey == true1.RKey {
			continue
		}
		if err := p.readAt(true1.Addr, rkey); err == nil {
			t.Fatalf("rkey %#x was guessed", rkey)
		}
		p.gone()
	}
	if got := r.refusals("auth"); got < uint64(guesses) {
		t.Errorf("%d refusals are counted, %d were", got, guesses)
	}
	stop()
	if lines := bytes.Count([]byte(r.log.String()), []byte("connection refused")); lines > 100 {
		t.Errorf("%d lines of log for %d guesses", lines, guesses)
	}
}

// refusals is how many connections were refused or ended for a cause.
func (r *rig) refusals(cause string) uint64 {
	st, err := r.srv.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	return st.SessionsEnded[cause]
}

// TestTimeToAuthenticate: a connection that does not say Hello is ended.
func TestTimeToAuthenticate(t *testing.T) {
	r := startRig(t, nil)
	r.stop()
	r.cfg.SetupTimeout = 300 * time.Millisecond
	r.start()
	p := newPeer(t)
	p.tenant, p.word = "alice", aliceWord
	if err := p.reach(r.addr(), nil); err != nil {
		t.Fatal(err)
	}
	p.gone()
	eventually(t, "it is counted", func() bool { return r.refusals("setup-timeout") >= 1 || r.spaceRefusals("alice", "setup-timeout") >= 1 })
}

// spaceRefusals is refusals of a space.
func (r *rig) spaceRefusals(space, cause string) uint64 {
	text := r.metrics()
	return metric(text, `rdmakv_space_sessions_ended_total{cause="`+cause+`",space="`+space+`"}`) +
		metric(text, `rdmakv_sessions_ended_total{cause="`+cause+`"}`)
}
