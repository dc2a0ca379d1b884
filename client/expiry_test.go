package client_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// expiring puts an item with an expiry into a fake server that answers gets by
// SEND itself, and whose time is what the test says.
func expiring(t *testing.T, expiry uint64) (*clienttest.Server, *clienttest.Clock, *client.Client, *int) {
	f := clienttest.NewServer(77)
	f.Change(func(mem []byte) {
		f.BuildIndex(mem, oldSeg)
		putExpiring(f, mem, placeA, fakeKey, []byte("one"), 1, expiry)
	})
	asked := 0
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		asked++
		out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 2, Value: []byte("asked")})
		wire.SetCredits(out, 1)
		return out, true
	}
	clock := clienttest.NewClock()
	return f, clock, dialFake(t, f, clock, nil), &asked
}

// putExpiring is putItem with an expiry.
func putExpiring(f *clienttest.Server, mem []byte, at layout.Place, key, value []byte, v layout.Version, expiry uint64) {
	f.PutItem(mem, oldSeg, at, key, value, v)
	it := layout.Item{Version: v, Key: key, Value: value, Expiry: expiry}
	size := layout.ItemSize(len(key), len(value), true)
	layout.WriteItem(mem[at.Byte():at.Byte()+uint64(size)], f.Incarnation, at, it, layout.Pending)
	layout.SetState(mem[at.Byte():], v, layout.Live)
	class, _ := layout.ClassFor(size)
	slot := layout.MakeSlot(layout.HashKey(42, key).Fingerprint(), class, at)
	binary.LittleEndian.PutUint64(mem[clienttest.SlotAt(oldSeg, key):], uint64(slot))
}

// The server's time decides. By the clock of this machine, which is decades ahead of
// it, everything has expired.
func TestExpiryByTheServersTime(t *testing.T) {
	_, clock, c, asked := expiring(t, 5_000_000)
	s := rt(c).Only().Current()
	s.Time.Pong(4_000_000, clock.Now())
	mustGet(t, c, "one")
	clock.Advance(999 * time.Millisecond) // too close to tell
	mustGet(t, c, "asked")
	s.Time.Pong(5_000_000, clock.Now())
	if _, err := c.Get(t.Context(), fakeKey); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("expired, and yet %v", err)
	}
	res, err := c.MultiGet(t.Context(), [][]byte{fakeKey})
	if err != nil || !errors.Is(res[0].Err, client.ErrNotFound) {
		t.Errorf("%v %v", res, err)
	}
	if k := c.Counters(); *asked != 1 || k.Fallbacks.Expiry != 1 || k.ExpiredMisses != 2 {
		t.Errorf("asked %d times; %+v", *asked, k)
	}
}

// While the item is READ a touch gives it more time, and then its old expiry
// passes: it was there all the time, and must not be called absent although the
// bytes that were READ have expired by now.
func TestExpiryPassesDuringTheGet(t *testing.T) {
	f, clock, c, asked := expiring(t, 5_000_000)
	s := rt(c).Only().Current()
	s.Time.Pong(4_999_000, clock.Now())
	f.Change(func([]byte) {
		f.OnRead = func(place uint64, dst []byte) {
			copy(dst, f.Mem[place:])
			if place == placeA.Byte() { // touched, and then the time comes
				clock.Advance(1100 * time.Millisecond)
				s.Time.Pong(6_000_000, clock.Now())
			}
		}
	})
	mustGet(t, c, "asked")
	if *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
}

// While items that expire are READ the watch asks for the time.
func TestTimeIsAsked(t *testing.T) {
	f, _, c, _ := expiring(t, 5_000_000)
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		switch h.Type {
		case wire.TypePing:
			m, _ := wire.ParsePing(wire.Body(msg))
			return wire.AppendPingReply(nil, h.ID, wire.PingReply{Echo: m.Echo, TimeMicros: 3_000_000}), true
		case wire.TypeGet:
			out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 1, Value: []byte("one")})
			wire.SetCredits(out, 1)
			return out, true
		}
		return nil, false
	}
	mustGet(t, c, "one") // by SEND: no time is known
	clienttest.Eventually(t, "the time is known", func() bool {
		before := c.Counters().OneSidedHits
		mustGet(t, c, "one")
		return c.Counters().OneSidedHits > before
	})
	if high := rt(c).Only().Current().Usage().TimeHigh; high < 3_000_000 || high > 3_100_000 {
		t.Errorf("upper bound %d", high)
	}
}
