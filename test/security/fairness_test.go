package security

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// These tests are about what one tenant takes of what all of them share. The attacker
// is the clerk, which has the least right that can write: no rkeys, keys of one
// prefix.

// A stuckLink relays connections to a node until it is stuck: from then on nothing
// that the node sends arrives, so that its READs are not served.
type stuckLink struct {
	l     net.Listener
	stuck atomic.Bool
	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newStuckLink(t *testing.T, target string) *stuckLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &stuckLink{l: l}
	k.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			k.mu.Lock()
			k.conns = append(k.conns, in, out)
			k.mu.Unlock()
			k.wg.Go(func() { io.Copy(out, in); out.Close() })
			k.wg.Go(func() {
				defer in.Close()
				for buf := make([]byte, 64<<10); ; {
					n, err := out.Read(buf)
					if err != nil {
						return
					}
					if !k.stuck.Load() {
						in.Write(buf[:n])
					}
				}
			})
		}
	})
	t.Cleanup(k.close)
	return k
}

func (k *stuckLink) close() {
	k.l.Close()
	k.mu.Lock()
	for _, c := range k.conns {
		c.Close()
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// openBy is open over another address.
func (r *rig) openBy(addr, tenant, word string) *peer {
	r.t.Helper()
	p := newPeer(r.t)
	p.tenant, p.word = tenant, word
	if err := p.reach(addr, nil); err != nil {
		r.t.Fatal(err)
	}
	if err := p.sayHello(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// post sends a request and does not wait for what becomes of it.
func (p *peer) post(encode func(id uint64) []byte) {
	p.t.Helper()
	p.lastID++
	msg := encode(p.lastID)
	p.out.Seal(msg)
	p.raw(msg)
}

// putTimes puts values of 1 MB and returns how long one took on average.
func putTimes(t *testing.T, c *client.Client, key string) time.Duration {
	t.Helper()
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)
	const puts = 15
	begun := time.Now()
	for range puts {
		if err := c.Put(t.Context(), []byte(key), value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	return time.Since(begun) / puts
}

// TestUnservedPuts: a tenant that announces large puts and serves no READ of them
// holds its own share of the staging memory and delays no other large puts: neither
// those of the node's own space, nor those of a tenant with a space of its own.
func TestUnservedPuts(t *testing.T) {
	onlyIWARP(t)
	r := startRig(t, nil)
	honest := []struct {
		c    *client.Client
		key  string
		idle time.Duration
	}{{c: r.dial("", mainSecret), key: "desk/main"}, {c: r.dial("alice", aliceWord), key: "alice"}}
	for i := range honest {
		honest[i].idle = putTimes(t, honest[i].c, honest[i].key)
	}
	link := newStuckLink(t, r.addr())
	var attackers []*peer
	for range 4 {
		attackers = append(attackers, r.openBy(link.l.Addr().String(), "clerk", clerkWord))
	}
	link.stuck.Store(true)
	for _, p := range attackers {
		for range 2 {
			p.post(func(id uint64) []byte {
				return wire.AppendPutLarge(nil, id, wire.PutLarge{Key: []byte("desk/never"), ValueLen: 33 << 20, RKey: 1, Addr: 4096})
			})
		}
	}
	eventually(t, "the clerk has his share, and waits for more", func() bool {
		return r.limit("staging_bytes").Used >= 64<<20 && r.tenant("clerk").Refused["tenant_staging"] > 0
	})
	for _, h := range honest {
		took := putTimes(t, h.c, h.key)
		t.Logf("%s: %v for 1 MB, %v beside the attack", h.key, h.idle, took)
		if took > 2*h.idle+250*time.Millisecond { // without shares they wait for seconds
			t.Errorf("%s: puts of 1 MB took %v beside the attack, %v without it", h.key, took, h.idle)
		}
	}
	if used := r.limit("staging_bytes").Used; used < 64<<20 {
		t.Errorf("the attack was over before: %d bytes", used)
	}
	if hits := r.hits("tenant_staging"); hits == 0 {
		t.Error("not counted")
	}
}

// TestHeldAnswers: a tenant that has large answers held, and again as soon as they are
// over, keeps no other tenant from its own.
func TestHeldAnswers(t *testing.T) {
	r := startRig(t, func(c *server.Config) {
		word := secret.New([]byte(clerk2Word))
		c.Tenants = append(c.Tenants, server.Tenant{Name: "clerk2", Secret: word, Prefix: "desk2/"})
	})
	// Of 128 MiB of memory 32 may be held: two of the clerk's, and less than 1 MB.
	clerk, other := r.dial("clerk", clerkWord), r.dial("clerk2", clerk2Word)
	large, mine := bytes.Repeat([]byte("L"), 15<<20+700<<10), bytes.Repeat([]byte("m"), 1<<20)
	for _, key := range []string{"desk/1", "desk/2"} {
		if err := clerk.Put(t.Context(), []byte(key), large); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Put(t.Context(), []byte("desk2/k"), mine); err != nil {
		t.Fatal(err)
	}
	attacker := r.open("clerk", clerkWord)
	holds, refused := 0, 0
	hold := func(key string) {
		_, err := attacker.call(func(id uint64) []byte { return wire.AppendGet(nil, id, wire.Get{Key: []byte(key)}) })
		switch {
		case err == nil:
			holds++
		case errors.Is(err, wire.StatusOverloaded.Err()):
			refused++
		default:
			t.Fatal(err)
		}
	}
	for range 20 {
		hold("desk/1")
		hold("desk/2")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := other.Get(ctx, []byte("desk2/k"))
		cancel()
		if err != nil || !bytes.Equal(got, mine) {
			t.Fatalf("another tenant's get: %d bytes, %v", len(got), err)
		}
	}
	if n := other.Counters().Retries.Refused; n != 0 {
		t.Errorf("the other tenant was refused %d times", n)
	}
	if holds == 0 || refused == 0 || r.hits("tenant_holds") == 0 {
		t.Errorf("%d answers held and %d refused, counted %d: no attack", holds, refused, r.hits("tenant_holds"))
	}
}

// hungry puts a key, says that it had to wait for credits, and returns how many the
// reply gave.
func (p *peer) hungry(key string) int {
	p.t.Helper()
	p.post(func(id uint64) []byte {
		msg := wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte("v")})
		wire.SetFlags(msg, wire.FlagWantCredits)
		return msg
	})
	h, body, err := p.await(p.lastID)
	if err == nil {
		err = wire.ReplyError(h, body)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return int(h.Credits)
}

// TestIdleCredits: sessions of one tenant that take all the credits they can get, give
// none back and go on with Pings alone, keep no session of another from growing to
// what the server allows.
func TestIdleCredits(t *testing.T) {
	r := startRig(t, func(c *server.Config) { c.Lanes, c.ReceiveBytes = 1, 512*16<<10 })
	var idle []*peer
	for range 30 {
		p := r.open("clerk", clerkWord)
		for range 4 {
			p.hungry("desk/k")
		}
		idle = append(idle, p)
	}
	p := r.open("", mainSecret)
	credits := 8 // of Welcome
	for range 6 {
		credits += p.hungry("k") - 1
	}
	if credits != 64 {
		t.Errorf("a session beside them has %d credits, want 64", credits)
	}
	if r.hits("tenant_receives") == 0 {
		t.Error("not counted")
	}
	for _, p := range idle {
		if _, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{}) }); err != nil {
			t.Errorf("one of theirs: %v", err)
		}
	}
}
