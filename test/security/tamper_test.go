package security

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// increments sends three increments of a counter, one behind the other, and
// returns what became of the connection.
func (p *peer) increments(key string) error {
	p.t.Helper()
	var last uint64
	for range 3 {
		p.lastID++
		last = p.lastID
		msg := wire.AppendUpdate(nil, last, wire.Update{Op: wire.UpdateIncrement, Delta: 1, Key: []byte(key)})
		p.out.Seal(msg)
		p.raw(msg)
	}
	_, _, err := p.await(last)
	return err
}

// TestTamperedMessage: a message that is altered, swapped with another, repeated,
// left out or made up between the ends has no effect, and ends its session alone.
// On the wire everything is well: numbers of the fabric and CRC are repaired.
func TestTamperedMessage(t *testing.T) {
	onlyIWARP(t)
	r := startRig(t, nil)
	stop := r.honest("bob", bobWord)
	observer := r.dial("alice", aliceWord)
	// SEND 1 of a client is Hello, 2 to 4 are the increments.
	same := func(b []byte) [][]byte { return [][]byte{b} }
	for i, c := range []struct {
		name string
		edit func(held *[]byte, n int, b []byte) [][]byte
		want int64 // increments that took place: those before the first attack
	}{
		{"not touched", func(_ *[]byte, n int, b []byte) [][]byte { return same(b) }, 3},
		{"the sum altered", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				b[wire.HeaderSize+8] = 100
			}
			return same(b)
		}, 1},
		{"the header altered", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				b[8] ^= 0x40 // the request's id
			}
			return same(b)
		}, 1},
		{"the tag altered", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				b[40] ^= 1
			}
			return same(b)
		}, 1},
		{"two swapped", func(held *[]byte, n int, b []byte) [][]byte {
			switch n {
			case 3:
				*held = b
				return nil
			case 4:
				return [][]byte{b, *held}
			}
			return same(b)
		}, 1},
		{"one repeated", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				return [][]byte{b, b}
			}
			return same(b)
		}, 2},
		{"one repeated under the next number", func(held *[]byte, n int, b []byte) [][]byte {
			switch n {
			case 3:
				*held = b
			case 4:
				again := append([]byte(nil), *held...)
				copy(again[24:32], b[24:32]) // the sequence that is due
				return same(again)
			}
			return same(b)
		}, 2},
		{"one left out", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				return nil
			}
			return same(b)
		}, 1},
		{"one made up", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				made := wire.AppendUpdate(nil, 77, wire.Update{Op: wire.UpdateIncrement, Delta: 1000, Key: []byte("made up")})
				copy(made[24:32], b[24:32])
				return [][]byte{made, b}
			}
			return same(b)
		}, 1},
		{"one cut off", func(_ *[]byte, n int, b []byte) [][]byte {
			if n == 3 {
				return same(b[:40])
			}
			return same(b)
		}, 1},
	} {
		var held []byte
		pr := newProxy(t, r.addr(), func(toServer bool, n int, b []byte) [][]byte {
			if !toServer {
				return same(b)
			}
			return c.edit(&held, n, b)
		})
		p := newPeer(t)
		p.tenant, p.word = "alice", aliceWord
		if err := p.reach(pr.addr(), nil); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := p.sayHello(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		key := fmt.Sprintf("counter %d", i)
		err := p.increments(key)
		if (c.want == 3) != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			p.gone()
			if !errors.Is(err, wire.StatusProtocol.Err()) {
				t.Errorf("%s: not told why: %v", c.name, err)
			}
		}
		if got, err := observer.Increment(t.Context(), []byte(key), 0); err != nil || got != c.want {
			t.Errorf("%s: %d increments took place, %v; want %d", c.name, got, err, c.want)
		}
	}
	if n := r.spaceRefusals("alice", "tampered"); n < 8 {
		t.Errorf("%d sessions are counted as tampered with", n)
	}
	if ok, err := observer.Exists(t.Context(), []byte("made up")); ok || err != nil {
		t.Errorf("what was made up: %v, %v", ok, err)
	}
	stop()
}

// TestTamperedReplies: a client of the library whose messages are altered in both
// directions, now and then, gets right answers or none.
func TestTamperedReplies(t *testing.T) {
	onlyIWARP(t)
	r := startRig(t, nil)
	var seen, altered atomic.Int64
	pr := newProxy(t, r.addr(), func(_ bool, n int, b []byte) [][]byte {
		if seen.Add(1)%37 == 0 && n > 4 && len(b) > wire.HeaderSize {
			altered.Add(1)
			b[len(b)-1] ^= 0x10
		}
		return [][]byte{b}
	})
	c := r.dial("clerk", clerkWord, func(cfg *client.Config) { cfg.Servers = []string{pr.addr()} }) // all by SEND
	wrong := 0
	for i := range 400 {
		key := fmt.Appendf(nil, "desk/%d", i%7)
		value := fmt.Sprintf("value %d", i)
		err := c.Put(t.Context(), key, []byte(value))
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		got, err := c.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("get %d: %v", i, err)
		}
		if string(got) != value {
			wrong++
		}
	}
	if wrong > 0 || altered.Load() < 5 {
		t.Errorf("%d wrong values, %d messages altered", wrong, altered.Load())
	}
}
